"""What is refused before any work: numbers that are not finite, cells without volume, atoms on top of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numba import njit

from mdrun.cell import completed, heights
from mdrun.errors import InputError

if TYPE_CHECKING:
    from ase import Atoms

    from mdrun.structures.frame import Place

OVERLAP = 1e-3  # Å: two atoms nearer than this are one atom written twice
CROWDED = 0.5  # Å: no bond is this short
FLAT = 0.1  # Å: a cell thinner than this holds nothing
FARTHEST = 1e12  # Å: beyond it a float64 position no longer resolves a bond
HASH_X, HASH_Y, HASH_Z = 73856093, 19349663, 83492791  # Teschner et al., VMV 2003, section 4


class ClosePairs(NamedTuple):
    """Pairs within some reach: the closest one, and how many were met before the search ended."""

    n_pairs: int
    first: int
    second: int
    distance: float


def atom_name(atoms: Atoms, i: int) -> str:
    """``atom 17 (Ar)``; numbers are those of the file, from 0."""
    return f"atom {i} ({atoms.symbols[i]})"


def check_numbers(atoms: Atoms, place: Place) -> None:
    """Refuse no atoms at all, and atomic numbers that no element has."""
    from ase.data import atomic_masses

    if len(atoms) == 0:
        raise InputError(f"{place}: there are no atoms.")
    numbers = atoms.numbers
    for i in np.flatnonzero((numbers < 1) | (numbers >= len(atomic_masses)))[:1]:
        name = " (X)" if numbers[i] == 0 else ""
        raise InputError(
            f"atom {i}{name} in {place.clause} has atomic number {numbers[i]}, which is no element. "
            "Give every atom the symbol of its element."
        )


def check_finite(atoms: Atoms, values: np.ndarray, what: str, place: Place, limit: float = np.inf) -> None:
    """Refuse the first atom with a value (n,) or (n, 3) that is not finite, or not below ``limit``."""
    rows = values.reshape(len(values), -1)
    bad = np.flatnonzero(~(np.abs(rows) < limit).all(axis=1))
    if len(bad) == 0:
        return
    numbers = ", ".join(f"{value:.3f}" if abs(value) < 1e6 else f"{value:.3e}" for value in rows[bad[0]])
    shown = f"({numbers})" if values.ndim > 1 else numbers
    fault = f"beyond {limit:g} Å" if np.isfinite(rows[bad[0]]).all() else "not finite"
    others = f" ({len(bad) - 1} more atoms are like it)" if len(bad) > 1 else ""
    raise InputError(
        f"{atom_name(atoms, bad[0])} in {place.clause} has a {what} that is {fault}: {shown}{others}. "
        "Check the program that wrote the file, or choose another frame with --index."
    )


def check_masses(atoms: Atoms, masses: np.ndarray, place: Place) -> None:
    """Refuse masses (n,) amu that are zero or negative."""
    for i in np.flatnonzero(masses <= 0)[:1]:
        raise InputError(f"{atom_name(atoms, i)} in {place.clause} has mass {masses[i]:g}; masses must be positive.")


def check_cell(cell: np.ndarray, pbc: np.ndarray, place: Place) -> None:
    """Refuse a cell that ``fault_of_cell`` finds a fault in."""
    if fault := fault_of_cell(cell, pbc):
        shown = ", ".join(f"{axis} = ({', '.join(f'{x:g}' for x in cell[d])})" for d, axis in enumerate("abc"))
        raise InputError(f"{place}: {fault}: {shown}. Give it a cell in Å, or open boundaries (pbc F F F).")


def fault_of_cell(cell: np.ndarray, pbc: np.ndarray) -> str:
    """What is wrong with periodic axes (3,) without a vector, or whose vectors (rows of (3, 3), Å) span no volume.

    The vectors of open axes need only be finite: whatever stands there has no influence.
    """
    vectors = cell[pbc]
    # Larger vectors would overflow when they are multiplied.
    if not np.isfinite(cell).all() or not (np.abs(vectors) < FARTHEST).all():
        return f"the cell is not finite or larger than {FARTHEST:g} Å"
    lengths = np.linalg.norm(vectors, axis=1)
    for d in np.flatnonzero(pbc)[lengths == 0][:1]:
        return f"axis {'abc'[d]} is periodic but has no cell vector"
    spanned = np.linalg.svd(vectors / lengths[:, None], compute_uv=False) if len(vectors) else np.ones(1)
    if spanned[-1] < 1e-8:
        return "the vectors of the periodic axes span no volume"
    thinnest = heights(completed(torch.tensor(cell), pbc.tolist())).numpy()[pbc].min(initial=np.inf)
    return f"the cell is only {thinnest:.2g} Å thick" if thinnest < FLAT else ""


def check_overlaps(atoms: Atoms, place: Place) -> list[str]:
    """Refuse atoms on top of each other, images included; a sentence about pairs that are merely too close."""
    pairs = close_pairs(atoms.positions, atoms.cell.array, atoms.pbc, CROWDED)
    most = _most_pairs(len(atoms))
    if pairs.n_pairs > most and pairs.distance >= OVERLAP:
        # The search gave up in the crowd, but two atoms in one place are always found.
        exact = close_pairs(atoms.positions, atoms.cell.array, atoms.pbc, OVERLAP)
        pairs = exact if exact.n_pairs else pairs
    if pairs.n_pairs == 0:
        return []
    one, other = atom_name(atoms, pairs.first), atom_name(atoms, pairs.second)
    partner = other if pairs.first != pairs.second else "a periodic image of itself"
    if pairs.distance < OVERLAP:
        raise InputError(
            f"{one} and {partner} in {place.clause} are in the same place, {pairs.distance:.2g} Å apart "
            "(periodic images counted). Remove one of them, or check the cell."
        )
    rest = "" if pairs.n_pairs == 1 else f"; {pairs.n_pairs} pairs are closer than {CROWDED} Å"
    if pairs.n_pairs > most:
        rest = f"; more than {most} pairs are closer than {CROWDED} Å: are the positions in Å?"
    return [f"{one} and {partner} in {place.clause} are only {pairs.distance:.3f} Å apart{rest}"]


def close_pairs(positions: np.ndarray, cell: np.ndarray, pbc: np.ndarray, reach: float) -> ClosePairs:
    """Pairs of atoms nearer than ``reach``, each image counted; time and memory go with the number of atoms.

    Args:
        positions: (n, 3) Å, anywhere.
        cell: (3, 3) row vectors, Å, as ``check_cell`` lets pass.
        pbc: (3,) periodic axes.
        reach: Å.

    Returns:
        The closest pair met (``first <= second``). The search ends early at the first overlap, or once there are
        clearly more pairs than atoms.
    """
    complete = completed(torch.tensor(cell), pbc.tolist())
    height, full = heights(complete).numpy(), complete.numpy()
    frac = positions @ np.linalg.inv(full)
    whole = np.where(pbc, np.floor(frac), 0.0)
    wide = reach * (1 + 1e-9)  # so that rounding never puts a pair two bins apart
    n_bins = np.where(pbc, np.maximum(1, np.floor(height / wide)), 1 / wide)
    bins = np.floor((frac - whole) * n_bins).astype(np.int64)
    counts = np.where(pbc, n_bins, 0).astype(np.int64)
    # -5e-17 + 1 rounds to 1.0, one bin too far.
    bins = np.where(pbc, np.minimum(bins, counts - 1), bins)
    n_around = np.where(pbc, np.ceil(wide * n_bins / height - 1e-6), 1).astype(np.int64)
    count, first, second, r2 = _search(
        positions - whole @ full,
        full,
        bins,
        counts,
        n_around,
        reach**2,
        OVERLAP**2,
        _most_pairs(len(positions)),
    )
    return ClosePairs(count, min(first, second), max(first, second), float(r2) ** 0.5)


def _most_pairs(n_atoms: int) -> int:
    return 1000 + n_atoms


@njit(cache=True)
def _hash(x, y, z, mask):
    return ((x * HASH_X) ^ (y * HASH_Y) ^ (z * HASH_Z)) & mask


@njit(cache=True)
def _search(positions, cell, bins, counts, n_around, reach2, overlap2, most):
    """Count pairs over half of the bins around each atom; bins are found by hash, so that vacuum costs nothing.

    ``counts`` is the number of bins along a periodic axis and 0 along an open one.
    """
    n = len(positions)
    size = 16
    while size < 2 * n:
        size *= 2
    mask = size - 1
    head = np.full(size, -1, np.int64)
    following = np.empty(n, np.int64)
    for i in range(n - 1, -1, -1):
        h = _hash(bins[i, 0], bins[i, 1], bins[i, 2], mask)
        following[i] = head[h]
        head[h] = i

    found, first, second, closest2 = 0, -1, -1, np.inf
    target = np.empty(3, np.int64)
    shift = np.empty(3)
    for i in range(n):
        for ox in range(n_around[0] + 1):
            for oy in range(-n_around[1] if ox > 0 else 0, n_around[1] + 1):
                for oz in range(-n_around[2] if ox > 0 or oy > 0 else 0, n_around[2] + 1):
                    for d, offset in enumerate((ox, oy, oz)):
                        target[d] = bins[i, d] + offset
                        shift[d] = 0.0
                        if counts[d] > 0:
                            turns = target[d] // counts[d]
                            target[d] -= turns * counts[d]
                            shift[d] = turns
                    x = positions[i, 0] - (shift[0] * cell[0, 0] + shift[1] * cell[1, 0] + shift[2] * cell[2, 0])
                    y = positions[i, 1] - (shift[0] * cell[0, 1] + shift[1] * cell[1, 1] + shift[2] * cell[2, 1])
                    z = positions[i, 2] - (shift[0] * cell[0, 2] + shift[1] * cell[1, 2] + shift[2] * cell[2, 2])
                    j = head[_hash(target[0], target[1], target[2], mask)]
                    own = ox == 0 and oy == 0 and oz == 0
                    while j >= 0:
                        here = bins[j, 0] == target[0] and bins[j, 1] == target[1] and bins[j, 2] == target[2]
                        if here and not (own and j <= i):
                            dx, dy, dz = positions[j, 0] - x, positions[j, 1] - y, positions[j, 2] - z
                            r2 = dx * dx + dy * dy + dz * dz
                            if r2 < reach2:
                                found += 1
                                if r2 < closest2:
                                    first, second, closest2 = i, j, r2
                                if closest2 < overlap2 or found > most:
                                    return found, first, second, closest2
                        j = following[j]
    return found, first, second, closest2
