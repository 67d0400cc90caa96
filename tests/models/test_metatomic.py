"""A model that metatomic exported, against the package's own calculator. Skipped where the package is missing."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from mdrun.errors import InputError
from mdrun.potentials.base import UnknownSpecies
from mdrun.potentials.registry import load_model
from tests.ranks.builders import argon_liquid
from tests.ranks.jobs.packages import EXPORTED
from tests.ranks.launcher import launch
from tests.systems import evaluate


def test_an_exported_model_gives_what_its_own_calculator_gives_and_says_how_far_it_reaches(tmp_path):
    calculators = pytest.importorskip("metatomic_ase", reason="pip install 'mdrun[metatomic]'")
    from tests.models.exported import RANGE, export

    export(tmp_path / "pairs.pt")
    atoms = argon_liquid()
    model = load_model(f"metatomic:{tmp_path / 'pairs.pt'}", (18,))
    assert model.reach == RANGE
    found = evaluate(atoms, model)
    atoms.calc = calculators.MetatomicCalculator(str(tmp_path / "pairs.pt"))
    assert found.energy == pytest.approx(atoms.get_potential_energy(), rel=1e-12)
    np.testing.assert_allclose(found.forces, atoms.get_forces(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.stress, atoms.get_stress(voigt=False), rtol=0, atol=1e-13)
    with pytest.raises(UnknownSpecies, match="Kr"):
        load_model(f"metatomic:{tmp_path / 'pairs.pt'}", (36,))


def test_an_exported_model_computes_on_the_device_of_the_atoms(tmp_path, monkeypatch):
    """Not on one that its calculator would choose by itself."""
    calculators = pytest.importorskip("metatomic_ase", reason="pip install 'mdrun[metatomic]'")
    from tests.models.exported import export

    export(tmp_path / "pairs.pt")
    devices, make = [], calculators.MetatomicCalculator

    def noting(*words, device=None, **more):
        devices.append(device)
        return make(*words, device=device, **more)

    monkeypatch.setattr(calculators, "MetatomicCalculator", noting)
    model = load_model(f"metatomic:{tmp_path / 'pairs.pt'}", (18,))
    for _ in range(2):
        evaluate(argon_liquid(), model)
    assert devices == [None, "cpu"]


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_an_exported_model_gives_on_several_ranks_what_it_gives_on_one(n_ranks):
    pytest.importorskip("metatomic_ase", reason="pip install 'mdrun[metatomic]'")
    one, many = (_found_on(n) for n in (1, n_ranks))
    for name in EXPORTED:
        for what, close in (("energy", 1e-10), ("forces", 1e-12)):
            np.testing.assert_allclose(many[f"{name}/own/{what}"], one[f"{name}/own/{what}"], rtol=0, atol=close)
        # With ghosts from too near the comparison fails: so it would tell.
        assert np.abs(many[f"{name}/short/forces"] - one[f"{name}/own/forces"]).max() > 1e-4


@lru_cache
def _found_on(n_ranks: int) -> dict[str, np.ndarray]:
    return {key.removeprefix("metatomic/"): value for key, value in launch(n_ranks, "metatomic").items()}


def test_a_model_file_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="does not exist"):
        load_model("metatomic:none.pt", (18,))
