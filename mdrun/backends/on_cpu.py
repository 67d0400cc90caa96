"""Rows by Numba's loops over NumPy's view of the tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from mdrun import cell as geometry
from mdrun.decompose.halo import images_within
from mdrun.decompose.partition import Partition
from mdrun.neighbors.cell_list import NeighborList
from mdrun.neighbors.grid import bounds, make_grid, order_by_bin_and_id


class NumbaBackend:
    """See ``mdrun.backends.base``."""

    name = "numba"
    device = torch.device("cpu")
    looks_late = False

    def neighbor_list(self) -> NeighborList:
        return NeighborList()

    def folded(self, positions: Tensor, cell: Tensor, pbc: Sequence[bool]) -> tuple[Tensor, Tensor]:
        return geometry.folded(positions, cell, pbc)

    def bounds(self, points: Tensor) -> tuple[np.ndarray, np.ndarray]:
        return bounds(points.numpy())

    def order(self, points: Tensor, ids: Tensor, edge: np.ndarray) -> Tensor:
        x = points.numpy()
        grid = make_grid(x, edge)
        return torch.from_numpy(order_by_bin_and_id(x, ids.numpy(), grid.origin, grid.inverse_edge, grid.dims))

    def owners(self, partition: Partition, frac: Tensor) -> Tensor:
        return torch.from_numpy(partition.owners(frac.numpy()))

    def images_within(
        self, frac: Tensor, lo: np.ndarray, hi: np.ndarray, periodic: np.ndarray, is_self: bool
    ) -> tuple[Tensor, Tensor]:
        return images_within(frac.numpy(), lo, hi, periodic, is_self)

    def move_owned(
        self, positions: Tensor, shifts: Tensor, then: Tensor, cell: Tensor, strain: Tensor, packed: Tensor
    ) -> float:
        return _move_owned(
            positions.numpy(), shifts.numpy(), then.numpy(), cell.numpy(), strain.numpy(), packed.numpy()
        )

    def images(self, packed: Tensor, rows: Tensor, shifts: Tensor, cell: Tensor) -> Tensor:
        return torch.from_numpy(_images(packed.numpy(), rows.numpy(), shifts.numpy(), cell.numpy()))

    def to_single(self, packed: Tensor, origin: np.ndarray, single: Tensor) -> None:
        _to_single(packed.numpy(), origin, single.numpy())


@njit(parallel=True, cache=True)
def _move_owned(positions, shifts, then, cell, strain, packed):
    largest = 0.0
    n_bad = 0
    for i in prange(len(positions)):
        r = positions[i]
        moved2 = 0.0
        for d in range(3):
            packed[i, d] = r[d] + shifts[i, 0] * cell[0, d] + shifts[i, 1] * cell[1, d] + shifts[i, 2] * cell[2, d]
            moved = r[d] - (then[i, 0] * strain[0, d] + then[i, 1] * strain[1, d] + then[i, 2] * strain[2, d])
            moved2 += moved * moved
        largest = max(largest, moved2)
        n_bad += not np.isfinite(moved2)
    return np.nan if n_bad else largest


@njit(parallel=True, cache=True)
def _images(packed, rows, shifts, cell):
    out = np.empty((len(rows), 3))
    for k in prange(len(rows)):
        row = packed[rows[k]]
        for d in range(3):
            out[k, d] = row[d] + shifts[k, 0] * cell[0, d] + shifts[k, 1] * cell[1, d] + shifts[k, 2] * cell[2, d]
    return out


@njit(parallel=True, cache=True)
def _to_single(packed, origin, single):
    for i in prange(len(packed)):
        single[i, 0] = packed[i, 0] - origin[0]
        single[i, 1] = packed[i, 1] - origin[1]
        single[i, 2] = packed[i, 2] - origin[2]
        single[i, 3] = packed[i, 3]
