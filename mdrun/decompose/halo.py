"""The halo rule, the plan it gives, and the two linear maps between owned and padded rows.

Rank r receives every image (periodic shift of any owner's atom, its own included) within the ghost width of r's
box. That single rule covers one rank, whose ghosts are its own images; domains thinner than the halo; cutoffs beyond
the cell; diagonal neighbours; skewed and left-handed cells. The box is the tight bound of the atoms that r owns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from mdrun.comm import Comm
from mdrun.exchanges import EXCHANGES

ROUNDING = 1e-10  # fractional: an image exactly at the ghost width is not lost to the last bit


@dataclass(frozen=True)
class HaloPlan:
    """Which owned rows go where until the next rebuild.

    Attributes:
        send_indices: (n_send,) owned rows, sorted by receiving rank.
        send_shifts: (n_send, 3) cell vectors to add for the receiver's image.
        send_sizes, recv_sizes: rows to and from each rank.
    """

    send_indices: Tensor
    send_shifts: Tensor
    send_sizes: list[int]
    recv_sizes: list[int]

    @property
    def n_ghosts(self) -> int:
        return sum(self.recv_sizes)


@dataclass
class HaloMeta:
    """What the last halo exchange produced.

    Attributes:
        n_owned: rows that this rank integrates; they come first.
        n_padded: owned and ghost rows, and after them, where shapes are fixed, rows that mirror nothing.
        send_indices: (sum(send_sizes),) owned rows that other ranks, or this one's own images, mirror.
        send_sizes: rows sent to each rank.
        recv_sizes: rows received from each rank, in rank order: ghost rows are sorted by owner.
        n_spare: of the owned rows, those at the end that are no atoms, where shapes are fixed.
    """

    n_owned: int
    n_padded: int
    send_indices: Tensor
    send_sizes: list[int]
    recv_sizes: list[int]
    n_spare: int = 0


def plan_halo(
    frac: np.ndarray | Tensor,
    boxes: np.ndarray,
    width: np.ndarray,
    pbc: tuple[bool, bool, bool],
    comm: Comm,
    search: Callable[..., tuple[Tensor, Tensor]] | None = None,
) -> HaloPlan:
    """Apply the halo rule.

    Args:
        frac: (n_owned, 3) folded fractional coordinates of this rank's atoms, as ``search`` takes them.
        boxes: (size, 3, 2) tight box of every rank.
        width: (3,) the ghost width in fractional units, ``ghost_width / heights``.
        search: in place of ``images_within``.
    """
    find: Callable[..., tuple[Tensor, Tensor]] = search or images_within
    periodic = np.array(pbc)
    lo, hi = boxes[:, :, 0] - width - ROUNDING, boxes[:, :, 1] + width + ROUNDING
    nothing = find(frac[:0], lo[comm.rank], hi[comm.rank], periodic, False)
    indices, shifts = ([none] for none in nothing)
    send_sizes = [0] * comm.size
    for rank in _within_reach(boxes[comm.rank], lo, hi, periodic).tolist():
        found, moved = find(frac, lo[rank], hi[rank], periodic, rank == comm.rank)
        send_sizes[rank] = len(found)
        indices.append(found)
        shifts.append(moved)
    return HaloPlan(
        send_indices=torch.cat(indices),
        send_shifts=torch.cat(shifts),
        send_sizes=send_sizes,
        recv_sizes=comm.exchange_sizes(send_sizes),
    )


def _within_reach(own: np.ndarray, lo: np.ndarray, hi: np.ndarray, periodic: np.ndarray) -> np.ndarray:
    """Ranks in whose [lo, hi] (size, 3) an image of something in ``own`` (3, 2) may lie, ascending."""
    if not np.isfinite(own).all():
        return np.empty(0, np.int64)  # this rank owns nothing
    owners = np.flatnonzero(np.isfinite(lo).all(axis=1))
    lo, hi = lo[owners], hi[owners]
    spanned = np.ceil(lo - own[:, 1]) <= np.floor(hi - own[:, 0])
    overlaps = (own[:, 0] <= hi) & (own[:, 1] >= lo)
    return owners[np.where(periodic, spanned, overlaps).all(axis=1)]


def images_within(
    frac: np.ndarray, lo: np.ndarray, hi: np.ndarray, periodic: np.ndarray, is_self: bool
) -> tuple[Tensor, Tensor]:
    """Rows (n,) int64 and shifts (n, 3) float64 of every image of ``frac`` in [lo, hi], the atoms themselves left out
    where ``is_self``."""
    rows, shifts = _images_within(frac, lo, hi, periodic, is_self, numba.get_num_threads())
    return torch.from_numpy(rows), torch.from_numpy(shifts)


@njit(parallel=True, cache=True)
def _images_within(frac, lo, hi, periodic, is_self, n_chunks):
    n = len(frac)
    starts = np.zeros(n_chunks + 1, np.int64)
    for chunk in prange(n_chunks):
        count = 0
        for i in range(chunk * n // n_chunks, (chunk + 1) * n // n_chunks):
            (a0, a1), (b0, b1), (c0, c1) = _shifts_within(frac[i], lo, hi, periodic)
            count += max(a1 - a0, 0) * max(b1 - b0, 0) * max(c1 - c0, 0)
            if is_self and a0 <= 0 < a1 and b0 <= 0 < b1 and c0 <= 0 < c1:
                count -= 1
        starts[chunk + 1] = count
    starts = np.cumsum(starts)
    indices, shifts = np.empty(starts[-1], np.int64), np.empty((starts[-1], 3))
    for chunk in prange(n_chunks):
        place = starts[chunk]
        for i in range(chunk * n // n_chunks, (chunk + 1) * n // n_chunks):
            (a0, a1), (b0, b1), (c0, c1) = _shifts_within(frac[i], lo, hi, periodic)
            for a in range(a0, a1):
                for b in range(b0, b1):
                    for c in range(c0, c1):
                        if is_self and a == 0 and b == 0 and c == 0:
                            continue
                        indices[place] = i
                        shifts[place, 0], shifts[place, 1], shifts[place, 2] = a, b, c
                        place += 1
    return indices, shifts


@njit(cache=True)
def _shifts_within(point, lo, hi, periodic):
    """For each axis the half-open range of whole numbers that bring a point into [lo, hi]; 0 alone where it is open."""
    return (
        _axis_shifts(point[0], lo[0], hi[0], periodic[0]),
        _axis_shifts(point[1], lo[1], hi[1], periodic[1]),
        _axis_shifts(point[2], lo[2], hi[2], periodic[2]),
    )


@njit(cache=True)
def _axis_shifts(f, lo, hi, is_periodic):
    if is_periodic:
        return np.int64(np.ceil(lo - f)), np.int64(np.floor(hi - f)) + 1
    return np.int64(0), np.int64(1 if lo <= f <= hi else 0)


def ghost_rows(owned: Tensor, plan: HaloPlan | HaloMeta, comm: Comm) -> Tensor:
    """(n_ghosts, ...) the rows that this rank's ghosts mirror, given (n_owned, ...) of its own."""
    return comm.exchange(owned[plan.send_indices], plan.send_sizes, plan.recv_sizes)


class _Refresh(torch.autograd.Function):
    """Owned rows → padded rows, each ghost a copy of its owner. The adjoint is ``_Fold``."""

    @staticmethod
    def forward(ctx, owned: Tensor, meta: HaloMeta, comm: Comm, name: str | None) -> Tensor:
        ctx.meta, ctx.comm, ctx.name = meta, comm, name
        with EXCHANGES.counted(name, comm):
            ghosts = ghost_rows(owned, meta, comm)
        n_spare = meta.n_padded - len(owned) - len(ghosts)
        return torch.cat([owned, ghosts, *([owned.new_zeros((n_spare, *owned.shape[1:]))] if n_spare else [])])

    @staticmethod
    def backward(ctx, *grads):
        return _Fold.apply(grads[0], ctx.meta, ctx.comm, ctx.name), None, None, None


class _Fold(torch.autograd.Function):
    """Padded rows → owned rows, each the sum of itself and of its ghosts everywhere. The adjoint is ``_Refresh``."""

    @staticmethod
    def forward(ctx, padded: Tensor, meta: HaloMeta, comm: Comm, name: str | None) -> Tensor:
        ctx.meta, ctx.comm, ctx.name = meta, comm, name
        ghosts = padded[meta.n_owned : meta.n_owned + sum(meta.recv_sizes)]
        with EXCHANGES.counted(name, comm):
            home = comm.exchange(ghosts, meta.recv_sizes, meta.send_sizes)
        return padded[: meta.n_owned].index_add(0, meta.send_indices, home)

    @staticmethod
    def backward(ctx, *grads):
        return _Refresh.apply(grads[0], ctx.meta, ctx.comm, ctx.name), None, None, None


def refresh(owned: Tensor, meta: HaloMeta, comm: Comm, name: str | None = None) -> Tensor:
    """(n_padded, ...) from (n_owned, ...), differentiable any number of times; ``name`` as in ``EXCHANGES``."""
    return _Refresh.apply(owned, meta, comm, name)


def fold(padded: Tensor, meta: HaloMeta, comm: Comm, name: str | None = None) -> Tensor:
    """(n_owned, ...) from (n_padded, ...), differentiable any number of times; ``name`` as in ``EXCHANGES``."""
    return _Fold.apply(padded, meta, comm, name)
