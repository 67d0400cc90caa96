"""Atoms by name: the casebook's, and some of our own."""

from __future__ import annotations

import numpy as np
import torch
from ase import Atoms
from ase.build import bulk, fcc100

from mdrun import units
from mdrun.integrate.velocities import draw_momenta
from tests.systems import pfcc

FCC = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]]) / 2
TETRAHEDRON = [(0, 0, 0), (3.8, 0, 0), (0, 3.9, 0), (0, 0, 4.0)]
CORNERS = [(1, 1, 1), (9, 1, 1), (1, 9, 1), (1, 1, 9)]
FLAT = [20, 20, 20, 41.55, 56.39, 17.52]


def icosahedron(cell: float | None = None, velocity: tuple[float, float, float] = (0, 0, 0)) -> Atoms:
    """A-23: 13 atoms, the centre at (5, 5, 5), the others 3.65 Å away; velocity in Å/fs."""
    golden = (1 + 5**0.5) / 2
    corners = [np.roll([0, a, b], k) for k in range(3) for a in (-1, 1) for b in (-golden, golden)]
    shell = np.array(corners) * 3.65 / np.hypot(1, golden)
    atoms = Atoms("Ar13", positions=np.vstack([np.zeros(3), shell]) + 5.0)
    if cell is not None:
        atoms.set_cell([cell] * 3)
        atoms.pbc = True
    return moving(atoms, velocity)


def moving(atoms: Atoms, velocity: tuple[float, float, float]) -> Atoms:
    """Add a common velocity, Å/fs."""
    atoms.set_momenta(atoms.get_momenta() + atoms.get_masses()[:, None] * np.array(velocity) / units.FS)
    return atoms


def warmed(atoms: Atoms, temperature_K: float, seed: int = 7) -> Atoms:
    masses = torch.from_numpy(atoms.get_masses())
    mobile = torch.ones((len(atoms), 3), dtype=torch.bool)
    atoms.set_momenta(draw_momenta(masses, mobile, temperature_K, seed, conserves_momentum=True).numpy())
    return atoms


def argon_liquid() -> Atoms:
    return warmed(pfcc(4, 4, 4, a=5.9), 150.0)


def argon_wire() -> Atoms:
    """Periodic along z alone; the other vectors are dummies."""
    atoms = pfcc(2, 2, 4)
    atoms.pbc = (False, False, True)
    atoms.set_cell([[1, 0, 0], [0, 1, 0], [0, 0, 4 * 5.26]])
    return atoms


def copper_slab() -> Atoms:
    atoms = fcc100("Cu", (4, 4, 4), vacuum=6.0)
    atoms.pbc = (True, True, False)
    atoms.rattle(0.1, seed=3)
    return warmed(atoms, 600.0)


def gold_copper() -> Atoms:
    atoms = bulk("Au", "fcc", a=3.95, cubic=True).repeat((3, 3, 2))
    atoms.numbers[::3] = 29
    atoms.rattle(0.1, seed=4)
    return atoms


def copper_small_cell() -> Atoms:
    """One skewed, left-handed cell of two atoms, thinner than the cutoff."""
    atoms = bulk("Cu", "fcc", a=3.7).repeat((2, 1, 1))
    atoms.set_cell(atoms.cell.array[[1, 0, 2]])
    atoms.rattle(0.1, seed=5)
    return atoms


def far_away(atoms: Atoms, every: int) -> Atoms:
    """A-15: whole cells added to every ``every``-th atom from the last of the first group on."""
    atoms.positions[every - 1 :: every] += np.array([100, -57, 3]) @ atoms.cell.array
    return atoms


def skewed(atoms: Atoms) -> Atoms:
    """A-21: the same lattice by other vectors, b + a and c - a + b."""
    a, b, c = atoms.cell.array
    atoms.set_cell([a, b + a, c - a + b])
    return atoms


def in_box(positions, cell, pbc=True) -> Atoms:
    return Atoms(f"Ar{len(positions)}", positions=positions, cell=cell, pbc=pbc)


def slab(c: float, dz: float = 0.0) -> Atoms:
    """A-19: 128 atoms, open along z, whatever length the cell has there."""
    atoms = pfcc(4, 4, 2)
    atoms.positions[:, 2] += dz
    atoms.set_cell([21.04, 21.04, c])
    atoms.pbc = (True, True, False)
    return atoms


def ball() -> Atoms:
    """A-20: a dense ball in a wide box, so that rows and ranks are uneven."""
    atoms = pfcc(5, 5, 5)
    near = np.linalg.norm(atoms.positions - 13.0, axis=1) < 12.0
    atoms = atoms[near]
    atoms.set_cell([60.0] * 3)
    return atoms
