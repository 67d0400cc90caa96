"""The trajectory does not depend on how many ranks computed it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ranks.cases import MOVING, STATIC

SEVERAL = (2, 3, 4, 5)
TRAJECTORIES = [f"{name}/{ensemble}" for name, system in MOVING.items() for ensemble in system.ensembles]


@pytest.mark.parametrize("n_ranks", SEVERAL)
@pytest.mark.parametrize("name", STATIC)
def test_forces_do_not_depend_on_the_number_of_ranks(name, n_ranks, answers):
    found, serial = answers(n_ranks), answers(1)
    for quantity, rtol, atol in (("energy", 1e-12, 1e-12), ("forces", 0, 1e-11), ("stress", 0, 1e-12)):
        key = f"statics/{name}/{quantity}"
        np.testing.assert_allclose(found[key], serial[key], rtol=rtol, atol=atol)


@pytest.mark.parametrize("n_ranks", SEVERAL)
@pytest.mark.parametrize("name", TRAJECTORIES)
def test_a_hundred_steps_do_not_depend_on_the_number_of_ranks(name, n_ranks, answers):
    found, serial = answers(n_ranks), answers(1)
    positions = found[f"dynamics/{name}/positions"]
    assert len(positions) == 2  # step 0 and step 100
    np.testing.assert_allclose(positions, serial[f"dynamics/{name}/positions"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        found[f"dynamics/{name}/energies"], serial[f"dynamics/{name}/energies"], rtol=1e-10, atol=1e-8
    )


@pytest.mark.parametrize("n_ranks", SEVERAL)
def test_those_hundred_steps_rebuilt_migrated_and_met_empty_ranks(n_ranks, answers):
    """Otherwise the agreement above would prove little."""
    found = answers(n_ranks)
    for name in ("argon crystal/nve", "argon liquid/langevin", "copper slab/langevin", "small triclinic cell/nve"):
        rebuilds, migrations, _ = found[f"dynamics/{name}/tally"]
        assert rebuilds >= 3 * n_ranks, name
        assert migrations > 0, name
    assert (
        found["dynamics/icosahedron drifting through a box/nve/tally"][1] > 12
    )  # beyond the first dealing out by rank 0
    assert found["dynamics/one atom and its images/nve/tally"][2] == n_ranks - 1
    if n_ranks > 3:
        assert found["dynamics/three atoms in the open/nve/tally"][2] >= n_ranks - 3


def test_the_thermostat_differs_from_none(answers):
    for name, system in MOVING.items():
        if system.has_noise:
            nve, langevin = (answers(1)[f"dynamics/{name}/{e}/positions"][-1] for e in ("nve", "langevin"))
            assert np.abs(nve - langevin).max() > 1e-3, name
