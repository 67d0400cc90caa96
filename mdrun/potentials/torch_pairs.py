"""Pair potentials by torch: the same formulas over the gathered neighbours, fused by ``torch.compile``.

Nothing is read back to the host but the energy and the virial, on the steps that ask for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from mdrun.compiler import compiled
from mdrun.domain import Domain
from mdrun.potentials.base import Forces
from mdrun.potentials.kernels import Formula, PairPotential, uses_charges, virial_tensor

DTYPES: dict[type, torch.dtype] = {np.float64: torch.float64, np.float32: torch.float32}


class TorchPairs:
    """Evaluates one ``PairPotential``, whose table it keeps on the device."""

    def __init__(self) -> None:
        self._table: Tensor | None = None

    def __call__(self, potential: PairPotential, domain: Domain, totals: bool) -> Forces:
        packed = domain.packed_in(potential.precision.terms)
        if self._table is None:
            self._table = torch.from_numpy(potential.table).to(packed)
        if not domain.n_owned:
            return no_forces(packed, totals)
        kernel = _kernel(potential.formula, DTYPES[potential.precision.sums], totals, domain.backend.device)
        charges = domain.charges.to(packed.dtype) if uses_charges(potential.formula) else None
        return as_forces(*kernel(packed, charges, domain.neighbors, self._table))


def no_forces(packed: Tensor, totals: bool) -> Forces:
    """Of a rank without atoms."""
    forces = packed.new_empty((0, 3), dtype=torch.float64)
    return Forces(forces, 0.0, virial_tensor(np.zeros(6))) if totals else Forces(forces)


def as_forces(forces: Tensor, sums: Tensor | None) -> Forces:
    """From what a kernel returns: (n_owned, 3) forces, and (7,) energy and the virial's components where asked for."""
    if sums is None:
        return Forces(forces)
    energy, *six = sums.tolist()
    return Forces(forces, energy, virial_tensor(np.array(six)))


class Row:
    """The parameters of every pair of an (n, width) block: what a formula indexes as ``p``.

    Args:
        table: (n_mine, n_theirs, n_parameters).
        mine, theirs: the pairs' types, of shapes that broadcast.
    """

    def __init__(self, table: Tensor, mine: Tensor, theirs: Tensor) -> None:
        self._table = table.flatten()
        self._first = (mine * table.shape[1] + theirs) * table.shape[2]

    def __getitem__(self, k: int | Tensor) -> Tensor:
        return self._table[self._first + k]


def offsets(packed: Tensor, near: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dx, dy, dz and squared distance, (n, width) each, of the rows ``near`` each of the first n."""
    dx, dy, dz = (packed[near, d] - packed[: len(near), d, None] for d in range(3))
    return dx, dy, dz, dx * dx + dy * dy + dz * dz


def forces_and_sums(
    f: Tensor, u: Tensor, dx: Tensor, dy: Tensor, dz: Tensor, sums: torch.dtype, totals: bool
) -> tuple[Tensor, Tensor | None]:
    """What ``as_forces`` takes, from force over r and energy of each pair, which is met from both of its ends.

    An atom's terms are summed in the type ``sums``, the atoms in float64.
    """

    def of_atoms(terms: Tensor) -> Tensor:
        return terms.sum(dim=1, dtype=sums).double()

    fx, fy, fz = f * dx, f * dy, f * dz
    forces = -torch.stack([of_atoms(fx), of_atoms(fy), of_atoms(fz)], dim=1)
    if not totals:
        return forces, None
    terms = (u, fx * dx, fy * dy, fz * dz, fy * dz, fx * dz, fx * dy)
    return forces, 0.5 * torch.stack([of_atoms(t).sum() for t in terms])


@cache
def _kernel(formula: Formula, sums: torch.dtype, totals: bool, device: torch.device) -> Callable:
    def kernel(
        packed: Tensor, charges: Tensor | None, neighbors: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        near = neighbors.long()
        dx, dy, dz, r2 = offsets(packed, near)
        p: Tensor | Row = table[0, 0]
        if len(table) > 1:
            p = Row(table, packed[: len(near), 3, None].long(), packed[near, 3].long())
        if charges is None:
            u, f = formula(r2, p)
        else:  # the row that isn't there has no charge: any will do
            u, f = formula(r2, p, charges[: len(near), None] * charges[near.clamp(max=len(charges) - 1)])
        is_far = r2 >= p[0]  # false for NaN, which must reach the force
        return forces_and_sums(torch.where(is_far, 0.0, f), torch.where(is_far, 0.0, u), dx, dy, dz, sums, totals)

    return compiled(kernel, device)
