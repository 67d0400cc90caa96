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
        grid = make_grid(x, reach / 2)
        order, starts = sort_by_bin(x, grid.origin, grid.inverse_edge, grid.dims)
        stencil = np.ceil(reach * grid.inverse_edge - 1e-9).astype(np.int64)
        sorted_x = x[:, order]
        counts = np.empty(n_owned, np.int32)
        while True:
            matrix = self._rows(n_owned)
            _fill(
                x, sorted_x, order, starts, grid.origin, grid.inverse_edge, grid.dims, stencil,
                reach * reach, matrix, counts, numba.get_num_threads(),
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
def _fill(x, xs, order, starts, origin, inverse_edge, dims, stencil, reach2, matrix, counts, n_chunks):
    n_owned, width = matrix.shape
    for chunk in prange(n_chunks):
        row = np.empty(len(order) + 1, np.int32)
        for i in range(chunk * n_owned // n_chunks, (chunk + 1) * n_owned // n_chunks):
            xi, yi, zi = x[0, i], x[1, i], x[2, i]
            bx = min(int((xi - origin[0]) * inverse_edge[0]), dims[0] - 1)
            by = min(int((yi - origin[1]) * inverse_edge[1]), dims[1] - 1)
            bz = min(int((zi - origin[2]) * inverse_edge[2]), dims[2] - 1)
            x_first, x_last = max(bx - stencil[0], 0), min(bx + stencil[0], dims[0] - 1)
            count = 0
            for cz in range(max(bz - stencil[2], 0), min(bz + stencil[2], dims[2] - 1) + 1):
                for cy in range(max(by - stencil[1], 0), min(by + stencil[1], dims[1] - 1) + 1):
                    line = (cz * dims[1] + cy) * dims[0]
                    for k in range(starts[line + x_first], starts[line + x_last + 1]):
                        dx, dy, dz = xs[0, k] - xi, xs[1, k] - yi, xs[2, k] - zi
                        # Written always, kept only if near: a branch here costs more than the wasted store.
                        row[count] = order[k]
                        count += (dx * dx + dy * dy + dz * dz < reach2) & (order[k] != i)
            counts[i] = count
            kept = min(count, width)
            matrix[i, :kept] = row[:kept]
