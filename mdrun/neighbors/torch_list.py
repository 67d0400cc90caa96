"""The full neighbour list by torch's operations, on any device: the same list as ``cell_list`` makes, in padded rows.

Bins of half the reach; rows sorted by bin, so that what lies near an atom is a few contiguous runs along x. For a chunk
of owned rows at a time, the candidates of all runs stand in one (rows, runs, longest run) block, whose shape is kept
from rebuild to rebuild: the ones within reach are counted through along each row and written to their places.

Distances are taken in single precision, with a reach that is longer by what rounding may add to one: the list holds
every pair within reach, and perhaps some a hair beyond it.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from mdrun.neighbors.cell_list import ROUND_TO, SINGLE_ROUNDING, SLACK, stencil
from mdrun.neighbors.grid import Grid, grid_within

CANDIDATES = {"cpu": 1 << 20, "cuda": 1 << 25}  # of a chunk; a candidate takes 30 bytes


class TorchNeighborList:
    """The matrix of neighbours and the blocks to make it in, kept between rebuilds.

    Attributes:
        matrix: (n_owned, width) int32 padded rows; row i holds ``counts[i]`` neighbours, then the number of padded
            rows: a row that isn't there. The last column never holds a neighbour.
        counts: (n_owned,) int32.
        n_growths: how often a row, a run or the number of rows ran over and more room was made.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.matrix = torch.empty((0, 0), dtype=torch.int32, device=device)
        self.counts = torch.empty(0, dtype=torch.int32, device=device)
        self.n_growths = 0
        self._width = ROUND_TO
        self._run = 0  # room for the longest run of a block
        self._storage = self.matrix.flatten()
        self._block = _Block(0, 0, device)

    def build(self, positions: Tensor, n_owned: int, reach: float) -> None:
        """List every row within ``reach`` (Å) of each owned one.

        Args:
            positions: (3, n_padded) Å, owned rows first.
        """
        if not n_owned:
            self.matrix, self.counts = self._storage[:0].reshape(0, 0), self._storage[:0]
            return
        low, high = (bound.cpu().numpy() for bound in torch.aminmax(positions, dim=1))
        grid = grid_within(low, high, positions.shape[1], reach / 2)
        bins = bins_of(positions, grid)
        keys, order = torch.sort(bin_numbers(bins, grid.dims.tolist()))
        starts = torch.searchsorted(keys, torch.arange(grid.n_bins + 1, device=self._device), out_int32=True)
        half = grid.dims / grid.inverse_edge / 2
        points = (positions - torch.tensor(low + half, device=self._device)[:, None]).float().T.contiguous()
        reach2 = float(np.float32((reach + SINGLE_ROUNDING * (reach + half.max())) ** 2))
        first, last = _runs(bins[:, :n_owned], starts, grid.dims.tolist(), stencil(grid, reach).tolist())
        self._make_room(int((last - first).max()), first.shape[1])
        rows, sorted_points = order.int(), points[order]
        counts = torch.empty(n_owned, dtype=torch.int32, device=self._device)
        while True:
            matrix = self._rows(n_owned).fill_(positions.shape[1])
            for start in range(0, n_owned, self._block.n_rows):
                chunk = slice(start, min(start + self._block.n_rows, n_owned))
                self._block.fill(start, first[chunk], last[chunk], points[chunk], sorted_points, rows, reach2,
                                 matrix[chunk], counts[chunk])  # fmt: skip
            longest = int(counts.max())
            if longest < self._width:
                break
            self._width = -(-int(longest * SLACK + 1) // ROUND_TO) * ROUND_TO
            self.n_growths += 1
        matrix[:, -1] = positions.shape[1]  # where what is no neighbour was written
        self.matrix, self.counts = matrix, counts

    def _make_room(self, longest_run: int, n_runs: int) -> None:
        if longest_run > self._run:
            self._run = -(-int(longest_run * SLACK) // ROUND_TO) * ROUND_TO
            self.n_growths += 1
        if self._block.n_candidates != n_runs * self._run:
            n_rows = max(CANDIDATES[self._device.type] // (n_runs * self._run), 1)
            self._block = _Block(n_rows, n_runs * self._run, self._device)

    def _rows(self, n_owned: int) -> Tensor:
        if self._storage.numel() < n_owned * self._width:
            room = int(n_owned * SLACK) * self._width + self._width
            self._storage = torch.empty(room, dtype=torch.int32, device=self._device)
        return self._storage[: n_owned * self._width].view(n_owned, self._width)


class _Block:
    """Room for the candidates of a chunk of rows."""

    def __init__(self, n_rows: int, n_candidates: int, device: torch.device) -> None:
        self.n_rows, self.n_candidates = n_rows, n_candidates
        shape = (n_rows * n_candidates,)
        self._places = torch.empty(shape, dtype=torch.int64, device=device)
        self._rows, self._counts = (torch.empty(shape, dtype=torch.int32, device=device) for _ in range(2))
        self._near, self._other = (torch.empty(shape, dtype=torch.bool, device=device) for _ in range(2))
        self._offsets = torch.empty((*shape, 3), dtype=torch.float32, device=device)
        self._r2 = torch.empty(shape, dtype=torch.float32, device=device)

    def fill(
        self, start: int, first: Tensor, last: Tensor, own: Tensor, points: Tensor, rows: Tensor, reach2: float,
        matrix: Tensor, counts: Tensor,
    ) -> None:  # fmt: skip
        """The rows of the matrix from ``start`` on.

        Args:
            first, last: (n, n_runs) where the runs begin and end in the order of the bins.
            own: (n, 3) where the chunk's atoms are; ``points`` and ``rows``: everybody, in the order of the bins.
        """
        n, n_runs = first.shape
        size = n * self.n_candidates
        shape = (n, n_runs, self.n_candidates // n_runs)
        places, row, count, near, other, offsets, r2 = (
            room[:size]
            for room in (self._places, self._rows, self._counts, self._near, self._other, self._offsets, self._r2)
        )
        along = torch.arange(shape[2], device=first.device)
        torch.add(first[:, :, None], along, out=places.view(shape))
        torch.lt(places.view(shape), last[:, :, None], out=near.view(shape))
        places.clamp_(max=len(rows) - 1)
        torch.index_select(rows, 0, places, out=row)
        torch.index_select(points, 0, places, out=offsets)
        offsets.view(n, -1, 3).sub_(own[:, None])
        torch.sum(offsets.square_(), dim=1, out=r2)
        near.logical_and_(torch.lt(r2, reach2, out=other))
        mine = torch.arange(start, start + n, dtype=torch.int32, device=first.device)[:, None]
        near.logical_and_(torch.ne(row.view(n, -1), mine, out=other.view(n, -1)).view(-1))
        torch.cumsum(near.view(n, -1), dim=1, dtype=torch.int32, out=count.view(n, -1))
        counts.copy_(count.view(n, -1)[:, -1])
        end = matrix.shape[1] - 1
        # what is not near, or runs over, goes to the last column
        torch.sub(count, 1, out=places)
        places.masked_fill_(near.logical_not_(), end).clamp_(max=end)
        matrix.scatter_(1, places.view(n, -1), row.view(n, -1))


def bins_of(points: Tensor, grid: Grid) -> Tensor:
    """(3, n) int64 the bin of each point (3, n) along each axis."""
    origin, inverse_edge, last = (
        torch.tensor(values, device=points.device)[:, None]
        for values in (grid.origin, grid.inverse_edge, grid.dims - 1)
    )
    return torch.minimum(((points - origin) * inverse_edge).long(), last)


def bin_numbers(bins: Tensor, dims: list[int], bits: int = 0) -> Tensor:
    """(n,) int64, as ``grid.bin_number``."""
    block = bins >> bits << bits
    bx, by, bz = bins - block
    x0, y0, z0 = block
    nx, ny, nz = ((dim - corner).clamp(max=1 << bits) for dim, corner in zip(dims, block, strict=True))
    before = (z0 * dims[1] + nz * y0) * dims[0] + nz * ny * x0
    return before + (bz * ny + by) * nx + bx


def _runs(bins: Tensor, starts: Tensor, dims: list[int], steps: list[int]) -> tuple[Tensor, Tensor]:
    """(n, n_runs) each: where the runs of bins along x around each atom begin and end; empty ones off the grid."""
    bx, by, bz = bins
    left, right = (bx - steps[0]).clamp(min=0), (bx + steps[0]).clamp(max=dims[0] - 1) + 1
    first, last = [], []
    for dz, dy in itertools.product(*(range(-steps[d], steps[d] + 1) for d in (2, 1))):
        y, z = by + dy, bz + dz
        is_inside = (y >= 0) & (y < dims[1]) & (z >= 0) & (z < dims[2])
        line = torch.where(is_inside, z * dims[1] + y, 0) * dims[0]
        first.append(starts[line + left])
        last.append(torch.where(is_inside, starts[line + right], first[-1]))
    return torch.stack(first, dim=1), torch.stack(last, dim=1)
