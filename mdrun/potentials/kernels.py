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
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numba import njit, prange
from numba.extending import register_jitable

from mdrun.domain import Domain
from mdrun.potentials import arithmetic
from mdrun.potentials.base import Forces

# Sums may be reordered into vectors, but infinities and NaN keep their meaning: they must reach the forces.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}

Formula = Callable[..., tuple[float, float]]


@dataclass
class PairPotential:
    """A force model from a formula and a table of its parameters.

    Attributes:
        formula: see the module's text; decorated with ``pair_formula``.
        table: (n_types, n_types, 1 + n_parameters); entry 0 is the squared cutoff, Å².
    """

    name: str
    formula: Formula
    table: np.ndarray

    @property
    def cutoff(self) -> float:
        """Å, the longest of all pairs."""
        return float(self.table[..., 0].max()) ** 0.5

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        forces_only, with_totals = pair_kernels(self.formula)
        forces = np.empty((domain.n_owned, 3))
        charges = (
            domain.charges.numpy() if _uses_charges(self.formula) else None
        )  # None compiles to a loop without them
        arguments = (
            domain.positions.numpy(), domain.types.numpy(), charges, domain.neighbors.numpy(),
            domain.n_neighbors.numpy(), self.table, forces,
        )  # fmt: skip
        if not totals:
            forces_only(*arguments)
            return Forces(torch.from_numpy(forces))
        sums = with_totals(*arguments)
        return Forces(torch.from_numpy(forces), float(sums[0]), virial_tensor(sums[1:]))


def pair_formula(function: Formula) -> Formula:
    """Decorator: this function of plain arithmetic can be called by the loops, and by Python for tests."""
    return register_jitable(inline="always")(function)


def _uses_charges(formula: Formula) -> bool:
    return len(inspect.signature(formula).parameters) == 3


def virial_tensor(six: np.ndarray) -> torch.Tensor:
    """(3, 3) from xx, yy, zz, yz, xz, xy."""
    xx, yy, zz, yz, xz, xy = (float(v) for v in six)
    return torch.tensor([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], dtype=torch.float64)


@cache
def pair_kernels(formula: Formula) -> tuple[Callable, Callable]:
    """The two loops of a formula: forces alone, and forces with energy and virial."""
    # Numba's cache on disk knows a formula by its name; its text, and that of what it may call, makes an edited one
    # another kernel.
    source = inspect.getsource(formula) + inspect.getsource(arithmetic)
    text = hashlib.sha256(source.encode()).hexdigest()

    if _uses_charges(formula):
        pair = formula
    else:

        @register_jitable(inline="always")
        def pair(r2, p, qq):
            return formula(r2, p)

    @njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
    def forces_only(x, types, charges, neighbors, n_neighbors, table, forces):
        assert text
        single = table.shape[0] == 1
        for i in prange(len(forces)):
            xi, yi, zi = x[0, i], x[1, i], x[2, i]
            fx = fy = fz = 0.0
            mine = table[types[i]]
            if single:
                p = mine[0]
                for k in range(n_neighbors[i]):
                    j = neighbors[i, k]
                    dx, dy, dz = x[0, j] - xi, x[1, j] - yi, x[2, j] - zi
                    r2 = dx * dx + dy * dy + dz * dz
                    _, f = pair(r2, p, 0.0 if charges is None else charges[i] * charges[j])
                    f = f if r2 < p[0] else 0.0
                    fx -= f * dx
                    fy -= f * dy
                    fz -= f * dz
            else:
                for k in range(n_neighbors[i]):
                    j = neighbors[i, k]
                    p = mine[types[j]]
                    dx, dy, dz = x[0, j] - xi, x[1, j] - yi, x[2, j] - zi
                    r2 = dx * dx + dy * dy + dz * dz
                    _, f = pair(r2, p, 0.0 if charges is None else charges[i] * charges[j])
                    f = f if r2 < p[0] else 0.0
                    fx -= f * dx
                    fy -= f * dy
                    fz -= f * dz
            forces[i, 0], forces[i, 1], forces[i, 2] = fx, fy, fz

    @njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
    def with_totals(x, types, charges, neighbors, n_neighbors, table, forces):
        assert text
        energy = wxx = wyy = wzz = wyz = wxz = wxy = 0.0
        for i in prange(len(forces)):
            xi, yi, zi = x[0, i], x[1, i], x[2, i]
            fx = fy = fz = e = vxx = vyy = vzz = vyz = vxz = vxy = 0.0
            mine = table[types[i]]
            for k in range(n_neighbors[i]):
                j = neighbors[i, k]
                p = mine[types[j]]
                dx, dy, dz = x[0, j] - xi, x[1, j] - yi, x[2, j] - zi
                r2 = dx * dx + dy * dy + dz * dz
                u, f = pair(r2, p, 0.0 if charges is None else charges[i] * charges[j])
                near = r2 < p[0]
                u = u if near else 0.0
                f = f if near else 0.0
                e += u
                fx -= f * dx
                fy -= f * dy
                fz -= f * dz
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
        # each pair is met from both of its ends
        return 0.5 * np.array([energy, wxx, wyy, wzz, wyz, wxz, wxy])

    return forces_only, with_totals
