"""The halo rule, the plan it gives, and the two linear maps between owned and padded rows.

Rank r receives every image (periodic shift of any owner's atom, its own included) within the ghost width of r's
box. That single rule covers one rank, whose ghosts are its own images; domains thinner than the halo; cutoffs beyond
the cell; diagonal neighbours; skewed and left-handed cells. The box is the tight bound of the atoms that r owns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numba import njit
from torch import Tensor

from mdrun.comm import Comm
from mdrun.neighbors.grid import bounds

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
        n_padded: owned and ghost rows.
        send_indices: (sum(send_sizes),) owned rows that other ranks, or this one's own images, mirror.
        send_sizes: rows sent to each rank.
        recv_sizes: rows received from each rank, in rank order: ghost rows are sorted by owner.
    """

    n_owned: int
    n_padded: int
    send_indices: Tensor
    send_sizes: list[int]
    recv_sizes: list[int]


def tight_box(frac: np.ndarray) -> np.ndarray:
    """(3, 2) bounds of (n, 3) points; an inverted infinite box, near nothing, where there are none."""
    return np.stack(bounds(frac.T), axis=1)


def plan_halo(
    frac: np.ndarray, boxes: np.ndarray, width: np.ndarray, pbc: tuple[bool, bool, bool], comm: Comm
) -> HaloPlan:
    """Apply the halo rule.

    Args:
        frac: (n_owned, 3) folded fractional coordinates of this rank's atoms.
        boxes: (size, 3, 2) tight box of every rank.
        width: (3,) the ghost width in fractional units, ``ghost_width / heights``.
    """
    own = tight_box(frac)
    periodic = np.array(pbc)
    indices, shifts = [], []
    for rank in range(comm.size):
        lo = boxes[rank, :, 0] - width - ROUNDING
        hi = boxes[rank, :, 1] + width + ROUNDING
        if _is_out_of_reach(own, lo, hi, periodic):
            found, moved = np.empty(0, np.int64), np.empty((0, 3))
        else:
            found, moved = _images_within(frac, lo, hi, periodic, rank == comm.rank)
        indices.append(found)
        shifts.append(moved)
    send_sizes = [len(found) for found in indices]
    return HaloPlan(
        send_indices=torch.from_numpy(np.concatenate(indices)),
        send_shifts=torch.from_numpy(np.concatenate(shifts)),
        send_sizes=send_sizes,
        recv_sizes=comm.exchange_sizes(send_sizes),
    )


def _is_out_of_reach(own: np.ndarray, lo: np.ndarray, hi: np.ndarray, periodic: np.ndarray) -> bool:
    """True where no image of anything in ``own`` can lie in [lo, hi]."""
    if not (np.isfinite(own).all() and np.isfinite(lo).all()):
        return True  # one of the two owns nothing
    first, last = np.ceil(lo - own[:, 1]), np.floor(hi - own[:, 0])
    apart = np.where(periodic, first > last, (own[:, 0] > hi) | (own[:, 1] < lo))
    return bool(apart.any())


@njit(cache=True)
def _images_within(frac, lo, hi, periodic, is_self):
    """Rows and shifts of every image of ``frac`` in [lo, hi], the atoms themselves left out where ``is_self``."""
    n_found = 0
    indices = np.empty(0, np.int64)
    shifts = np.empty((0, 3))
    first = np.empty(3, np.int64)
    last = np.empty(3, np.int64)
    for fill in (False, True):  # count, then write
        if fill:
            indices = np.empty(n_found, np.int64)
            shifts = np.empty((n_found, 3))
            n_found = 0
        for i in range(len(frac)):
            for d in range(3):
                if periodic[d]:
                    first[d] = np.int64(np.ceil(lo[d] - frac[i, d]))
                    last[d] = np.int64(np.floor(hi[d] - frac[i, d]))
                else:
                    first[d] = 0
                    last[d] = 0 if lo[d] <= frac[i, d] <= hi[d] else -1
            for a in range(first[0], last[0] + 1):
                for b in range(first[1], last[1] + 1):
                    for c in range(first[2], last[2] + 1):
                        if is_self and a == 0 and b == 0 and c == 0:
                            continue
                        if fill:
                            indices[n_found] = i
                            shifts[n_found, 0] = a
                            shifts[n_found, 1] = b
                            shifts[n_found, 2] = c
                        n_found += 1
    return indices, shifts


def ghost_rows(owned: Tensor, plan: HaloPlan | HaloMeta, comm: Comm) -> Tensor:
    """(n_ghosts, ...) the rows that this rank's ghosts mirror, given (n_owned, ...) of its own."""
    return comm.exchange(owned[plan.send_indices], plan.send_sizes, plan.recv_sizes)


class _Refresh(torch.autograd.Function):
    """Owned rows → padded rows, each ghost a copy of its owner. The adjoint is ``_Fold``."""

    @staticmethod
    def forward(ctx, owned: Tensor, meta: HaloMeta, comm: Comm) -> Tensor:
        ctx.meta, ctx.comm = meta, comm
        return torch.cat([owned, ghost_rows(owned, meta, comm)])

    @staticmethod
    def backward(ctx, *grads):
        return _Fold.apply(grads[0], ctx.meta, ctx.comm), None, None


class _Fold(torch.autograd.Function):
    """Padded rows → owned rows, each the sum of itself and of its ghosts everywhere. The adjoint is ``_Refresh``."""

    @staticmethod
    def forward(ctx, padded: Tensor, meta: HaloMeta, comm: Comm) -> Tensor:
        ctx.meta, ctx.comm = meta, comm
        home = comm.exchange(padded[meta.n_owned :], meta.recv_sizes, meta.send_sizes)
        return padded[: meta.n_owned].index_add(0, meta.send_indices, home)

    @staticmethod
    def backward(ctx, *grads):
        return _Refresh.apply(grads[0], ctx.meta, ctx.comm), None, None


def refresh(owned: Tensor, meta: HaloMeta, comm: Comm) -> Tensor:
    """(n_padded, ...) from (n_owned, ...), differentiable any number of times."""
    return _Refresh.apply(owned, meta, comm)


def fold(padded: Tensor, meta: HaloMeta, comm: Comm) -> Tensor:
    """(n_owned, ...) from (n_padded, ...), differentiable any number of times."""
    return _Fold.apply(padded, meta, comm)
