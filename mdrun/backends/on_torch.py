"""Rows by torch's operations, on the CPU or a GPU. Nothing here is read back to the host but at rebuilds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mdrun.decompose.partition import Partition
from mdrun.neighbors.grid import BLOCK_BITS, grid_within
from mdrun.neighbors.torch_list import TorchNeighborList, bin_numbers, bins_of


class TorchBackend:
    """See ``mdrun.backends.base``."""

    name = "torch"

    def __init__(self, device: torch.device | str, looks_late: bool | None = None) -> None:
        """``looks_late`` by default where the device is no CPU."""
        self.device = torch.device(device)
        self.looks_late = self.device.type != "cpu" if looks_late is None else looks_late
        self._held: dict[str, tuple[Tensor, Tensor]] = {}

    def neighbor_list(self) -> TorchNeighborList:
        return TorchNeighborList(self.device)

    def folded(self, positions: Tensor, cell: Tensor, pbc: Sequence[bool]) -> tuple[Tensor, Tensor]:
        frac = positions @ self._here("inverse", torch.linalg.inv(cell))
        periodic = torch.tensor(pbc, device=self.device)
        shifts = torch.where(periodic, -torch.floor(frac), 0.0)
        # -5e-17 + 1 rounds to 1.0: such an atom is put on the lower face, where its image lies.
        over = periodic & (frac + shifts >= 1)
        return torch.where(over, 0.0, frac + shifts), torch.where(over, shifts - 1, shifts)

    def bounds(self, points: Tensor) -> tuple[np.ndarray, np.ndarray]:
        if not points.shape[1]:
            return np.full(3, np.inf), np.full(3, -np.inf)
        low, high = torch.stack(torch.aminmax(points, dim=1)).cpu().numpy()
        return low, high

    def order(self, points: Tensor, ids: Tensor, edge: np.ndarray) -> Tensor:
        grid = grid_within(*self.bounds(points), points.shape[1], edge)
        keys = bin_numbers(bins_of(points, grid), grid.dims.tolist(), BLOCK_BITS)
        by_id = ids.argsort()
        return by_id[keys[by_id].argsort(stable=True)]

    def owners(self, partition: Partition, frac: Tensor) -> Tensor:
        nodes = torch.zeros(len(frac), dtype=torch.int64, device=self.device)
        if not len(partition.axis):
            return nodes
        axis, cut, lower, upper = (
            torch.from_numpy(values).to(self.device)
            for values in (partition.axis, partition.cut, partition.lower, partition.upper)
        )
        for _ in range(len(partition.axis).bit_length()):  # how deep the tree is, halved at each node
            at = nodes.clamp(min=0)
            is_below = frac.gather(1, axis[at][:, None])[:, 0] < cut[at]
            nodes = torch.where(nodes < 0, nodes, torch.where(is_below, lower[at], upper[at]))
        return -1 - nodes

    def images_within(
        self, frac: Tensor, lo: np.ndarray, hi: np.ndarray, periodic: np.ndarray, is_self: bool
    ) -> tuple[Tensor, Tensor]:
        low, high, wraps = (torch.from_numpy(values).to(self.device) for values in (lo, hi, periodic))
        is_inside = (low <= frac) & (frac <= high)
        first = torch.where(wraps, torch.ceil(low - frac), 0.0)
        last = torch.where(wraps, torch.floor(high - frac), is_inside.to(frac) - 1)
        n_along = (last - first + 1).clamp(min=0).long()
        n_images = n_along.prod(dim=1)
        rows = torch.repeat_interleave(n_images)
        number = torch.arange(len(rows), device=self.device) - (n_images.cumsum(0) - n_images)[rows]
        along = n_along[rows]
        steps = (number // (along[:, 1] * along[:, 2]), number // along[:, 2] % along[:, 1], number % along[:, 2])
        shifts = first[rows] + torch.stack(steps, dim=1)
        if is_self:
            is_image = shifts.any(dim=1)
            rows, shifts = rows[is_image], shifts[is_image]
        return rows, shifts

    def move_owned(
        self, positions: Tensor, shifts: Tensor, then: Tensor, cell: Tensor, strain: Tensor, packed: Tensor
    ) -> Tensor:
        if not len(positions):
            return positions.new_zeros(())
        packed[: len(positions), :3] = positions + shifts @ self._here("cell", cell)
        return (positions - then @ self._here("strain", strain)).square().sum(dim=1).amax()

    def images(self, packed: Tensor, rows: Tensor, shifts: Tensor, cell: Tensor) -> Tensor:
        return packed[rows, :3] + shifts @ self._here("cell", cell)

    def to_single(self, packed: Tensor, origin: np.ndarray, single: Tensor) -> None:
        offset = self._here("origin", torch.from_numpy(np.append(origin, 0.0)))
        single.copy_(packed - offset)

    def _here(self, name: str, small: Tensor) -> Tensor:
        """A few numbers of the host on the device; sent when they have changed, and not at each step."""
        if name not in self._held or not torch.equal(self._held[name][0], small):
            kept = small.clone()
            self._held[name] = (kept, kept.to(self.device, non_blocking=True))
        return self._held[name][1]
