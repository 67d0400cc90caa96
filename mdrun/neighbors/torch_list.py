"""The full neighbour list by torch's operations, on any device: the same list as ``cell_list`` makes, in padded rows.

Bins of half the reach; rows sorted by bin, so that what lies near an atom is a few contiguous runs along x. For a chunk
of owned rows at a time, the candidates of all runs stand in one (rows, runs, longest run) block, whose shape is kept
from rebuild to rebuild: the ones within reach are counted through along each row and written to their places.

Every array with a number for each row, bin or candidate lies in room that is kept; only sorting takes its own.

Distances are taken in single precision, with a reach that is longer by what rounding may add to one: the list holds
every pair within reach, and perhaps some a hair beyond it.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch import Tensor

from mdrun.neighbors.cell_list import ROUND_TO, SINGLE_ROUNDING, SLACK, stencil
from mdrun.neighbors.grid import Grid, grid_within

CANDIDATES = {"cpu": 1 << 20, "cuda": 1 << 25}  # of a chunk; a candidate takes 30 bytes


class Rooms:
    """Tensors by name, made with slack and kept. What one holds is left over from its last use."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._rooms: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int, dtype: torch.dtype) -> Tensor:
        """The room ``name`` in a shape."""
        size = math.prod(shape)
        if name not in self._rooms or self._rooms[name].numel() < size:
            self._rooms.pop(name, None)  # before the larger one is made: there may not be memory for both
            self._rooms[name] = torch.empty(int(size * SLACK), dtype=dtype, device=self._device)
        return self._rooms[name][:size].view(shape)


class TorchNeighborList:
    """The matrix of neighbours and the room to make it in, kept between rebuilds.

    Attributes:
        matrix: (n_owned, width) int32 padded rows; row i holds ``counts[i]`` neighbours, then the number of padded
            rows: a row that isn't there. The last column never holds a neighbour.
        counts: (n_owned,) int32.
        n_growths: how often a row or a run ran over and more room was made.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._rooms = Rooms(device)
        self.matrix = self._rooms.take("matrix", 0, 0, dtype=torch.int32)
        self.counts = self._rooms.take("counts", 0, dtype=torch.int32)
        self.n_growths = 0
        self._width = ROUND_TO
        self._run = 0  # room for the longest run of a block

    def build(self, positions: Tensor, n_owned: int, reach: float) -> None:
        """List every row within ``reach`` (Å) of each owned one.

        Args:
            positions: (3, n_padded) Å, owned rows first.
        """
        if not n_owned:
            self.matrix, self.counts = self.matrix[:0, :0], self.counts[:0]
            return
        low, high = (bound.cpu().numpy() for bound in torch.aminmax(positions, dim=1))
        grid = grid_within(low, high, positions.shape[1], reach / 2)
        half = grid.dims / grid.inverse_edge / 2
        reach2 = float(np.float32((reach + SINGLE_ROUNDING * (reach + half.max())) ** 2))
        order = _Order(positions, grid, low + half, stencil(grid, reach).tolist(), self._rooms)
        if order.longest_run > self._run:
            self._run = -(-int(order.longest_run * SLACK) // ROUND_TO) * ROUND_TO
            self.n_growths += 1
        n_rows = max(CANDIDATES[self._device.type] // (order.n_runs * self._run), 1)
        self.counts = self._rooms.take("counts", n_owned, dtype=torch.int32)
        while True:
            self.matrix = self._rooms.take("matrix", n_owned, self._width, dtype=torch.int32)
            self.matrix.fill_(positions.shape[1])
            for start in range(0, n_owned, n_rows):
                rows = slice(start, min(start + n_rows, n_owned))
                order.append(rows, self._run, reach2, self.matrix[rows], self.counts[rows])
            longest = int(self.counts.max())
            if longest < self._width:
                break
            self._width = -(-int(longest * SLACK + 1) // ROUND_TO) * ROUND_TO
            self.matrix = self.matrix.new_empty((0, 0))  # lets the old rows go before the new ones come
            self.n_growths += 1
        self.matrix[:, -1] = positions.shape[1]  # where what is no neighbour was written


class _Order:
    """Every row by bin, and what lies around a bin: runs of bins along x, in which rows follow each other.

    Attributes:
        longest_run: number of rows of the longest of all.
        n_runs: around each bin.
    """

    def __init__(self, positions: Tensor, grid: Grid, middle: np.ndarray, steps: list[int], rooms: Rooms) -> None:
        self._rooms, self._dims, self._steps = rooms, grid.dims.tolist(), steps
        n, n_bins = positions.shape[1], grid.n_bins
        nx, ny, _ = self._dims
        self._bins = bins_of(positions, grid, rooms)
        keys = torch.mul(self._bins[2], ny, out=rooms.take("keys", n, dtype=torch.int64))
        keys.add_(self._bins[1]).mul_(nx).add_(self._bins[0])
        by_bin = tuple(rooms.take(name, n, dtype=torch.int64) for name in ("sorted keys", "order"))
        torch.sort(keys, out=by_bin)
        numbers = torch.arange(n_bins + 1, out=rooms.take("bin numbers", n_bins + 1, dtype=torch.int64))
        self._starts = torch.searchsorted(by_bin[0], numbers, out=rooms.take("starts", n_bins + 1, dtype=torch.int64))
        offsets = rooms.take("scaled", 3, n, dtype=torch.float64)
        torch.sub(positions, torch.from_numpy(middle).to(positions.device)[:, None], out=offsets)
        self._points = rooms.take("points", n, 3, dtype=torch.float32).copy_(offsets.T)
        self._sorted_points = rooms.take("sorted points", n, 3, dtype=torch.float32)
        torch.index_select(self._points, 0, by_bin[1], out=self._sorted_points)
        self._rows = rooms.take("rows", n, dtype=torch.int32).copy_(by_bin[1])
        lines = list(itertools.product(*(range(-steps[d], steps[d] + 1) for d in (2, 1))))
        self._dz, self._dy = torch.tensor(lines, device=positions.device).T
        self.n_runs = len(lines)
        self.longest_run = self._longest(numbers[:-1])

    def _longest(self, bins: Tensor) -> int:
        nx, step = self._dims[0], self._steps[0]
        x, at, first, last = (
            self._rooms.take(name, len(bins), dtype=torch.int64)
            for name in ("bin x", "bin at", "run first", "run last")
        )
        torch.remainder(bins, nx, out=x)
        torch.sub(bins, torch.clamp(x, max=step, out=at), out=at)
        torch.index_select(self._starts, 0, at, out=first)
        torch.sub(bins, x, out=at).add_(x.add_(step + 1).clamp_(max=nx))
        torch.index_select(self._starts, 0, at, out=last)
        return int(last.sub_(first).max())

    def _runs(self, chunk: slice) -> tuple[Tensor, Tensor]:
        """(n, n_runs) each: where the runs around the rows of a chunk begin and end; empty ones off the grid."""
        nx, ny, nz = self._dims
        bx, by, bz = self._bins[:, chunk, None]
        shape = (len(bx), self.n_runs)
        line, inside, at, first, last = (
            self._rooms.take(name, *shape, dtype=torch.int64) for name in ("line", "inside", "at", "first", "last")
        )
        is_off, is_off_too = (self._rooms.take(name, *shape, dtype=torch.bool) for name in ("off z", "off y"))
        torch.add(bz, self._dz, out=at)
        torch.ne(at, torch.clamp(at, 0, nz - 1, out=line), out=is_off)
        torch.add(by, self._dy, out=at)
        torch.ne(at, torch.clamp(at, 0, ny - 1, out=inside), out=is_off_too)
        line.mul_(ny).add_(inside).mul_(nx)
        left, right = (self._rooms.take(name, len(bx), 1, dtype=torch.int64) for name in ("left", "right"))
        torch.sub(bx, self._steps[0], out=left).clamp_(min=0)
        torch.add(bx, self._steps[0] + 1, out=right).clamp_(max=nx)
        for edge, found in ((left, first), (right, last)):
            torch.add(line, edge, out=at)
            torch.index_select(self._starts, 0, at.view(-1), out=found.view(-1))
        torch.where(is_off.logical_or_(is_off_too), first, last, out=last)
        return first, last

    def append(self, chunk: slice, longest_run: int, reach2: float, matrix: Tensor, counts: Tensor) -> None:
        """Write the neighbours of a chunk of rows into its part of the matrix, and how many there are.

        Args:
            longest_run: for how many rows of each run there is room.
        """
        first, last = self._runs(chunk)
        n, shape = len(first), (len(first), self.n_runs, longest_run)
        size = math.prod(shape)

        def room(name: str, dtype: torch.dtype) -> Tensor:
            return self._rooms.take(name, n, size // n, dtype=dtype)

        places, row, count = room("places", torch.int64), room("row", torch.int32), room("count", torch.int32)
        near, other, r2 = room("near", torch.bool), room("other", torch.bool), room("r2", torch.float32)
        offsets = self._rooms.take("offsets", size, 3, dtype=torch.float32)
        along = torch.arange(longest_run, out=self._rooms.take("along", longest_run, dtype=torch.int64))
        torch.add(first[:, :, None], along, out=places.view(shape))
        torch.lt(places.view(shape), last[:, :, None], out=near.view(shape))
        places.clamp_(max=len(self._rows) - 1)
        torch.index_select(self._rows, 0, places.view(-1), out=row.view(-1))
        torch.index_select(self._sorted_points, 0, places.view(-1), out=offsets)
        offsets.view(n, -1, 3).sub_(self._points[chunk, None])
        torch.sum(offsets.square_(), dim=1, out=r2.view(-1))
        near.logical_and_(torch.lt(r2, reach2, out=other))
        mine = self._rooms.take("mine", n, dtype=torch.int32)
        torch.arange(chunk.start, chunk.stop, out=mine)
        near.logical_and_(torch.ne(row, mine[:, None], out=other))
        count.copy_(near).cumsum_(dim=1)
        counts.copy_(count[:, -1])
        end = matrix.shape[1] - 1
        # what is not near, or runs over, goes to the last column
        places.copy_(count).sub_(1).masked_fill_(near.logical_not_(), end).clamp_(max=end)
        matrix.scatter_(1, places, row)


def bins_of(points: Tensor, grid: Grid, rooms: Rooms | None = None) -> Tensor:
    """(3, n) int64 the bin of each point (3, n) along each axis."""
    rooms = rooms or Rooms(points.device)
    origin, inverse_edge, last = (
        torch.tensor(values, device=points.device)[:, None]
        for values in (grid.origin, grid.inverse_edge, grid.dims - 1)
    )
    scaled = torch.sub(points, origin, out=rooms.take("scaled", *points.shape, dtype=torch.float64))
    bins = rooms.take("bins", *points.shape, dtype=torch.int64).copy_(scaled.mul_(inverse_edge))
    return torch.minimum(bins, last, out=bins)


def bin_numbers(bins: Tensor, dims: list[int], bits: int) -> Tensor:
    """(n,) int64, as ``grid.bin_number``."""
    block = bins >> bits << bits
    bx, by, bz = bins - block
    x0, y0, z0 = block
    nx, ny, nz = ((dim - corner).clamp(max=1 << bits) for dim, corner in zip(dims, block, strict=True))
    before = (z0 * dims[1] + nz * y0) * dims[0] + nz * ny * x0
    return before + (bz * ny + by) * nx + bx
