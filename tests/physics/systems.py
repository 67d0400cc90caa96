"""Potentials without a step at the cutoff, and systems at a temperature, for proofs over long runs."""

from __future__ import annotations

import numpy as np
import torch
from ase import Atoms

from mdrun import units
from mdrun.integrate.nvt import Langevin
from mdrun.integrate.velocities import draw_momenta
from mdrun.potentials.kernels import PairPotential, pair_formula
from tests.systems import pfcc, simulate

FS, PS, KB = units.FS, units.PS, units.KB


@pair_formula
def force_shifted(r2, p):
    """p = cutoff², 4 ε, σ², energy and slope of Lennard-Jones at the cutoff, cutoff."""
    inverse = 1.0 / r2
    s2 = p[2] * inverse
    s6 = s2 * s2 * s2
    r = r2**0.5
    energy = p[1] * (s6 * s6 - s6) - p[3] - (r - p[5]) * p[4]
    return energy, p[1] * (12.0 * s6 * s6 - 6.0 * s6) * inverse + p[4] / r


def smooth_argon(cutoff: float = 8.5) -> PairPotential:
    """Lennard-Jones argon whose energy and force both reach zero at the cutoff."""
    s6 = (3.4 / cutoff) ** 6
    energy, slope = 4 * 0.0104 * (s6 * s6 - s6), 4 * 0.0104 * (6 * s6 - 12 * s6 * s6) / cutoff
    table = np.array([[[cutoff**2, 4 * 0.0104, 3.4**2, energy, slope, cutoff]]])
    return PairPotential("force-shifted argon", force_shifted, table)


def warmed(atoms: Atoms, temperature_K: float, seed: int = 1) -> Atoms:
    """With velocities drawn."""
    masses = torch.from_numpy(atoms.get_masses())
    mobile = torch.ones((len(atoms), 3), dtype=torch.bool)
    atoms.set_momenta(draw_momenta(masses, mobile, temperature_K, seed, conserves_momentum=True).numpy())
    return atoms


def argon_liquid(n: int) -> Atoms:
    """4 n³ atoms at 1.4 g/cm³, molten and brought to about 100 K, centre of mass at rest."""
    start = warmed(pfcc(n, n, n, a=5.75), 120)
    end = simulate(start, smooth_argon(), Langevin(4 * FS, 100, 1 / PS, seed=5), 2500)
    start.positions = end.positions[-1]
    start.set_momenta(end.momenta[-1] - end.momenta[-1].mean(axis=0))
    return start
