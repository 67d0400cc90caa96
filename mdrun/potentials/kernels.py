"""Loops over the neighbour matrix, made from one formula of plain arithmetic.

A pair potential is ``formula(r2, p) -> (energy, force over r)``: ``r2`` is the squared distance, ``p`` the row of
parameters of the two species, whose entry 0 is the squared cutoff and belongs to the loop. Force over r is
-dU/dr / r, positive where the pair repels. A formula of three arguments, ``formula(r2, p, qq)``, is given the product
of the two charges (e²) as well; the loops of one that is not never read a charge.

The full list gives each owned row all its neighbours, so no thread and no rank writes another's force.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numba
import numpy as np
import torch
from numba import njit, prange
from numba.extending import register_jitable

from mdrun.domain import Domain
from mdrun.lanes import gather_rows
from mdrun.potentials import arithmetic
from mdrun.potentials.base import Forces
from mdrun.potentials.precision import DOUBLE, Precision, in_single

# Sums may be reordered into vectors, but infinities and NaN keep their meaning: they must reach the forces.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}

Formula = Callable[..., tuple[float, float]]


@dataclass
class PairPotential:
    """A force model from a formula and a table of its parameters.

    Attributes:
        formula: see the module's text; decorated with ``pair_formula``.
        table: (n_types, n_types, 1 + n_parameters); entry 0 is the squared cutoff, Å².
        evaluate: by which the formula becomes forces: ``by_numba``, or ``torch_pairs.TorchPairs``.
    """

    name: str
    formula: Formula
    table: np.ndarray
    precision: Precision = field(default=DOUBLE, kw_only=True)
    evaluate: Callable[[PairPotential, Domain, bool], Forces] = field(default_factory=lambda: by_numba, kw_only=True)

    is_compiled = True

    @property
    def cutoff(self) -> float:
        """Å, the longest of all pairs."""
        return float(self.table[..., 0].max()) ** 0.5

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        return self.evaluate(self, domain, totals)


def by_numba(potential: PairPotential, domain: Domain, totals: bool) -> Forces:
    """One evaluation by the loop that Numba makes from the formula."""
    terms = potential.precision.terms
    loop = pair_loop(potential.formula, terms)
    forces = np.empty((domain.n_owned, 3))
    # Numba compiles a loop of its own for each choice of None
    sums = loop(
        domain.packed_in(terms).numpy(),
        domain.charges.numpy().astype(terms, copy=False) if uses_charges(potential.formula) else None,
        domain.neighbors.numpy(),
        domain.n_neighbors.numpy(),
        potential.table.astype(terms, copy=False),
        None if len(potential.table) == 1 else True,
        forces,
        potential.precision.sums(0),
        True if totals else None,
        numba.get_num_threads(),
    )
    if not totals:
        return Forces(torch.from_numpy(forces))
    return Forces(torch.from_numpy(forces), float(sums[0]), virial_tensor(sums[1:]))


def pair_formula(function: Formula) -> Formula:
    """Decorator: this function of plain arithmetic can be called by the loops, and by Python for tests."""
    return register_jitable(inline="always")(function)


def uses_charges(formula: Formula) -> bool:
    return len(inspect.signature(formula).parameters) == 3


def virial_tensor(six: np.ndarray) -> torch.Tensor:
    """(3, 3) from xx, yy, zz, yz, xz, xy."""
    xx, yy, zz, yz, xz, xy = (float(v) for v in six)
    return torch.tensor([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], dtype=torch.float64)


@cache
def pair_loop(formula: Formula, terms: type) -> Callable:
    """The loop of a formula, its terms in float64 or float32."""
    # Numba's cache on disk knows a formula by its name; its text, and that of what it may call, makes an edited one
    # another kernel.
    source = inspect.getsource(formula) + inspect.getsource(arithmetic)
    text = hashlib.sha256(source.encode()).hexdigest()
    charged = uses_charges(formula)
    in_terms = pair_formula(in_single(formula)) if terms is np.float32 else formula

    if charged:
        pair = in_terms
    else:

        @register_jitable(inline="always")
        def pair(r2, p, qq):
            return in_terms(r2, p)

    @njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
    def loop(packed, charges, neighbors, n_neighbors, table, mixture, forces, zero, totals, n_chunks):
        """Fill ``forces``; half sums of energy and virial, since each pair is met from both of its ends."""
        assert text
        number = packed.dtype.type
        lanes = 64 // packed.itemsize
        n = len(forces)
        energy = wxx = wyy = wzz = wyz = wxz = wxy = 0.0
        for chunk in prange(n_chunks):
            room = neighbors.shape[1]
            x, y, z = np.empty(room, number), np.empty(room, number), np.empty(room, number)
            types, qq = np.empty(room, number), np.zeros(room, number)
            for i in range(chunk * n // n_chunks, (chunk + 1) * n // n_chunks):
                xi, yi, zi = packed[i, 0], packed[i, 1], packed[i, 2]
                row, mine = neighbors[i], table[int(packed[i, 3])]
                p = mine[0]
                fx = fy = fz = e = vxx = vyy = vzz = vyz = vxz = vxy = zero
                n_lanes = (n_neighbors[i] + 15) & -16  # filled up with a row far away
                for k in range(0, n_lanes, lanes):
                    if mixture is None:
                        gather_rows(packed, row, k, x, y, z, None)
                    else:
                        gather_rows(packed, row, k, x, y, z, types)
                if charges is not None:
                    for k in range(n_neighbors[i]):
                        qq[k] = charges[i] * charges[row[k]]
                for k in range(n_lanes):
                    if mixture is not None:
                        p = mine[np.int32(types[k])]
                    dx, dy, dz = x[k] - xi, y[k] - yi, z[k] - zi
                    r2 = dx * dx + dy * dy + dz * dz
                    u, f = pair(r2, p, qq[k])
                    is_far = r2 >= p[0]  # false for NaN, which must reach the force
                    f = number(0) if is_far else number(f)
                    fx -= f * dx
                    fy -= f * dy
                    fz -= f * dz
                    if totals is not None:
                        e += number(0) if is_far else number(u)
                        vxx += f * dx * dx
                        vyy += f * dy * dy
                        vzz += f * dz * dz
                        vyz += f * dy * dz
                        vxz += f * dx * dz
                        vxy += f * dx * dy
                forces[i, 0], forces[i, 1], forces[i, 2] = fx, fy, fz
                energy += e
                wxx += vxx
                wyy += vyy
                wzz += vzz
                wyz += vyz
                wxz += vxz
                wxy += vxy
        return 0.5 * np.array([energy, wxx, wyy, wzz, wyz, wxz, wxy])

    return loop
