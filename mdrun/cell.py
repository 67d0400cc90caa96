"""Geometry of a cell whose axes may be open: fractional coordinates, heights, volume, strain."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor


def completed(cell: Tensor, pbc: Sequence[bool]) -> Tensor:
    """The cell with each open axis replaced by a unit vector at right angles to the periodic ones.

    Along an open axis the fractional coordinate is then a length in Å, and whatever vector the file gave for it,
    a dummy or none, has no influence.

    Args:
        cell: (3, 3) row vectors, Å; the periodic ones independent of each other.
        pbc: periodic axes.

    Returns:
        (3, 3), non-singular; any handedness.
    """
    periodic = [axis for axis in range(3) if pbc[axis]]
    full = cell.clone()
    if len(periodic) == 0:
        return torch.eye(3, dtype=cell.dtype)
    if len(periodic) == 1:
        (axis,) = periodic
        direction = cell[axis] / cell[axis].norm()
        start = torch.eye(3, dtype=cell.dtype)[int(direction.abs().argmin())]
        across = torch.linalg.cross(direction, start)
        full[(axis + 1) % 3] = across / across.norm()
        full[(axis + 2) % 3] = torch.linalg.cross(direction, across / across.norm())
    if len(periodic) == 2:
        normal = torch.linalg.cross(cell[periodic[0]], cell[periodic[1]])
        full[3 - sum(periodic)] = normal / normal.norm()
    return full


def heights(cell: Tensor) -> Tensor:
    """Distances between opposite faces of the cell.

    Args:
        cell: (3, 3) row vectors, Å; any handedness, non-singular.

    Returns:
        (3,) Å. A sphere of radius ``r`` spans ``r / heights[d]`` in fractional coordinate ``d``.
    """
    return 1 / torch.linalg.inv(cell).norm(dim=0)


TILTED = 0.7  # of the shorter vector: how far two vectors may overlap; 0.5 would change sides at each breath


def is_tilted(cell: Tensor, pbc: Sequence[bool]) -> bool:
    """Whether one periodic vector (rows of (3, 3), Å) leans so far over another that a shorter one would serve."""
    vectors = [vector for vector, is_periodic in zip(cell.tolist(), pbc, strict=True) if is_periodic]
    squares = [sum(x * x for x in vector) for vector in vectors]
    return any(
        abs(sum(x * y for x, y in zip(vectors[i], vectors[j], strict=True))) > TILTED * min(squares[i], squares[j])
        for i, j in itertools.combinations(range(len(vectors)), 2)
    )


def reduced(cell: Tensor, pbc: Sequence[bool]) -> Tensor:
    """The lattice of the periodic vectors by shorter ones, of which none leans over another by more than half of it.

    Multiples of one vector are taken from another (Lagrange and Gauss), so axes keep their names, the cell its volume
    and its handedness.
    """
    vectors = cell.numpy().copy()
    axes = [axis for axis in range(3) if pbc[axis]]
    is_done = False
    while not is_done:
        is_done = True
        for i, j in itertools.permutations(axes, 2):
            n = np.rint(vectors[i] @ vectors[j] / (vectors[i] @ vectors[i]))
            shorter = vectors[j] - n * vectors[i]
            if shorter @ shorter < (1 - 1e-9) * (vectors[j] @ vectors[j]):
                vectors[j], is_done = shorter, False
    return torch.from_numpy(vectors)


def volume(cell: Tensor, pbc: Sequence[bool]) -> float:
    """Å³; NaN unless all three axes are periodic, since nothing then bounds the matter."""
    return abs(float(np.linalg.det(cell.numpy()))) if all(pbc) else math.nan


def lengths_and_angles(cell: Tensor, pbc: Sequence[bool]) -> list[float]:
    """a, b, c (Å); α between b and c, β between a and c, γ between a and b (degrees); NaN where an axis of it is open.

    Args:
        cell: (3, 3) row vectors, Å; the periodic ones not zero.
    """
    vectors = [v if periodic else [math.nan] * 3 for v, periodic in zip(cell.tolist(), pbc, strict=True)]
    lengths = [math.hypot(*v) for v in vectors]

    def angle(i: int, j: int) -> float:
        cosine = sum(a * b for a, b in zip(vectors[i], vectors[j], strict=True)) / (lengths[i] * lengths[j])
        return cosine if math.isnan(cosine) else math.degrees(math.acos(min(max(cosine, -1.0), 1.0)))

    return [*lengths, angle(1, 2), angle(0, 2), angle(0, 1)]


def folded(positions: Tensor, cell: Tensor, pbc: Sequence[bool]) -> tuple[Tensor, Tensor]:
    """Fractional coordinates, in [0, 1), strictly, along periodic axes, and the whole numbers added to get there.

    Args:
        positions: (n, 3) Å, contiguous.
        cell: (3, 3), complete.

    Returns:
        (n, 3) each; shifts are 0 along open axes.
    """
    inverse = torch.linalg.inv(cell).contiguous().numpy()
    frac, shifts = _folded(positions.numpy(), inverse, np.array(pbc))
    return torch.from_numpy(frac), torch.from_numpy(shifts)


@njit(parallel=True, cache=True)
def _folded(positions, inverse, periodic):
    frac, shifts = np.empty((len(positions), 3)), np.zeros((len(positions), 3))
    for i in prange(len(positions)):
        r = positions[i]
        for d in range(3):
            f = r[0] * inverse[0, d] + r[1] * inverse[1, d] + r[2] * inverse[2, d]
            if periodic[d]:
                shift = -np.floor(f)
                # -5e-17 + 1 rounds to 1.0: such an atom is put on the lower face, where its image lies.
                over = f + shift >= 1
                shifts[i, d] = shift - 1 if over else shift
                f = 0.0 if over else f + shift
            frac[i, d] = f
    return frac, shifts


def filled_space(cell: Tensor, pbc: Sequence[bool]) -> np.ndarray:
    """The projector (3, 3) on the directions along which the system repeats."""
    box = completed(cell, pbc).numpy()
    open_ = box[[not periodic for periodic in pbc]]  # unit vectors at right angles to these directions
    return np.eye(3) - open_.T @ open_


def unit_strains(components: Iterable[tuple[int, int]]) -> np.ndarray:
    """(k, 3, 3) symmetric and orthonormal, one for each component (row, column)."""
    strains = []
    for a, b in components:
        one = np.zeros((3, 3))
        one[a, b] = one[b, a] = 1.0 if a == b else 0.5**0.5
        strains.append(one)
    return np.array(strains)


def exponential(symmetric: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """exp(A) and (exp(A) - 1) / A of a symmetric (3, 3) A: what a rate does in unit time, alone and to a source."""
    is_diagonal = np.count_nonzero(symmetric) == np.count_nonzero(symmetric.diagonal())
    values, vectors = (symmetric.diagonal(), np.eye(3)) if is_diagonal else np.linalg.eigh(symmetric)
    ratio = [math.expm1(x) / x if abs(x) > 1e-12 else 1 + x / 2 for x in values.tolist()]
    return (vectors * np.exp(values)) @ vectors.T, (vectors * ratio) @ vectors.T


def deformation(before: Tensor, now: Tensor) -> Tensor:
    """(3, 3) F with ``r_now = r_before @ F`` for a point that moves with the cell."""
    return torch.linalg.solve(before, now)


def smallest_stretch(deformation: Tensor) -> float:
    """How much the deformation shortens the vector that it shortens most; 1 where nothing is strained."""
    return float(torch.linalg.svdvals(deformation)[-1])


def mapped(rows: Tensor, matrix: Tensor) -> Tensor:
    """(n, 3) rows @ matrix, (3, 3), with the same bits wherever in memory the rows lie; a library's product has not."""
    m = matrix.to(rows)
    return rows[:, :1] * m[0] + rows[:, 1:2] * m[1] + rows[:, 2:] * m[2]
