"""The full neighbour list of the owned rows, in an open frame: a periodic image is just another row.

Bins of half the reach over the padded rows, sorted so that a run of bins along x is one contiguous stretch; then a
branch-free append for each owned row: the candidate is always written, the counter advances by the comparison.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from mdrun.neighbors.grid import make_grid, sort_by_bin

BLOCK = 2  # bins along x that share a gathered copy of their surroundings
ROUND_TO = 8  # row widths are whole vectors
SLACK = 1.15  # growth beyond the longest row, so that a run settles after one


class NeighborList:
    """The matrix of neighbours, kept between rebuilds.

    Attributes:
        matrix: (n_owned, width) int32 padded rows; row i holds ``counts[i]`` valid entries.
        counts: (n_owned,) int32.
        n_growths: how often a row ran over and the matrix was made wider. A list is never cut short.
    """

    def __init__(self) -> None:
        self.matrix = torch.empty((0, 0), dtype=torch.int32)
        self.counts = torch.empty(0, dtype=torch.int32)
        self.n_growths = 0
        self._storage = np.empty(0, np.int32)
        self._width = ROUND_TO

    def build(self, positions: Tensor, n_owned: int, reach: float) -> None:
        """List every row within ``reach`` (Å) of each owned one.

        Args:
            positions: (3, n_padded) Å, owned rows first.
        """
        x = positions.numpy()
        if not n_owned:
            self.matrix, self.counts = torch.empty((0, 0), dtype=torch.int32), torch.empty(0, dtype=torch.int32)
            return
        grid = make_grid(x, reach / 2)
        order, starts = sort_by_bin(x, grid.origin, grid.inverse_edge, grid.dims)
        stencil = np.ceil(reach * grid.inverse_edge - 1e-9).astype(np.int64)
        sorted_x = x[:, order]
        counts = np.empty(n_owned, np.int32)
        while True:
            matrix = self._rows(n_owned)
            _fill(
                sorted_x, order, starts, grid.dims, stencil, reach * reach, matrix, counts,
                numba.get_num_threads(),
            )  # fmt: skip
            longest = int(counts.max(initial=0))
            if longest <= self._width:
                break
            self._width = -(-int(longest * SLACK) // ROUND_TO) * ROUND_TO
            self.n_growths += 1
        self.matrix, self.counts = torch.from_numpy(matrix), torch.from_numpy(counts)

    def _rows(self, n_owned: int) -> np.ndarray:
        if self._storage.size < n_owned * self._width:
            self._storage = np.empty(int(n_owned * 1.05) * self._width + self._width, np.int32)
        return self._storage[: n_owned * self._width].reshape(n_owned, self._width)


@njit(parallel=True, cache=True, fastmath=True)
def _fill(sorted_x, order, starts, dims, stencil, reach2, matrix, counts, n_chunks):
    """Rows of the matrix for the owned atoms, a block of ``BLOCK`` bins along x at a time.

    The atoms of a block share one gathered copy of everything near them: long plain loops over it, which the compiler
    turns into vectors, beat short ones over each bin.
    """
    n_owned, width = matrix.shape
    n_lines = dims[1] * dims[2]
    for chunk in prange(n_chunks):
        near = np.empty((3, len(order)))
        rows = np.empty(len(order), np.int32)
        r2 = np.empty(len(order))
        row = np.empty(len(order) + 1, np.int32)
        for line in range(chunk * n_lines // n_chunks, (chunk + 1) * n_lines // n_chunks):
            by, bz = line % dims[1], line // dims[1]
            for bx in range(0, dims[0], BLOCK):
                end = min(bx + BLOCK, dims[0])
                first, last = starts[line * dims[0] + bx], starts[line * dims[0] + end]
                if not _owns_any(order, first, last, n_owned):
                    continue
                x_first, x_last = max(bx - stencil[0], 0), min(end - 1 + stencil[0], dims[0] - 1)
                n_near, own_offset = 0, 0
                for cz in range(max(bz - stencil[2], 0), min(bz + stencil[2], dims[2] - 1) + 1):
                    for cy in range(max(by - stencil[1], 0), min(by + stencil[1], dims[1] - 1) + 1):
                        start = starts[(cz * dims[1] + cy) * dims[0] + x_first]
                        n_run = starts[(cz * dims[1] + cy) * dims[0] + x_last + 1] - start
                        if cz == bz and cy == by:
                            own_offset = n_near - start
                        for k in range(n_run):
                            near[0, n_near + k] = sorted_x[0, start + k]
                            near[1, n_near + k] = sorted_x[1, start + k]
                            near[2, n_near + k] = sorted_x[2, start + k]
                            rows[n_near + k] = order[start + k]
                        n_near += n_run
                for k in range(first, last):
                    i = order[k]
                    if i >= n_owned:
                        continue
                    xi, yi, zi = sorted_x[0, k], sorted_x[1, k], sorted_x[2, k]
                    for q in range(n_near):
                        dx, dy, dz = near[0, q] - xi, near[1, q] - yi, near[2, q] - zi
                        r2[q] = dx * dx + dy * dy + dz * dz
                    r2[own_offset + k] = 2.0 * reach2  # not its own neighbour
                    count = 0
                    for q in range(n_near):
                        # Written always, kept only if near: a branch here costs more than the wasted store.
                        row[count] = rows[q]
                        count += r2[q] < reach2
                    counts[i] = count
                    kept = min(count, width)
                    matrix[i, :kept] = row[:kept]


@njit(cache=True)
def _owns_any(order, first, last, n_owned):
    for k in range(first, last):  # noqa: SIM110 - Numba compiles loops, not generators
        if order[k] < n_owned:
            return True
    return False
