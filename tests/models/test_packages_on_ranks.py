"""Potentials of optional packages on several ranks, against the packages' own calculators.

Skipped where a package is missing: bash scripts/models.sh installs all.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest

from mdrun.errors import InputError
from mdrun.strategies.choice import choose_strategy
from tests.models.packages import PACKAGES, SYSTEMS, model_of, rocksalt, truth_of
from tests.ranks.launcher import launch

RANKS = (1, 2, 3, 4)
CLOSE = {"double": 1e-10, "single": 2e-5, "partition": 1e-10}  # eV/Å; the node partition, in double precision
Found = dict[str, np.ndarray]

kinds = pytest.mark.parametrize("kind", PACKAGES)
on_ranks = pytest.mark.parametrize("n_ranks", RANKS)
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def _needs_the_package(request: pytest.FixtureRequest) -> None:
    kind = getattr(request.node, "callspec", None) and request.node.callspec.params.get("kind", "sevennet")
    package = PACKAGES[kind or "sevennet"]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: bash scripts/models.sh")


@lru_cache
def found_on(n_ranks: int, job: str) -> Found:
    return {key.removeprefix(f"{job}/"): value for key, value in launch(n_ranks, job, limit_s=600).items()}


truth = lru_cache(lambda kind, name: truth_of(kind, SYSTEMS[name]()))
systems: Callable = pytest.mark.parametrize("name", SYSTEMS)


@kinds
@on_ranks
@systems
def test_energy_forces_and_stress_are_those_of_the_packages_own_calculator(kind, n_ranks, name):
    found, expected = found_on(n_ranks, kind), truth(kind, name)
    for precision, close in CLOSE.items():
        key = f"{name}/{precision}"
        np.testing.assert_allclose(found[f"{key}/forces"], expected.forces, rtol=0, atol=close)
        assert float(found[f"{key}/energy"]) == pytest.approx(expected.energy, rel=0, abs=close * len(SYSTEMS[name]()))
        if expected.stress is not None:
            np.testing.assert_allclose(found[f"{key}/stress"], expected.stress, rtol=0, atol=close)


@kinds
@pytest.mark.parametrize("n_ranks", RANKS[1:])
@systems
def test_the_number_of_ranks_makes_no_difference(kind, n_ranks, name):
    one, many = found_on(1, kind), found_on(n_ranks, kind)
    for precision, close in CLOSE.items():
        for quantity in ("forces", "energy", "stress"):
            key = f"{name}/{precision}/{quantity}"
            assert (key in one) == (key in many)
            if key in one:
                np.testing.assert_allclose(many[key], one[key], rtol=0, atol=close)


@kinds
@pytest.mark.parametrize("n_ranks", RANKS[1:])
def test_without_the_refresh_the_comparison_fails(kind, n_ranks):
    """So it would tell a wrong one."""
    wrong = np.abs(found_on(n_ranks, kind)["stale/forces"] - truth(kind, "rocksalt").forces).max()
    assert wrong > 1e-3


@kinds
@on_ranks
def test_no_rank_computes_features_of_ghosts(kind, n_ranks):
    rows = found_on(n_ranks, kind)["rows"]
    assert rows.shape[0] == n_ranks
    assert (rows.sum(axis=0) == len(rocksalt())).all()


LAYERS = {"mace": 2, "chgnet": 4}


@kinds
def test_exchanges_are_named_for_what_they_carry(kind):
    layers = [f"layer {n}" for n in range(2, LAYERS.get(kind, 5) + 1)]
    if kind == "chgnet":  # what a bond convolution says follows that of the atoms
        layers = ["ends of bonds", *(name for n in (1, 2, 3) for name in (f"bonds {n}", f"layer {n + 1}"))]
    assert found_on(2, kind)["exchanges"].tolist() == [*layers, "forces"]


@pytest.mark.slow
@pytest.mark.parametrize("n_ranks", RANKS[:3])
def test_the_largest_sevennet_gives_what_its_own_calculator_gives(n_ranks):
    found, expected = found_on(n_ranks, "sevennet l3i5"), truth("sevennet l3i5", "rocksalt")
    assert float(found["energy"]) == pytest.approx(expected.energy, rel=0, abs=1e-9)
    np.testing.assert_allclose(found["forces"], expected.forces, rtol=0, atol=CLOSE["double"])
    np.testing.assert_allclose(found["stress"], expected.stress, rtol=0, atol=CLOSE["double"])
    if n_ranks > 1:
        assert np.abs(found["stale/forces"] - expected.forces).max() > 1e-3


@kinds
def test_a_strategy_that_has_a_ranks_atoms_elsewhere_than_first_is_refused(kind):
    model = model_of(kind, rocksalt(), "double")
    with pytest.raises(InputError, match="computes the first rows of a graph"):
        choose_strategy("replicate", model)
    assert choose_strategy("partition", model).name == "partition"


def test_sevennet_moves_atoms_alike_on_one_rank_and_on_three():
    one, three = found_on(1, "moving sevennet"), found_on(3, "moving sevennet")
    np.testing.assert_allclose(three["positions"], one["positions"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(three["total_eV"], one["total_eV"], rtol=0, atol=1e-9)
