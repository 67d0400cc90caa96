"""What a domain asks of whoever handles its rows: Numba's loops on the CPU, or torch's operations on any device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from mdrun.decompose.partition import Partition


class RowList(Protocol):
    """A full neighbour list, kept between rebuilds.

    Attributes:
        matrix: (n_owned, width) int32 padded rows; row i holds ``counts[i]`` neighbours, then the number of padded
            rows: a row that isn't there.
        counts: (n_owned,) int32.
        n_growths: how often it ran out of room, which was then made. A list is never cut short.
    """

    matrix: Tensor
    counts: Tensor
    n_growths: int

    def build(self, positions: Tensor, n_owned: int, reach: float) -> None:
        """List every row of ``positions`` (3, n_padded) within ``reach`` (Å) of each owned one."""
        ...


class Backend(Protocol):
    """Per-row arrays are tensors on ``device``; cells (3, 3), widths and boxes stay on the host.

    Attributes:
        looks_late: what a step found (atoms that moved far, forces that are not finite) is read when the next step has
            begun: the device then has work, and is not waited for.
    """

    name: str
    device: torch.device
    looks_late: bool

    def neighbor_list(self) -> RowList:
        """An empty one."""
        ...

    def folded(self, positions: Tensor, cell: Tensor, pbc: Sequence[bool]) -> tuple[Tensor, Tensor]:
        """As ``mdrun.cell.folded``."""
        ...

    def bounds(self, points: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """(3,) least and (3,) greatest coordinates of (3, n) points; inf and -inf where there are none."""
        ...

    def order(self, points: Tensor, ids: Tensor, edge: np.ndarray) -> Tensor:
        """(n,) int64, of (3, n) points: rows of one place in space together, whatever order they came in."""
        ...

    def owners(self, partition: Partition, frac: Tensor) -> Tensor:
        """(n,) int64 rank of each point (n, 3)."""
        ...

    def images_within(
        self, frac: Tensor, lo: np.ndarray, hi: np.ndarray, periodic: np.ndarray, is_self: bool
    ) -> tuple[Tensor, Tensor]:
        """As ``mdrun.decompose.halo.images_within``."""
        ...

    def move_owned(
        self, positions: Tensor, shifts: Tensor, then: Tensor, cell: Tensor, strain: Tensor, packed: Tensor
    ) -> float | Tensor:
        """Write wrapped owned positions into ``packed``; the largest squared displacement (Å²) beside the strain.

        NaN if any displacement is. A tensor is not read here, since a device would have to finish its work for that.
        """
        ...

    def images(self, packed: Tensor, rows: Tensor, shifts: Tensor, cell: Tensor) -> Tensor:
        """(n, 3) positions of the images that other boxes see: the owner's plus whole cell vectors, as they are now."""
        ...

    def to_single(self, packed: Tensor, origin: np.ndarray, single: Tensor) -> None:
        """Write ``packed`` into the float32 ``single``, coordinates relative to ``origin``."""
        ...
