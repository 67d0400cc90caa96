"""The halo statistics by exchange, against the rows that a graph's nodes ask of other ranks."""

from __future__ import annotations

import numpy as np

from tests.ranks.jobs.message_passing import N_LAYERS
from tests.ranks.launcher import launch

N_FEATURES = 16


def test_bytes_and_time_are_known_of_each_layers_exchange_on_three_ranks():
    found = {key.removeprefix("exchanges/"): value for key, value in launch(3, "exchanges").items()}
    assert found["names"].all()
    assert len(found["names"]) == N_LAYERS
    there, back = found["rows"].T
    assert there.sum() == back.sum() > 0
    for layer in range(N_LAYERS - 1):
        np.testing.assert_array_equal(found["bytes"][:, layer], (there + back) * N_FEATURES * 8)
    np.testing.assert_array_equal(found["bytes"][:, -1], back * 3 * 8)
    assert (found["seconds"] > 0).all()


def test_exchanges_have_the_names_that_models_give_or_are_numbered():
    """A sum and its refresh are one exchange; a sum alone tells no rank of its neighbours."""
    found = {key.removeprefix("exchanges/"): value for key, value in launch(3, "exchanges").items()}
    assert found["asked"].tolist() == ["charges", "exchange 1", "exchange 2", "exchange 3"]
    assert int(found["refreshes"]) == 3
    sent, received = found["asked_rows"].T
    expected = np.stack([sent, sent + received, received, sent], axis=1) * 8
    np.testing.assert_array_equal(found["asked_bytes"], expected)
