"""The halo rule for many ranks at once, planned in one process, against every image; and its linear maps."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from mdrun.comm import Comm
from mdrun.context import HaloMeta
from mdrun.decompose.halo import fold, plan_halo, refresh
from mdrun.decompose.partition import bisect
from mdrun.neighbors.grid import bounds

N_IMAGES = 4  # cells to each side that the brute force looks at


class OneOf(Comm):
    """One rank of several, to plan what it would send; the answers of the others are not needed for that."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__()
        self.rank, self.size = rank, size


def box_of(frac: np.ndarray) -> np.ndarray:
    """(3, 2) tight bounds of (n, 3) points, as a domain gathers them."""
    return np.stack(bounds(frac.T), axis=1)


def images(frac: np.ndarray, ids: np.ndarray, pbc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n, 3) fractional places and (n, 4) id and shift of every image within ``N_IMAGES`` cells."""
    ranges = [range(-N_IMAGES, N_IMAGES + 1) if p else (0,) for p in pbc]
    shifts = np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, 3)
    places = frac[:, None] + shifts
    labels = np.concatenate(
        [np.broadcast_to(ids[:, None, None], (*places.shape[:2], 1)), np.broadcast_to(shifts, places.shape)], axis=2
    )
    return places.reshape(-1, 3), labels.reshape(-1, 4).astype(int)


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_ranks=st.integers(1, 9),
    n=st.integers(0, 25),
    pbc=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    widest=st.floats(0.01, 2.9),
)
def test_each_rank_receives_every_image_near_its_box_once(seed, n_ranks, n, pbc, widest):
    rng = np.random.default_rng(seed)
    frac, width = rng.uniform(0, 1, (n, 3)), widest * rng.uniform(0.2, 1, 3)
    periodic = np.array(pbc)
    owners = bisect(frac, np.ones(n), np.ones(3), OneOf(0, n_ranks)).owners(frac)
    boxes = np.stack([box_of(frac[owners == rank]) for rank in range(n_ranks)])

    received: list[list[np.ndarray]] = [[] for _ in range(n_ranks)]
    for sender in range(n_ranks):
        ids = np.flatnonzero(owners == sender)
        plan = plan_halo(frac[ids], boxes, width, pbc, OneOf(sender, n_ranks))
        labels = np.column_stack([ids[plan.send_indices.numpy()], plan.send_shifts.numpy()]).astype(int)
        for rank, part in enumerate(np.split(labels, np.cumsum(plan.send_sizes)[:-1])):
            received[rank].append(part)

    places, labels = images(frac, np.arange(n), periodic)
    for rank in range(n_ranks):
        mine = frac[owners == rank]
        is_near = np.zeros(len(places), bool)
        if len(mine):
            is_near = ((places >= mine.min(axis=0) - width) & (places <= mine.max(axis=0) + width)).all(axis=1)
        is_own = (owners[labels[:, 0]] == rank) & ~labels[:, 1:].any(axis=1)
        expected = {tuple(row) for row in labels[is_near & ~is_own]}
        found = [tuple(row) for part in received[rank] for row in part]
        assert len(found) == len(set(found))
        assert set(found) == expected


def test_an_image_exactly_at_the_ghost_width_is_not_lost():
    frac = np.array([[0.1, 0.5, 0.5]])
    plan = plan_halo(frac, box_of(frac)[None], np.array([1.0, 0.1, 0.1]), (True, True, True), Comm())
    assert sorted(plan.send_shifts.tolist()) == [[-1, 0, 0], [1, 0, 0]]


def test_nothing_owned_has_no_halo():
    nothing = np.empty((0, 3))
    plan = plan_halo(nothing, box_of(nothing)[None], np.ones(3), (True, True, True), Comm())
    assert plan.n_ghosts == 0
    assert not len(plan.send_indices)


def mirror(n_owned: int, rows: list[int]) -> HaloMeta:
    """A halo in one process: ghost k mirrors row ``rows[k]``."""
    n = len(rows)
    return HaloMeta(n_owned, n_owned + n, torch.tensor(rows, dtype=torch.int64), [n], [n])


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=6))
def test_refresh_and_fold_are_each_others_adjoint_and_differentiable_twice(n_owned, rows):
    meta = mirror(n_owned, [row % n_owned for row in rows])
    noise = torch.Generator().manual_seed(1)
    owned = torch.rand((n_owned, 2), generator=noise, dtype=torch.float64, requires_grad=True)
    padded = torch.rand((meta.n_padded, 2), generator=noise, dtype=torch.float64, requires_grad=True)
    comm = Comm()
    there, back = (refresh(owned, meta, comm) * padded).sum(), (owned * fold(padded, meta, comm)).sum()
    assert torch.isclose(there, back, rtol=1e-14)
    for verb, x in ((refresh, owned), (fold, padded)):

        def squared(x, verb=verb):
            return verb(x, meta, comm) ** 2

        assert gradcheck(squared, x)
        assert gradgradcheck(squared, x)
