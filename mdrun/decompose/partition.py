"""Recursive coordinate bisection of fractional space: one box for each rank.

Any number of ranks, any cell and any mix of open and periodic axes are one code path: the set of atoms is cut
across its longest side so that the two halves of the ranks get their share of the weight, and so on. Ownership is
decided by descending the tree of cuts, so every point of space, however far outside, belongs to exactly one rank.
(Berger and Bokhari, IEEE Trans. Comput. C-36 (1987) 570, doi 10.1109/TC.1987.1676942.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numba import njit

from mdrun.comm import Comm

N_BINS = 64
N_ROUNDS = 3  # each narrows the cut by N_BINS: a quarter of a millionth of the side in the end


@dataclass(frozen=True)
class Partition:
    """A tree of cuts. Node k sends ``frac[axis[k]] < cut[k]`` to ``lower[k]``, the rest to ``upper[k]``.

    A child that is negative is a leaf: rank ``-1 - child``.
    """

    axis: np.ndarray
    cut: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def owners(self, frac: np.ndarray) -> np.ndarray:
        """(n,) rank of each point.

        Args:
            frac: (n, 3) fractional coordinates, folded along periodic axes.
        """
        if not len(self.axis):
            return np.zeros(len(frac), np.int64)
        return _descend(frac, self.axis, self.cut, self.lower, self.upper)


@njit(cache=True)
def _descend(frac, axis, cut, lower, upper):
    ranks = np.empty(len(frac), np.int64)
    for i in range(len(frac)):
        node = 0
        while node >= 0:
            node = lower[node] if frac[i, axis[node]] < cut[node] else upper[node]
        ranks[i] = -1 - node
    return ranks


def bisect(frac: np.ndarray, weights: np.ndarray, heights: np.ndarray, comm: Comm) -> Partition:
    """Cut space for all ranks of ``comm``, from atoms that may lie anywhere on them.

    Args:
        frac: (n, 3) fractional coordinates of this rank's atoms, folded along periodic axes.
        weights: (n,) cost of each atom, not negative.
        heights: (3,) Å, to compare sides.

    Returns:
        The same partition on every rank.
    """
    axes: list[int] = []
    cuts: list[float] = []
    children: list[list[int]] = []
    level = [(0, comm.size, -1, 0)]  # first rank, end rank, parent node, which child of it
    members = [np.arange(len(frac))]
    while level:
        split = [k for k, (first, end, _, _) in enumerate(level) if end - first > 1]
        for k, (first, _, parent, side) in enumerate(level):
            if parent >= 0:
                children[parent][side] = len(axes) + split.index(k) if k in split else -1 - first
        if not split:
            break
        groups = [frac[members[k]] for k in split]
        shares = [weights[members[k]] for k in split]
        bounds = _bounds(groups, comm)
        longest = np.argmax((bounds[:, :, 1] - bounds[:, :, 0]) * heights, axis=1)
        lower_share = [(level[k][1] - level[k][0]) // 2 / (level[k][1] - level[k][0]) for k in split]
        points = [group[:, axis] for group, axis in zip(groups, longest, strict=True)]
        sides = bounds[np.arange(len(split)), longest]
        found = _weighted_quantiles(points, shares, sides, np.array(lower_share), comm)
        next_level, next_members = [], []
        for k, values, axis, cut in zip(split, points, longest, found, strict=True):
            first, end, _, _ = level[k]
            node, middle = len(axes), first + (end - first) // 2
            axes.append(int(axis))
            cuts.append(float(cut))
            children.append([0, 0])
            next_level += [(first, middle, node, 0), (middle, end, node, 1)]
            next_members += [members[k][values < cut], members[k][values >= cut]]
        level, members = next_level, next_members
    child = np.array(children, np.int64).reshape(-1, 2)
    partition = Partition(np.array(axes, np.int64), np.array(cuts), child[:, 0].copy(), child[:, 1].copy())
    # Sums of weights may differ in the last bit between machines; one rank's answer is everybody's.
    return comm.broadcast(partition)


def _bounds(groups: list[np.ndarray], comm: Comm) -> np.ndarray:
    """(n_groups, 3, 2) least and greatest coordinate over all ranks; (0, 0) for a group without atoms."""
    local = np.full((len(groups), 3, 2), -np.inf)  # -lo, hi
    for bounds, group in zip(local, groups, strict=True):
        if len(group):
            bounds[:, 0], bounds[:, 1] = -group.min(axis=0), group.max(axis=0)
    bounds = comm.all_max(torch.from_numpy(local)).numpy()
    bounds = np.where(np.isfinite(bounds), bounds, 0.0)
    bounds[:, :, 0] *= -1
    return bounds


def _weighted_quantiles(
    points: list[np.ndarray], weights: list[np.ndarray], sides: np.ndarray, shares: np.ndarray, comm: Comm
) -> np.ndarray:
    """(n_groups,) where to cut each group so that ``shares`` of its weight lies below."""
    lo, width = sides[:, 0].copy(), sides[:, 1] - sides[:, 0]
    below = np.zeros(len(points))
    target = None
    for _ in range(N_ROUNDS):
        width /= N_BINS
        histogram = np.zeros((len(points), N_BINS))
        for k, (x, w) in enumerate(zip(points, weights, strict=True)):
            bins = np.floor((x - lo[k]) / max(width[k], np.finfo(float).tiny))
            inside = (bins >= 0) & (bins <= N_BINS)  # the far face itself belongs to the last bin
            histogram[k] = np.bincount(
                np.minimum(bins[inside], N_BINS - 1).astype(np.int64), weights=w[inside], minlength=N_BINS
            )
        cumulative = np.cumsum(comm.all_sum(torch.from_numpy(histogram)).numpy(), axis=1) + below[:, None]
        if target is None:
            target = shares * cumulative[:, -1]
        crossing = np.minimum((cumulative < target[:, None]).sum(axis=1), N_BINS - 1)
        rows = np.arange(len(points))
        below = np.where(crossing > 0, cumulative[rows, np.maximum(crossing - 1, 0)], below)
        above = cumulative[rows, crossing]
        lo = lo + crossing * width
    assert target is not None
    # the cut lies within one last bin: take the face that leaves the better balance
    return np.where(np.abs(below - target) <= np.abs(above - target), lo, lo + width)
