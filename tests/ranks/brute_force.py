"""What is true without lists, halos or ranks: every periodic image, one after another (numpy, float64)."""

from __future__ import annotations

import itertools

import numpy as np
from ase import Atoms
from scipy.spatial import cKDTree


def image_vectors(positions: np.ndarray, cell: np.ndarray, pbc: np.ndarray, reach: float) -> np.ndarray:
    """(n_shifts, 3) every lattice vector that may bring one atom within ``reach`` of another."""
    periodic = [axis for axis in range(3) if pbc[axis]]
    if not periodic:
        return np.zeros((1, 3))
    vectors = cell[periodic]
    inverse = np.linalg.pinv(vectors)  # (3, n_periodic): its columns are the reciprocal vectors
    frac = positions @ inverse
    spread = np.ptp(frac, axis=0) + reach * np.linalg.norm(inverse, axis=0)
    ranges = [range(-n, n + 1) for n in np.ceil(spread).astype(int)]
    return np.array([np.array(shift) @ vectors for shift in itertools.product(*ranges)])


def neighbors(atoms: Atoms, reach: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every image nearer than ``reach``, of every atom: (n_pairs,) i, (n_pairs,) j, (n_pairs, 3) from i to j."""
    found = []
    x = atoms.positions
    for shift in image_vectors(x, atoms.cell.array, atoms.pbc, reach):
        d = x[None] + shift - x[:, None]
        near = (d**2).sum(axis=-1) < reach * reach
        if not shift.any():
            np.fill_diagonal(near, False)
        i, j = np.nonzero(near)
        found.append((i, j, d[i, j]))
    return tuple(np.concatenate(part) for part in zip(*found, strict=True))  # type: ignore[return-value]


def lennard_jones(atoms: Atoms, epsilon: float, sigma: float, cutoff: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Energy (eV, not shifted), forces (n, 3), virial (3, 3) eV."""
    i, _, d = neighbors(atoms, cutoff)
    r2 = (d**2).sum(axis=1)
    s6 = (sigma**2 / r2) ** 3
    f = 24 * epsilon * (2 * s6 * s6 - s6) / r2
    forces = np.zeros((len(atoms), 3))
    np.add.at(forces, i, -f[:, None] * d)
    return 2 * epsilon * float((s6 * s6 - s6).sum()), forces, 0.5 * np.einsum("n,na,nb->ab", f, d, d)


def is_one_to_one(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-8) -> bool:
    """Whether each expected row has exactly one found row within ``tolerance``, and none is left over."""
    if len(found) != len(expected):
        return False
    if not len(found):
        return True
    hits = cKDTree(found).query_ball_point(expected, tolerance)
    return sorted(itertools.chain.from_iterable(hits)) == list(range(len(found))) and all(len(h) == 1 for h in hits)
