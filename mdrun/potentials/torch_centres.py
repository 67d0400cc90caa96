"""Potentials whose energy is a sum over centres, each of a function of the vectors to its near neighbours, by torch.

A centre's energy pushes its neighbours: the derivative by automatic differentiation, within the compiled kernel. The
rows are cut to the potential's own reach first, to a width that is kept, since the work grows with its square; a chunk
of rows is worked off at a time. What a push adds to a ghost is summed into its owner.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from mdrun.compiler import compiled, of_fixed_shape
from mdrun.decompose.halo import HaloPlan
from mdrun.domain import Domain
from mdrun.exchanges import FORCES
from mdrun.late import Late
from mdrun.potentials.base import Forces
from mdrun.potentials.precision import DOUBLE
from mdrun.potentials.torch_pairs import DTYPES, Row, as_forces
from mdrun.verbs import sum_into_owners

# (n,) energies from unit vectors (n, width, 3) and distances (n, width) to neighbours, whether each of them is one,
# the types of centres (n, 1) and neighbours (n, width), the tables, and the type to sum in. Neighbours that are none
# are 1 Å away.
Energy = Callable[..., Tensor]

BLOCK = {"cpu": 1 << 19, "cuda": 1 << 23}  # pairs of neighbours in a chunk of rows
STRIDE = 4  # of the width
SPARE = 6  # neighbours that may come near any one centre from one step to the next


class TorchCentres:
    """The force model.

    Args:
        name: as the start-up panel shows it.
        reach2: (n_types, n_types) Å², symmetric: squared distance up to which an atom is a neighbour.
        energy: see ``Energy``.
        tables: of float64, what ``energy`` reads.
    """

    is_compiled = True
    non_finite_means = (
        "Atoms lie in one place, or crowd around another faster than the kept rows foresee: "
        "lower --timestep or relax the structure first."
    )

    def __init__(self, name: str, reach2: np.ndarray, energy: Energy, tables: tuple[np.ndarray, ...]) -> None:
        self.name, self.cutoff = name, float(reach2.max()) ** 0.5
        self.precision = DOUBLE
        self._energy = energy
        self._host_tables = (reach2, *tables)
        self._tables: tuple[Tensor, ...] = ()
        self._width = STRIDE
        self._longest: Late | None = None  # row of the last evaluation
        self._plan: HaloPlan | None = None  # of the rows that it knows

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        packed = domain.packed_in(self.precision.terms)
        if self._longest is None:
            self._tables = tuple(of_fixed_shape(torch.from_numpy(table).to(packed)) for table in self._host_tables)
            self._longest = Late(domain.backend.device)
        rows_are_known = self._plan is domain.plan
        if rows_are_known:
            self._make_room(int(self._longest.read()))
        forces, sums, longest = self._push_all(domain, packed)
        if rows_are_known and domain.backend.looks_late:  # no waiting: what ran over all the same ends the run
            forces.masked_fill_(longest > self._width, torch.nan)
        elif (most := int(longest)) > self._width:
            self._make_room(most)
            forces, sums, longest = self._push_all(domain, packed)
        self._longest.send(longest)
        self._plan = domain.plan
        owned = sum_into_owners(forces[:-1], FORCES)[: domain.n_owned].double()
        return as_forces(owned, sums if totals else None)

    def _make_room(self, longest: int) -> None:
        """So that the next step's rows find place."""
        if longest + SPARE > self._width:
            self._width = -(-(longest + SPARE) // STRIDE) * STRIDE

    def _push_all(self, domain: Domain, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n_padded + 1, 3) what this rank's centres do to every row, their sums, the longest row."""
        n, terms = domain.n_owned, DTYPES[self.precision.sums]
        forces = torch.zeros((len(packed), 3), dtype=terms, device=packed.device)
        sums = torch.zeros(7, dtype=torch.float64, device=packed.device)
        longest = torch.zeros((), dtype=torch.int64, device=packed.device)
        n_chunks = min(-(-n * max(self._width**2, domain.neighbors.shape[1]) // BLOCK[packed.device.type]), n)
        kernel = _kernel(self._energy, terms, packed.device)
        for chunk in range(n_chunks):
            own = slice(chunk * n // n_chunks, (chunk + 1) * n // n_chunks)
            near, pushes, chunk_sums, most = kernel(
                packed, packed[own], domain.neighbors[own], self._width, *self._tables
            )
            forces.index_add_(0, near.view(-1), pushes.view(-1, 3))
            forces[own] -= pushes.sum(dim=1)
            longest = torch.maximum(longest, most)
            sums += chunk_sums
        return forces, sums, longest


def parameters(table: Tensor, mine: Tensor, theirs: Tensor) -> Tensor | Row:
    """What ``Row`` is, or the one row that there is."""
    return table[0, 0] if len(table) == 1 else Row(table, mine, theirs)


def _cut(packed: Tensor, own: Tensor, neighbors: Tensor, width: int, reach2: Tensor) -> tuple[Tensor, Tensor]:
    """(n, width) rows within reach, filled up with the row that isn't there, and the number of the longest row's."""
    near = neighbors.long()
    r2 = (packed[near, :3] - own[:, None, :3]).square().sum(dim=2)
    limit = reach2[0, 0] if len(reach2) == 1 else reach2[own[:, 3, None].long(), packed[near, 3].long()]
    is_near = ~(r2 >= limit)  # true for NaN, which must reach the forces
    counts = is_near.cumsum(dim=1)
    places = torch.where(is_near, counts - 1, width).clamp(max=width)  # the last column is for what is not kept
    short = near.new_full((len(own), width + 1), len(packed) - 1).scatter(1, places, near)
    return short[:, :width].contiguous(), counts[:, -1].amax()


@cache
def _kernel(energy: Energy, sums: torch.dtype, device: torch.device) -> Callable:
    def kernel(
        packed: Tensor, own: Tensor, neighbors: Tensor, width: int, reach2: Tensor, *tables: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of the centres ``own``: rows near them, the force on each (n, width, 3), their sums, the longest row.

        The sums always: they cost little, and a second kernel without them a minute to compile.
        """
        near, longest = _cut(packed, own, neighbors, width, reach2)
        is_near = near < len(packed) - 1
        offsets = torch.where(is_near[:, :, None], packed[near, :3] - own[:, None, :3], 0.0)
        mine, theirs = own[:, 3, None].long(), packed[near, 3].long()

        def total(d: Tensor) -> tuple[Tensor, Tensor]:
            r = torch.where(is_near, d.square().sum(dim=2), 1.0).sqrt()
            energies = energy(d / r[:, :, None], r, is_near, mine, theirs, *tables, sums=sums)
            return energies.sum(), energies

        gradient, energies = torch.func.grad(total, has_aux=True)(offsets)
        pushes = -gradient.to(sums)
        (dx, dy, dz), (fx, fy, fz) = offsets.unbind(dim=2), pushes.unbind(dim=2)
        terms = (energies, dx * fx, dy * fy, dz * fz, dy * fz, dx * fz, dx * fy)
        return near, pushes, torch.stack([term.sum(dtype=torch.float64) for term in terms]), longest

    return compiled(kernel, device)
