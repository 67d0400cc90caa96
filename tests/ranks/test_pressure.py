"""A cell that moves is the same cell on any number of ranks, and takes its halo along."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ranks.jobs.pressure import RUNS

EVERY = (1, 2, 3, 4)
SEVERAL = (2, 3, 4)


@pytest.mark.parametrize("n_ranks", SEVERAL)
@pytest.mark.parametrize(("name", "box"), RUNS)
def test_a_hundred_steps_under_a_barostat_do_not_depend_on_the_number_of_ranks(name, box, n_ranks, answers):
    found, serial = answers(n_ranks), answers(1)
    for quantity in ("positions", "cell", "conserved"):
        key = f"pressure/{name}/{box}/{quantity}"
        np.testing.assert_allclose(found[key], serial[key], rtol=0, atol=1e-8, err_msg=quantity)
    rebuilds, migrations = found[f"pressure/{name}/{box}/tally"]
    assert rebuilds >= 3 * n_ranks  # otherwise the agreement would prove little
    assert migrations > 0
    before = found[f"pressure/{name}/{box}/positions"][0]
    assert np.abs(found[f"pressure/{name}/{box}/cell"].diagonal() - 4 * 5.9).max() > 0.05, before.shape


@pytest.mark.parametrize("n_ranks", SEVERAL)
def test_the_halo_follows_the_box(n_ranks, answers):
    found, serial = answers(n_ranks), answers(1)
    for name in ("cell", "energies"):
        np.testing.assert_allclose(found[f"pressure/A-26/{name}"], serial[f"pressure/A-26/{name}"], rtol=0, atol=1e-6)
    volumes = found["pressure/A-26/volumes"]
    assert np.ptp(np.cbrt(volumes)) > 0.02 * np.cbrt(volumes[0])


@pytest.mark.parametrize("n_ranks", EVERY)
def test_a_box_that_is_squeezed_and_released_loses_no_atom_and_no_ghost(n_ranks, answers):
    found = answers(n_ranks)
    volumes = found["pressure/squeezed/volumes"]
    assert volumes.min() == pytest.approx(0.7 * volumes[0], rel=1e-9)
    assert volumes[-1] == pytest.approx(volumes[0], rel=1e-9)
    assert (found["pressure/squeezed/n atoms"] == 256).all()
    assert found["pressure/squeezed/wrong by"].max() < 1e-11
    assert found["pressure/squeezed/dangerous builds"] == 0
    np.testing.assert_allclose(
        found["pressure/squeezed/positions"], answers(1)["pressure/squeezed/positions"], rtol=0, atol=1e-8
    )
