"""Lower precision against the same model in double, for every family of potentials."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk

from mdrun.potentials.registry import load_model, without_precision
from tests.systems import DATA, evaluate, species_of

POTENTIALS = DATA / "potentials"


def solid(symbols: list[str], a: float) -> Atoms:
    """Of 192 to 256 atoms in a cell of 15 to 22 Å: coordinates from its middle, ghosts' too, are below 20 Å."""
    atoms = bulk("Si", a=a, cubic=True) * (3, 3, 3) if "Si" in symbols else bulk("Cu", a=a, cubic=True) * (4, 4, 4)
    atoms.numbers = Atoms(list(np.random.default_rng(1).choice(symbols, len(atoms)))).numbers
    atoms.rattle(0.1, seed=2)
    return atoms


CASES = {
    "lj": ("lj", ["Ar"], 5.26),
    "lj_mixture": ("lj", ["Ar", "Kr"], 5.4),
    "morse": ("morse:D=0.34,a=1.36,r0=2.87,cutoff=8", ["Cu"], 3.6),
    "zbl": ("zbl:inner=3,outer=4", ["Si"], 5.0),
    "sum": ("lj + morse:D=0.34,a=1.36,r0=2.87,cutoff=8", ["Ar"], 4.2),
    "eam": (f"eam:{POTENTIALS}/Cu_mishin1.eam.alloy", ["Cu"], 3.615),
    "eam_mixture": (f"eam:{POTENTIALS}/CuNi.eam.alloy", ["Cu", "Ni"], 3.58),
    "emt": ("emt", ["Cu"], 3.615),
    "emt_mixture": ("emt", ["Cu", "Ag", "Au"], 3.9),
    "sw": ("sw", ["Si"], 5.431),
    "sw_mixture": (f"sw:{POTENTIALS}/mixed.sw", ["C", "Si", "Ge"], 5.0),
    "tersoff": ("tersoff", ["Si"], 5.431),
    "tersoff_mixture": (f"tersoff:{POTENTIALS}/mixed.tersoff", ["C", "Si", "Ge"], 5.0),
}


@pytest.mark.parametrize("precision", ["mixed", "single"])
@pytest.mark.parametrize("name", CASES)
def test_lower_precision_is_near_double(name, precision):
    """Coordinates below 32 Å are rounded by 1e-6 Å at most, and displacements of 0.1 Å make the largest forces: 1e-5 of
    these, and of the largest stress, has room for the rounding of the terms. 1e-5 eV an atom is A-52."""
    spec, symbols, a = CASES[name]
    atoms = solid(symbols, a)
    numbers = species_of(atoms)
    model = load_model(spec, numbers, precision)
    assert not without_precision(model)
    truth, found = evaluate(atoms, load_model(spec, numbers)), evaluate(atoms, model)
    scale = np.abs(truth.forces).max()
    np.testing.assert_allclose(found.forces, truth.forces, rtol=0, atol=1e-5 * scale)
    assert np.abs(found.forces - truth.forces).max() > 0  # it is another arithmetic
    assert abs(found.energy - truth.energy) < 1e-5 * len(atoms)
    np.testing.assert_allclose(found.stress, truth.stress, rtol=0, atol=1e-5 * np.abs(truth.stress).max())
    # each pair is met from both of its ends, where it may round differently: 16 roundings of the largest force each
    assert np.abs(found.forces.sum(axis=0)).max() < 16 * np.finfo(np.float32).eps * scale * len(atoms) ** 0.5
