"""Recursive bisection: every point has one owner, and owners have their share. Here one rank holds all the points."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdrun.comm import Comm
from mdrun.decompose.partition import Partition, bisect

CUBE = np.ones(3)
ranks = st.integers(1, 12)
seeds = st.integers(0, 2**32 - 1)


class AllHere(Comm):
    """Rank 0 of several, of which the others hold nothing: what they would add to a sum is zero."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size


def cut(points: np.ndarray, n_ranks: int, weights: np.ndarray | None = None, heights: np.ndarray = CUBE) -> Partition:
    return bisect(points, np.ones(len(points)) if weights is None else weights, heights, AllHere(n_ranks))


def scattered(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 1, (n, 3))


@settings(deadline=None)
@given(seeds, ranks, st.integers(0, 60))
def test_every_point_of_space_has_an_owner_and_what_lies_between_two_of_its_points_is_its_own(seed, n_ranks, n):
    """Regions are boxes, those of ranks without atoms and those at the open ends included."""
    partition = cut(scattered(seed, n), n_ranks)
    anywhere = np.random.default_rng(seed + 1).uniform(-3, 4, (200, 3))
    owners = partition.owners(anywhere)
    assert ((owners >= 0) & (owners < n_ranks)).all()
    for rank in set(owners):
        corners = anywhere[owners == rank]
        for low, high in itertools.pairwise(corners):
            between = low + (high - low) * np.random.default_rng(seed + 2).uniform(0, 1, (5, 3))
            assert (partition.owners(between) == rank).all()


@settings(deadline=None)
@given(seeds, ranks, st.integers(0, 300))
def test_every_rank_gets_its_share_of_the_atoms(seed, n_ranks, n):
    """A cut can be off by one atom, or two where they nearly coincide, and there are at most four on the way down."""
    points = scattered(seed, n)
    counts = np.bincount(cut(points, n_ranks).owners(points), minlength=n_ranks)
    assert np.abs(counts - n / n_ranks).max() <= 4


@settings(deadline=None)
@given(seeds, st.integers(2, 8))
def test_every_rank_gets_its_share_of_the_weight(seed, n_ranks):
    points = scattered(seed, 400)
    weights = np.random.default_rng(seed + 1).uniform(0, 2, 400)
    loads = np.bincount(cut(points, n_ranks, weights).owners(points), weights, minlength=n_ranks)
    assert np.abs(loads - weights.sum() / n_ranks).max() <= 4 * weights.max()


@pytest.mark.parametrize("n_ranks", [2, 3, 7])
def test_atoms_without_weight_or_in_one_place_have_owners_all_the_same(n_ranks):
    together = np.full((10, 3), 0.25)
    for weights in (np.ones(10), np.zeros(10)):
        owners = cut(together, n_ranks, weights).owners(together)
        assert len(set(owners)) == 1
        assert 0 <= owners[0] < n_ranks


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_space_is_cut_across_the_longest_side_in_angstrom(axis):
    heights = np.full(3, 10.0)
    heights[axis] = 11.0
    partition = cut(scattered(1, 5000), 2, heights=heights)
    assert partition.axis.tolist() == [axis]
    assert partition.cut[0] == pytest.approx(np.median(scattered(1, 5000)[:, axis]), abs=1e-3)


def test_vacuum_is_not_shared_out():
    slab = scattered(3, 1000) * [1, 1, 0.1]
    partition = cut(slab, 4)
    assert set(partition.axis.tolist()) == {0, 1}


def test_a_point_on_a_cut_belongs_to_the_upper_side():
    partition = cut(scattered(2, 100), 2)
    on_it = np.full((1, 3), partition.cut[0])
    assert partition.owners(on_it).tolist() == [1]
    assert partition.owners(np.nextafter(on_it, 0)).tolist() == [0]
