"""A force model as a user writes one reads the context in a run on several ranks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ranks.jobs.users import N_STEPS, SEEN

several = pytest.mark.parametrize("n_ranks", [1, 2, 4])


@pytest.fixture
def seen(answers, n_ranks) -> dict[str, np.ndarray]:
    """(evaluations, ranks) arrays by the name of what the model read."""
    return dict(zip(SEEN, np.moveaxis(answers(n_ranks)["users/seen"], -1, 0), strict=True))


@several
def test_a_user_model_reads_where_it_runs(seen, n_ranks):
    assert seen["rank"].shape == (N_STEPS + 1, n_ranks)
    np.testing.assert_array_equal(seen["rank"], np.broadcast_to(np.arange(n_ranks), seen["rank"].shape))
    for name, value in (
        ("world_size", n_ranks), ("mesh_size", n_ranks), ("is_halo", 1), ("is_sharded", 0), ("is_distributed", 1),
        ("has_policy", 1), ("n_atoms_total", 128), ("n_systems_global", 1), ("ghost_width", 8.5 + 0.3),
        ("owned_offset", 0), ("is_same", 1),
    ):  # fmt: skip
        np.testing.assert_array_equal(seen[name], value, err_msg=name)


@several
def test_the_halo_that_it_reads_is_the_present_one(seen):
    np.testing.assert_array_equal(seen["n_owned"], seen["expected_owned"])
    np.testing.assert_array_equal(seen["n_padded"], seen["expected_padded"])
    np.testing.assert_array_equal(seen["meta_owned"], seen["expected_owned"])
    np.testing.assert_array_equal(seen["meta_padded"], seen["expected_padded"])
    np.testing.assert_array_equal(seen["n_owned"].sum(axis=1), 128)
    np.testing.assert_array_equal(seen["received"], seen["n_padded"] - seen["n_owned"])
    np.testing.assert_array_equal(seen["indexed"], seen["sent"])
    np.testing.assert_array_equal(seen["sent"].sum(axis=1), seen["received"].sum(axis=1))


@several
def test_the_scope_opens_once_closes_once_and_leaves_nothing_active(answers, n_ranks):
    after = answers(n_ranks)["users/after"]
    is_outside, n_setups, n_teardowns, n_evaluations, n_counted, n_sizes, rebuilds = after.T
    for found, expected in ((is_outside, 1), (n_setups, 1), (n_teardowns, 1), (n_evaluations, N_STEPS + 1)):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(n_counted, N_STEPS + 1)  # extras live as long as the scope
    assert (rebuilds > 3).all()
    assert n_ranks == 1 or n_sizes.max() > 1  # migration changed what the model saw


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_looking_at_the_context_changes_nothing(answers, n_ranks):
    np.testing.assert_allclose(answers(n_ranks)["users/positions"], answers(1)["users/positions"], rtol=0, atol=1e-10)
