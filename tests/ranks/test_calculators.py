"""An ASE calculator that says how far an atom's energy reaches, on several ranks; one that doesn't is refused there."""

from __future__ import annotations

import numpy as np
import pytest
from ase.calculators.lj import LennardJones

from tests.ranks.jobs.calculators import REACH, SYSTEMS
from tests.ranks.launcher import launch


def test_an_ase_calculator_with_a_reach_gives_on_three_ranks_what_it_gives_by_itself():
    found = {key.removeprefix("calculators/"): value for key, value in launch(3, "calculators").items()}
    for name, build in SYSTEMS.items():
        atoms = build()
        atoms.calc = LennardJones(sigma=3.4, epsilon=0.0104, rc=REACH, smooth=True)
        for kind in ("reach", "itself"):
            assert float(found[f"{name}/{kind}/energy"]) == pytest.approx(atoms.get_potential_energy(), rel=1e-11)
            np.testing.assert_allclose(found[f"{name}/{kind}/forces"], atoms.get_forces(), rtol=0, atol=1e-11)
        short = np.abs(found[f"{name}/short/forces"] - atoms.get_forces()).max()
        assert short > 1e-4  # so that this comparison would tell of neighbours that are not there
    refusal = str(found["refusal"])
    assert "one rank alone" in refusal
    assert "receptive_field" in refusal
