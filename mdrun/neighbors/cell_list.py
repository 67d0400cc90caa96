"""The full neighbour list of the owned rows, in an open frame: a periodic image is just another row.

Bins of half the reach over the padded rows, sorted so that a run of bins along x is one contiguous stretch; then a
branch-free append for each owned row: candidates are always written, the counter advances by the comparison.

Distances are taken in single precision, with a reach that is longer by what rounding may add to one: the list holds
every pair within reach, and perhaps some a hair beyond it.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from mdrun.lanes import LANES, append_near, copy_lanes
from mdrun.neighbors.grid import Grid, make_grid, sort_by_bin

BLOCK = 2  # bins along x that share a gathered copy of their surroundings
ROUND_TO = 8  # row widths are whole vectors
SLACK = 1.05  # growth beyond the longest row, so that a run settles after one
SINGLE_ROUNDING = 4e-7  # of a distance, relative to itself and its coordinates: six times half a last bit
FAR = np.float32(1e18)  # its square is still finite


class NeighborList:
    """The matrix of neighbours, kept between rebuilds.

    Attributes:
        matrix: (n_owned, width) int32 padded rows; row i holds ``counts[i]`` neighbours, then at least up to the end of
            the vector (``LANES``) the number of padded rows: a row that isn't there.
        counts: (n_owned,) int32.
        n_growths: how often a row ran over and the matrix was made wider. A list is never cut short.
    """

    def __init__(self) -> None:
        self.matrix = torch.empty((0, 0), dtype=torch.int32)
        self.counts = torch.empty(0, dtype=torch.int32)
        self.n_growths = 0
        self._storage = np.empty(0, np.int32)
        self._width = ROUND_TO + LANES

    def build(self, positions: Tensor, n_owned: int, reach: float) -> None:
        """List every row within ``reach`` (Å) of each owned one.

        Args:
            positions: (3, n_padded) Å, owned rows first.
        """
        if not n_owned:
            self.matrix, self.counts = torch.empty((0, 0), dtype=torch.int32), torch.empty(0, dtype=torch.int32)
            return
        x = positions.numpy()
        grid = make_grid(x, reach / 2)
        order, starts = sort_by_bin(x, grid.origin, grid.inverse_edge, grid.dims)
        half = grid.dims / grid.inverse_edge / 2
        sorted_x, rows = _in_order(x, order, grid.origin + half)
        reach2 = np.float32((reach + SINGLE_ROUNDING * (reach + half.max())) ** 2)
        counts = np.empty(n_owned, np.int32)
        while True:
            matrix = self._rows(n_owned)
            _fill(sorted_x, rows, starts, grid.dims, stencil(grid, reach), reach2, matrix, counts,
                  numba.get_num_threads())  # fmt: skip
            longest = int(counts.max(initial=0))
            if longest <= self._width - LANES:
                break
            del matrix
            self._width = -(-int(longest * SLACK) // ROUND_TO) * ROUND_TO + LANES
            self.n_growths += 1
        self.matrix, self.counts = torch.from_numpy(matrix), torch.from_numpy(counts)

    def _rows(self, n_owned: int) -> np.ndarray:
        if self._storage.size < n_owned * self._width:
            self.matrix = torch.empty((0, 0), dtype=torch.int32)  # lets the old rows go before the new ones come
            self._storage = np.empty(0, np.int32)
            self._storage = np.empty(int(n_owned * 1.05) * self._width + self._width, np.int32)
        return self._storage[: n_owned * self._width].reshape(n_owned, self._width)


def stencil(grid: Grid, reach: float) -> np.ndarray:
    """(3,) how many bins away along each axis a row within reach may lie."""
    return np.ceil(reach * grid.inverse_edge - 1e-9).astype(np.int64)


@njit(parallel=True, cache=True)
def _in_order(x, order, middle):
    """(3, n + LANES) float32 coordinates from ``middle`` and (n + LANES,) rows, in the order of the bins."""
    n = len(order)
    sorted_x = np.empty((3, n + LANES), np.float32)
    rows = np.empty(n + LANES, np.int32)
    for k in prange(n):
        row = order[k]
        sorted_x[0, k] = x[0, row] - middle[0]
        sorted_x[1, k] = x[1, row] - middle[1]
        sorted_x[2, k] = x[2, row] - middle[2]
        rows[k] = row
    return sorted_x, rows


@njit(parallel=True, cache=True)
def _fill(sorted_x, rows, starts, dims, stencil, reach2, matrix, counts, n_chunks):
    """Rows of the matrix for the owned atoms, a block of ``BLOCK`` bins along x at a time.

    The atoms of a block share one gathered copy of everything near them: few long loops beat many short ones.
    """
    n_owned, width = matrix.shape
    nowhere = len(rows) - LANES
    n_lines = dims[1] * dims[2]
    for chunk in prange(n_chunks):
        room = len(rows) + LANES
        x, y, z = np.empty(room, np.float32), np.empty(room, np.float32), np.empty(room, np.float32)
        near = np.empty(room, np.int32)
        for line in range(chunk * n_lines // n_chunks, (chunk + 1) * n_lines // n_chunks):
            by, bz = line % dims[1], line // dims[1]
            for bx in range(0, dims[0], BLOCK):
                end = min(bx + BLOCK, dims[0])
                first, last = starts[line * dims[0] + bx], starts[line * dims[0] + end]
                if not _owns_any(rows, first, last, n_owned):
                    continue
                x_first, x_last = max(bx - stencil[0], 0), min(end - 1 + stencil[0], dims[0] - 1)
                n_near, own_offset = 0, 0
                for cz in range(max(bz - stencil[2], 0), min(bz + stencil[2], dims[2] - 1) + 1):
                    for cy in range(max(by - stencil[1], 0), min(by + stencil[1], dims[1] - 1) + 1):
                        start = starts[(cz * dims[1] + cy) * dims[0] + x_first]
                        n_run = starts[(cz * dims[1] + cy) * dims[0] + x_last + 1] - start
                        if cz == bz and cy == by:
                            own_offset = n_near - start
                        for k in range(0, n_run, LANES):
                            copy_lanes(sorted_x[0], start + k, x, n_near + k)
                            copy_lanes(sorted_x[1], start + k, y, n_near + k)
                            copy_lanes(sorted_x[2], start + k, z, n_near + k)
                            copy_lanes(rows, start + k, near, n_near + k)
                        n_near += n_run
                for k in range(n_near, n_near + LANES):
                    x[k] = FAR
                for k in range(first, last):
                    i = rows[k]
                    if i >= n_owned:
                        continue
                    own = own_offset + k
                    row, xi, yi, zi = matrix[i], x[own], y[own], z[own]
                    x[own] = FAR  # not its own neighbour
                    count = 0
                    for q in range(0, n_near, LANES):
                        place = min(count, width - LANES)  # a row that runs over is only counted
                        count += append_near(x, y, z, near, q, xi, yi, zi, reach2, row, place)
                    x[own] = xi
                    counts[i] = count
                    place = min(count, width - LANES)
                    for q in range(place, place + LANES):
                        row[q] = nowhere


@njit(cache=True)
def _owns_any(rows, first, last, n_owned):
    for k in range(first, last):  # noqa: SIM110 - Numba compiles loops, not generators
        if rows[k] < n_owned:
            return True
    return False
