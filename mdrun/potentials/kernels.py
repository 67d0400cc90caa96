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
from mdrun.lanes import indices_at, rows_at
from mdrun.lookup import FEW, QUAD, choice_among, table_rows
from mdrun.potentials.base import Forces
from mdrun.potentials.pair_sums import no_pairs, settle, with_pairs
from mdrun.potentials.precision import DOUBLE, Precision
from mdrun.vectors import FASTMATH, choose, n_lanes, zeros

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
    loop = pair_loop(potential.formula)
    table = potential.table if len(potential.table) <= FEW else whole_quads(potential.table)
    forces = np.empty((domain.n_owned, 3))
    # Numba compiles a loop of its own for each choice of None
    sums = loop(
        domain.packed_in(terms).numpy(),
        domain.charges.numpy().astype(terms, copy=False) if uses_charges(potential.formula) else None,
        domain.neighbors.numpy(),
        domain.n_neighbors.numpy(),
        table.astype(terms, copy=False),
        choice_among(len(table)),
        forces,
        potential.precision.sums(0),
        True if totals else None,
        numba.get_num_threads(),
    )
    if not totals:
        return Forces(torch.from_numpy(forces))
    return Forces(torch.from_numpy(forces), float(sums[0]), virial_tensor(sums[1:]))


def whole_quads(table: np.ndarray) -> np.ndarray:
    """A (n_types, n_types, n) table with zeros added to its rows until lookups by four columns fit."""
    return np.pad(table, ((0, 0), (0, 0), (0, -table.shape[2] % QUAD)))


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
def pair_loop(formula: Formula) -> Callable:
    """The loop of a formula, compiled for whole vectors of whatever type it is called with."""
    # Numba's cache on disk knows a formula by its name; its text makes an edited one another kernel.
    text = hashlib.sha256(inspect.getsource(formula).encode()).hexdigest()
    charged = uses_charges(formula)

    if charged:
        pair = formula
    else:

        @register_jitable(inline="always")
        def pair(r2, p, qq):
            return formula(r2, p)

    @njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
    def loop(packed, charges, neighbors, n_neighbors, table, few, forces, zero, totals, n_chunks):
        """Fill ``forces``; half sums of energy and virial, since each pair is met from both of its ends."""
        assert text
        n = len(forces)
        sums = np.zeros((n_chunks, 7))
        for chunk in prange(n_chunks):
            for i in range(chunk * n // n_chunks, (chunk + 1) * n // n_chunks):
                xi, yi, zi = packed[i, 0], packed[i, 1], packed[i, 2]
                row, mine = neighbors[i], table[int(packed[i, 3])]
                s = no_pairs(packed)
                for k in range(0, n_neighbors[i], n_lanes(packed)):  # the last vector is filled up with a row far away
                    x, y, z, types = rows_at(packed, row, k)
                    p = table_rows(mine, types, few)
                    qq = zeros(packed)
                    if charges is not None:
                        qq = charges[i] * charges[min(indices_at(row, k, packed), len(charges) - 1)]
                    dx, dy, dz = x - xi, y - yi, z - zi
                    r2 = dx * dx + dy * dy + dz * dz
                    u, f = pair(r2, p, qq)
                    is_far = r2 >= p[0]  # false for NaN, which must reach the force
                    s = with_pairs(s, choose(is_far, 0.0, u), choose(is_far, 0.0, f), (dx, dy, dz), totals)
                settle(s, zero, forces[i], sums[chunk])
        return 0.5 * sums.sum(axis=0)

    return loop
