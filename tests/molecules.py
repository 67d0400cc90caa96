"""Molecules of fixed bonds, and a force between those of different ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from ase import Atoms

from mdrun.integrate.bonds import Bonds, make_bonds
from mdrun.integrate.constraints import projected
from mdrun.integrate.velocities import draw_momenta
from mdrun.potentials.base import Forces
from tests.systems import state_of

BOND = 1.1  # Å, of dimers
SIDES = np.array([[0.0, 0, 0], [0.9, 0.4, 0], [-0.8, 0.5, 0.1]])  # Å, of triatomics: three sides, none alike


def bonds_between(atoms: Atoms, pairs: Sequence[tuple[int, int]]) -> Bonds:
    """At the lengths that they have, between atoms as they stand."""
    pairs_ = np.array(pairs)
    lengths = np.linalg.norm(atoms.positions[pairs_[:, 0]] - atoms.positions[pairs_[:, 1]], axis=1)
    return make_bonds(pairs_, np.zeros((len(pairs_), 3), int), lengths)


def dimers(n: int, apart: float = 5.5, seed: int = 1) -> tuple[Atoms, Bonds]:
    """n³ of them on a grid in a periodic cell, turned at random; a light and a heavy atom each."""
    atoms, members = _on_grid(n, apart, np.array([[0.0, 0, 0], [BOND, 0, 0]]), seed)
    atoms.set_masses(np.tile([20.0, 60.0], n**3))
    return atoms, bonds_between(atoms, members[:, [0, 1]])


def triatomics(n: int, apart: float = 6.0, seed: int = 2) -> tuple[Atoms, Bonds]:
    """Rigid ones: all three sides are held."""
    atoms, members = _on_grid(n, apart, SIDES, seed)
    atoms.set_masses(np.tile([40.0, 20.0, 30.0], n**3))
    return atoms, bonds_between(atoms, np.concatenate([members[:, [0, 1]], members[:, [0, 2]], members[:, [1, 2]]]))


def _on_grid(n: int, apart: float, shape: np.ndarray, seed: int) -> tuple[Atoms, np.ndarray]:
    rng = np.random.default_rng(seed)
    corners = np.stack(np.meshgrid(*[range(n)] * 3, indexing="ij"), -1).reshape(-1, 3) * apart
    turned = [shape @ np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in corners]
    positions = (corners[:, None] + np.array(turned)).reshape(-1, 3)
    atoms = Atoms(f"Ar{len(positions)}", positions=positions, cell=[n * apart] * 3, pbc=True)
    return atoms, np.arange(len(positions)).reshape(len(corners), -1)


def warmed(atoms: Atoms, bonds: Bonds, temperature_K: float, n_dof: int, seed: int = 1) -> Atoms:
    """With velocities drawn that stretch no bond."""
    state = state_of(atoms)
    momenta = draw_momenta(
        state.masses, state.mobile, temperature_K, seed, True, lambda p: projected(p, state, bonds), n_dof
    )
    atoms.set_momenta(momenta.numpy())
    return atoms


def lengths_of(positions: np.ndarray, bonds: Bonds, cell: np.ndarray) -> np.ndarray:
    """(..., n) Å of unwrapped positions (..., atoms, 3)."""
    a, b = bonds.pairs.T
    return np.linalg.norm(positions[..., a, :] - positions[..., b, :] - bonds.shifts @ cell, axis=-1)


class BetweenMolecules:
    """E = Σ A (1 - r²/c²)³ over pairs of atoms nearer than c that are not of one molecule: soft, and smooth at c.

    Atoms of a molecule of ``size`` follow each other in the file.
    """

    name = "soft spheres of different molecules"

    def __init__(self, size: int, strength: float = 0.5, cutoff: float = 4.5) -> None:
        self.size, self.strength, self.cutoff = size, strength, cutoff

    def __call__(self, domain, totals: bool) -> Forces:
        n, lists = domain.n_owned, domain.neighbors.long()
        is_listed = torch.arange(lists.shape[1])[None] < domain.n_neighbors[:, None]
        lists = torch.where(is_listed, lists, 0)
        r = domain.positions.T
        apart = r[lists] - r[:n, None]
        ids = domain.ids
        other = is_listed & (ids[lists] // self.size != ids[:n, None] // self.size)
        r2 = apart.square().sum(dim=2)
        x = torch.where(other & (r2 < self.cutoff**2), 1 - r2 / self.cutoff**2, 0.0)
        push = 6 * self.strength / self.cutoff**2 * x**2  # -dE/dr / r
        pairs = push[..., None] * apart
        if not totals:
            return Forces(-pairs.sum(dim=1))
        virial = torch.einsum("ijd,ije->de", apart, pairs) / 2
        return Forces(-pairs.sum(dim=1), float(self.strength * (x**3).sum()) / 2, virial)
