"""Damped shifted force: Coulomb's energy of the structure's charges without a sum over reciprocal space.

C. J. Fennell, J. D. Gezelter, J. Chem. Phys. 124 (2006) 234104, eqs. 18 and 19, doi 10.1063/1.2206581. In units of
e²/(4 π ε0), up to the cutoff R, where energy and force vanish:

    U(r) = q_i q_j (erfc(α r)/r - erfc(α R)/R + s (r - R)),  s = erfc(α R)/R² + 2 α exp(-α²R²) / (√π R)

and each atom's own -q_i² ((erfc(α R)/R + s R)/2 + α/√π), as in LAMMPS's ``pair_style coul/dsf``. LAMMPS takes erfc from
a polynomial that is good to 1.5e-7 (M. Abramowitz, I. A. Stegun, Handbook of Mathematical Functions, 7.1.26), and so
does mdrun, to meet its numbers; ``erfc=exact`` is good to rounding, at a few more operations a pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from mdrun.domain import Domain
from mdrun.errors import InputError
from mdrun.potentials.arithmetic import erfc, exp, sqrt
from mdrun.potentials.base import Forces
from mdrun.potentials.kernels import PairPotential, pair_formula
from mdrun.potentials.pair_tables import NOT_NEGATIVE, number, refuse_unknown
from mdrun.units import LAMMPS_COULOMB
from mdrun.verbs import system_sum


@pair_formula
def exact_dsf(r2, p, qq):
    """p = R², e²/(4 π ε0), α, 2 α/√π, s, erfc(α R)/R + s R."""
    r = sqrt(r2)
    inverse = 1.0 / r
    screened = erfc(p[2] * r) * inverse
    slope = screened * inverse + p[3] * exp(-p[2] * p[2] * r2) * inverse
    return qq * p[1] * (screened + p[4] * r - p[5]), qq * p[1] * (slope - p[4]) * inverse


@pair_formula
def lammps_dsf(r2, p, qq):
    """The same with LAMMPS's polynomial for erfc."""
    r = sqrt(r2)
    inverse = 1.0 / r
    gauss = exp(-p[2] * p[2] * r2)
    t = 1.0 / (1.0 + 0.3275911 * p[2] * r)
    series = 1.421413741 + t * (-1.453152027 + t * 1.061405429)
    series = t * (0.254829592 + t * (-0.284496736 + t * series))
    screened = series * gauss * inverse
    slope = screened * inverse + p[3] * gauss * inverse
    return qq * p[1] * (screened + p[4] * r - p[5]), qq * p[1] * (slope - p[4]) * inverse


FORMULAS = {"lammps": lammps_dsf, "exact": exact_dsf}


@dataclass
class DampedShiftedForce(PairPotential):
    """The pairs, and each atom's own energy.

    Attributes:
        own: eV per e².
    """

    own: float
    _found_charges: bool = field(default=False, init=False)

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        squares = domain.charges[: domain.n_owned].square()
        if not self._found_charges:
            self._refuse_no_charges(squares)
        result = super().__call__(domain, totals)
        if result.energy is not None:
            result.energy += self.own * float(squares.sum())
        return result

    def _refuse_no_charges(self, squares: torch.Tensor) -> None:
        if not float(system_sum(squares, torch.zeros_like(squares, dtype=torch.int64), 1)):
            raise InputError(
                "dsf: every atom of the structure has charge 0. Give the charges with the structure, in extxyz as the "
                "column initial_charges:R:1."
            )
        self._found_charges = True


def make_dsf(alpha: float, cutoff: float, n_types: int, erfc: str = "lammps") -> DampedShiftedForce:
    """α in 1/Å, cutoff in Å; ``erfc`` as in FORMULAS."""
    at_cutoff = math.erfc(alpha * cutoff) / cutoff
    gauss = 2 * alpha / math.sqrt(math.pi) * math.exp(-((alpha * cutoff) ** 2))
    slope = (at_cutoff + gauss) / cutoff
    shift = at_cutoff + slope * cutoff
    row = np.array([cutoff**2, LAMMPS_COULOMB, alpha, 2 * alpha / math.sqrt(math.pi), slope, shift])
    return DampedShiftedForce(
        f"damped shifted force Coulomb, α {alpha:g}/Å, cutoff {cutoff:g} Å",
        FORMULAS[erfc],
        np.tile(row, (n_types, n_types, 1)),
        own=-LAMMPS_COULOMB * (shift / 2 + alpha / math.sqrt(math.pi)),
    )


def load(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> DampedShiftedForce:
    """``dsf:alpha=...,cutoff=...`` (1/Å, Å), and ``erfc=lammps|exact``.

    Raises:
        InputError: a file, an unknown option, a missing or impossible number.
    """
    refuse_unknown("dsf", options, ["alpha", "cutoff", "erfc"])
    if argument is not None or not {"alpha", "cutoff"} <= set(options):
        raise InputError("dsf takes both alpha= (1/Å) and cutoff= (Å), and no file; charges come with the structure.")
    name = options.get("erfc", "lammps")
    if name not in FORMULAS:
        raise InputError(f"dsf: erfc must be {' or '.join(FORMULAS)}, not {name!r}.")
    alpha = number("dsf", "alpha", options["alpha"], NOT_NEGATIVE)
    return make_dsf(alpha, number("dsf", "cutoff", options["cutoff"]), len(numbers), name)
