"""A relaxation takes the same way to the same end on any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ranks.jobs.relaxing import OPTIMIZERS, SLOPES

SEVERAL = (2, 3)


@pytest.mark.parametrize("n_ranks", SEVERAL)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", SLOPES)
def test_a_relaxation_does_not_depend_on_the_number_of_ranks(name, optimizer, n_ranks, answers):
    found, serial = answers(n_ranks), answers(1)
    key = f"relaxing/{name}/{optimizer}"
    assert serial[f"{key}/is_converged"]
    for quantity, tolerance in (
        ("positions", 1e-8), ("cells", 1e-8), ("enthalpies", 1e-8), ("end", 1e-6), ("end_cell", 1e-6),
        ("end_enthalpy", 1e-9), ("is_converged", 0),
    ):  # fmt: skip
        assert found[f"{key}/{quantity}"].shape == serial[f"{key}/{quantity}"].shape
        np.testing.assert_allclose(
            found[f"{key}/{quantity}"], serial[f"{key}/{quantity}"], rtol=0, atol=tolerance, err_msg=quantity
        )


@pytest.mark.parametrize("n_ranks", SEVERAL)
def test_those_relaxations_rebuilt_migrated_strained_and_met_empty_ranks(n_ranks, answers):
    """Otherwise the agreement above would prove little."""
    found = answers(n_ranks)
    for optimizer in OPTIMIZERS:
        rebuilds, migrations, _, dangerous = found[f"relaxing/argon crystal, cell/{optimizer}/tally"]
        assert rebuilds >= 5 * n_ranks
        assert migrations > 20
        assert dangerous == 0
        first, last = (found[f"relaxing/argon crystal, cell/{optimizer}/{cell}"] for cell in ("cells", "end_cell"))
        assert np.abs(np.linalg.inv(first[0]) @ last - np.eye(3)).max() > 0.1
        assert found[f"relaxing/thirteen atoms/{optimizer}/tally"][1] > 2
        if n_ranks == 3:
            assert found[f"relaxing/three atoms in the open/{optimizer}/tally"][2] > 0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_held_atoms_keep_their_bits_on_whatever_rank_they_are(optimizer, answers):
    for n_ranks in (1, *SEVERAL):
        first, last = answers(n_ranks)[f"relaxing/copper slab, a third held/{optimizer}/positions"][[0, -1]]
        assert np.array_equal(first[::3], last[::3])
        assert np.abs(first - last).max() > 0.05
