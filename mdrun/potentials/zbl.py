"""Ziegler-Biersack-Littmark: screened repulsion of nuclei, for atoms that come very near, switched off smoothly.

J. F. Ziegler, J. P. Biersack, U. Littmark, The Stopping and Range of Ions in Solids, Vol. 1 (Pergamon, 1985):

    U(r) = Z_i Z_j e² / (4 π ε0 r) φ(r/a) + S(r),  a = 0.46850 Å / (Z_i^0.23 + Z_j^0.23),  φ(x) = Σ c_k exp(-d_k x)

S(r) is that of LAMMPS's ``pair_style zbl``: a constant up to ``inner``, from there on a polynomial in r - inner of
degree 3 and 4 that takes energy, force and its slope to zero at ``outer``.
"""

from __future__ import annotations

import itertools

import numpy as np

from mdrun.errors import InputError
from mdrun.potentials.arithmetic import exp, select, sqrt
from mdrun.potentials.kernels import PairPotential, pair_formula
from mdrun.potentials.pair_tables import number, refuse_unknown, symmetric_table
from mdrun.units import LAMMPS_COULOMB

C1, C2, C3, C4 = 0.02817, 0.28022, 0.50986, 0.18175
D = np.array([0.20162, 0.40290, 0.94229, 3.19980])
LENGTH, POWER = 0.46850, 0.23  # Å; the screening length's


@pair_formula
def zbl(r2, p):
    """p = outer², Z_i Z_j e²/(4 π ε0), four decays d_k/a, inner, S's constant, and its factors of t³ and t⁴."""
    r = sqrt(r2)
    inverse = 1.0 / r
    e1 = C1 * exp(-p[2] * r)
    e2 = C2 * exp(-p[3] * r)
    e3 = C3 * exp(-p[4] * r)
    e4 = C4 * exp(-p[5] * r)
    energy = p[1] * inverse * (e1 + e2 + e3 + e4)
    force = energy * inverse + p[1] * inverse * (p[2] * e1 + p[3] * e2 + p[4] * e3 + p[5] * e4)
    t = select(r > p[6], r - p[6], 0.0)
    switch = t * t * t * (p[8] + p[9] * t)
    switch_slope = t * t * (3.0 * p[8] + 4.0 * p[9] * t)
    return energy + p[7] + switch, (force - switch_slope) * inverse


def row(z_i: int, z_j: int, inner: float, outer: float) -> np.ndarray:
    """The formula's parameters for a pair of atomic numbers."""
    strength = LAMMPS_COULOMB * z_i * z_j
    decays = D * (z_i**POWER + z_j**POWER) / LENGTH
    # U and its first two derivatives at ``outer``
    terms = np.array([C1, C2, C3, C4]) * np.exp(-decays * outer) * strength / outer
    e = terms.sum()
    slope = -(terms * (decays + 1 / outer)).sum()
    curvature = (terms * (decays**2 + 2 * decays / outer + 2 / outer**2)).sum()
    width = outer - inner
    third = (-3 * slope + width * curvature) / (3 * width**2)
    fourth = (2 * slope - width * curvature) / (4 * width**3)
    constant = -e + width / 2 * slope - width**2 / 12 * curvature
    return np.array([outer**2, strength, *decays, inner, constant, third, fourth])


def load(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> PairPotential:
    """``zbl:inner=...,outer=...`` (Å); any species.

    Raises:
        InputError: a file, an unknown option, a missing or impossible distance.
    """
    refuse_unknown("zbl", options, ["inner", "outer"])
    if argument is not None or len(options) < 2:
        raise InputError("zbl takes both inner= and outer= (Å), between which it is switched off, and no file.")
    inner = number("zbl", "inner", options["inner"])
    outer = number("zbl", "outer", options["outer"])
    if inner >= outer:
        raise InputError(f"zbl: inner ({inner:g} Å) must be below outer ({outer:g} Å).")
    rows = {
        (a, b): row(x, y, inner, outer)
        for (a, x), (b, y) in itertools.combinations_with_replacement(enumerate(numbers), 2)
    }
    name = f"Ziegler-Biersack-Littmark, switched off from {inner:g} to {outer:g} Å"
    return PairPotential(name, zbl, symmetric_table(rows, len(numbers)))
