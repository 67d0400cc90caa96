"""Bins over the atoms at hand, and the counting sort that puts atoms of one bin side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit, prange

FEW = 32
BLOCK_BITS = 2  # rows are kept in blocks of 4 x 4 x 4 bins
BINS_PER_ATOM = 4  # memory follows the atoms, not the vacuum between them


@dataclass(frozen=True)
class Grid:
    """Bins of equal size from ``origin`` on; bin number (bz · dims[1] + by) · dims[0] + bx."""

    origin: np.ndarray
    inverse_edge: np.ndarray
    dims: np.ndarray

    @property
    def n_bins(self) -> int:
        return int(self.dims.prod())


def make_grid(positions: np.ndarray, edge: float | np.ndarray) -> Grid:
    """Bins of ``edge`` or, where that would be many more bins than atoms, larger ones.

    Args:
        positions: (3, n) finite; Å or any other coordinates.
        edge: in the same unit, one for all axes or (3,).
    """
    lo, hi = bounds(positions)
    return grid_within(lo, hi, positions.shape[1], edge)


def grid_within(lo: np.ndarray, hi: np.ndarray, n: int, edge: float | np.ndarray) -> Grid:
    """The same for n points between ``lo`` (3,) and ``hi`` (3,)."""
    if n == 0:
        return Grid(np.zeros(3), np.ones(3), np.ones(3, np.int64))
    limit = BINS_PER_ATOM * n + 64
    edges = np.broadcast_to(edge, 3).astype(float)
    while True:
        dims = np.floor((hi - lo) / edges) + 1  # float: a box of 1e9 Å does not overflow
        if dims.prod() <= limit:
            return Grid(lo, 1 / edges, dims.astype(np.int64))
        edges = np.where(dims == dims.max(), edges * 1.3, edges)


@njit(parallel=True, cache=True)
def bounds(positions):
    """(3,) least and (3,) greatest coordinates of (3, n) points; inf and -inf where there are none."""
    x0 = y0 = z0 = np.inf
    x1 = y1 = z1 = -np.inf
    for i in prange(positions.shape[1]):
        x, y, z = positions[0, i], positions[1, i], positions[2, i]
        x0, y0, z0 = min(x0, x), min(y0, y), min(z0, z)
        x1, y1, z1 = max(x1, x), max(y1, y), max(z1, z)
    return np.array([x0, y0, z0]), np.array([x1, y1, z1])


@njit(cache=True)
def bin_number(bx, by, bz, dims, bits):
    """A bin's place in an order by blocks of 2^bits bins a side, and by bin in each; ``bits`` 0 is plainly by bin."""
    x0, y0, z0 = bx >> bits << bits, by >> bits << bits, bz >> bits << bits
    nx, ny, nz = (min(1 << bits, dims[0] - x0), min(1 << bits, dims[1] - y0), min(1 << bits, dims[2] - z0))
    before = (z0 * dims[1] + nz * y0) * dims[0] + nz * ny * x0
    return before + ((bz - z0) * ny + by - y0) * nx + bx - x0


@njit(cache=True)
def sort_by_bin(positions, origin, inverse_edge, dims, bits=0):
    """Order of the atoms by bin number, stable, and where each bin starts: (n,) int32, (n_bins + 1,) int32."""
    n = positions.shape[1]
    bins = np.empty(n, np.int32)
    starts = np.zeros(dims[0] * dims[1] * dims[2] + 1, np.int32)
    for i in range(n):
        bx = min(int((positions[0, i] - origin[0]) * inverse_edge[0]), dims[0] - 1)
        by = min(int((positions[1, i] - origin[1]) * inverse_edge[1]), dims[1] - 1)
        bz = min(int((positions[2, i] - origin[2]) * inverse_edge[2]), dims[2] - 1)
        bins[i] = bin_number(bx, by, bz, dims, bits)
        starts[bins[i] + 1] += 1
    for b in range(len(starts) - 1):
        starts[b + 1] += starts[b]
    cursor = starts[:-1].copy()
    order = np.empty(n, np.int32)
    for i in range(n):
        order[cursor[bins[i]]] = i
        cursor[bins[i]] += 1
    return order, starts


@njit(cache=True)
def order_by_bin_and_id(positions, ids, origin, inverse_edge, dims):
    """(n,) int64 rows by block of bins, by bin, then by id: an order that does not depend on how the rows came to lie.

    What is near an atom then lies in few places of memory, small enough for a processor's first cache.
    """
    order, starts = sort_by_bin(positions, origin, inverse_edge, dims, BLOCK_BITS)
    rows = order.astype(np.int64)
    for b in range(len(starts) - 1):
        members = rows[starts[b] : starts[b + 1]]
        if len(members) > FEW:
            members[:] = members[np.argsort(ids[members])]
            continue
        for k in range(1, len(members)):  # insertion sort: the bins of a liquid hold two or three atoms
            row, place = members[k], k
            while place > 0 and ids[members[place - 1]] > ids[row]:
                members[place] = members[place - 1]
                place -= 1
            members[place] = row
    return rows
