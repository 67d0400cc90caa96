"""Lower precision against the same model in double."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk

from mdrun.potentials.registry import load_model
from tests.systems import DATA, evaluate, species_of


def solid(symbols: list[str], a: float) -> Atoms:
    atoms = bulk("Cu", a=a, cubic=True) * (4, 4, 4)
    atoms.numbers = Atoms(list(np.random.default_rng(1).choice(symbols, len(atoms)))).numbers
    atoms.rattle(0.1, seed=2)
    return atoms


CASES = {
    "lj": ("lj", ["Ar"], 5.26),
    "eam": (f"eam:{DATA}/potentials/Cu_mishin1.eam.alloy", ["Cu"], 3.615),
    "eam_mixture": (f"eam:{DATA}/potentials/CuNi.eam.alloy", ["Cu", "Ni"], 3.58),
}


@pytest.mark.parametrize("precision", ["mixed", "single"])
@pytest.mark.parametrize("name", CASES)
def test_lower_precision_is_near_double(name, precision):
    """Single coordinates are exact to 1e-6 Å here: 1e-5 of the largest force, and 1e-5 eV an atom (A-52)."""
    spec, symbols, a = CASES[name]
    atoms = solid(symbols, a)
    numbers = species_of(atoms)
    truth, found = (evaluate(atoms, load_model(spec, numbers, p)) for p in ("double", precision))
    scale = np.abs(truth.forces).max()
    np.testing.assert_allclose(found.forces, truth.forces, rtol=0, atol=1e-5 * scale)
    assert np.abs(found.forces - truth.forces).max() > 0  # it is another arithmetic
    assert abs(found.energy - truth.energy) < 1e-5 * len(atoms)
    np.testing.assert_allclose(found.stress, truth.stress, rtol=0, atol=1e-5 * np.abs(truth.stress).max())
