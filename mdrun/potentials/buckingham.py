"""Buckingham: U(r) = A exp(-r/ρ) - C / r⁶, not defined within its barrier.

R. A. Buckingham, Proc. R. Soc. A 168 (1938) 264, doi 10.1098/rspa.1938.0173; the form of LAMMPS's ``pair_style buck``.

At short range -C/r⁶ wins: U has a maximum, within which atoms fall onto each other. A pair nearer than that maximum
has NaN for its force, and the run stops with an error that names the atoms and their distance: a wall put there would
hold the atoms in a place where no atoms belong, and nobody would know.
"""

from __future__ import annotations

import math

import numpy as np

from mdrun.errors import InputError
from mdrun.potentials.arithmetic import exp, select, sqrt
from mdrun.potentials.kernels import pair_formula
from mdrun.potentials.pair_tables import NOT_NEGATIVE, PairFamily, Parameter


@pair_formula
def buckingham(r2, p):
    """p = cutoff², A, 1/ρ, C, square of the barrier's place, energy at the cutoff to take off."""
    inverse2 = 1.0 / r2
    repulsion = p[1] * exp(-p[2] * sqrt(r2))
    attraction = p[3] * inverse2 * inverse2 * inverse2
    force = p[2] * repulsion * sqrt(inverse2) - 6.0 * attraction * inverse2
    return repulsion - attraction - p[5], select(r2 < p[4], np.nan, force)


def barrier(a: float, rho: float, c: float) -> float:
    """Å, where the potential has its maximum; 0 where it has none because it repels down to zero distance.

    Raises:
        InputError: it attracts at every distance.
    """
    if c == 0:
        return 0.0

    def log_ratio(r: float) -> float:  # of repulsive to attractive force; largest at 7 ρ
        return math.log(a / rho) - r / rho - math.log(6 * c) + 7 * math.log(r)

    low, high = 0.0, 7 * rho
    if a == 0 or log_ratio(high) <= 0:
        raise InputError(
            f"buck: A = {a:g} eV, rho = {rho:g} Å, C = {c:g} eV·Å⁶ attract at every distance: nothing keeps the atoms "
            "apart. Check the numbers and their units."
        )
    while high - low > 1e-15 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if log_ratio(middle) < 0 else (low, middle)
    return high


def _row(a: float, rho: float, c: float) -> tuple[float, ...]:
    return a, 1 / rho, c, barrier(a, rho, c) ** 2


def _williams(x: tuple[float, ...], y: tuple[float, ...]) -> tuple[float, ...]:
    """Geometric means of A and C, arithmetic mean of 1/ρ: D. E. Williams, J. Chem. Phys. 45 (1966) 3770."""
    return math.sqrt(x[0] * y[0]), 2 / (1 / x[1] + 1 / y[1]), math.sqrt(x[2] * y[2])


BUCKINGHAM = PairFamily(
    word="buck",
    title="Buckingham",
    formula=buckingham,
    parameters=(Parameter("A", "eV", NOT_NEGATIVE), Parameter("rho", "Å"), Parameter("C", "eV·Å⁶", NOT_NEGATIVE)),
    row=_row,
    mixing={"williams": _williams},
    non_finite_means=(
        "Two atoms came nearer than the top of Buckingham's barrier, from where they would fall onto each other. "
        "Lower --timestep or --temperature, or start from a structure without close contacts."
    ),
)
