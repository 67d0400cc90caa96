"""Energy, forces and stress on any number of ranks against other programs and against sums over every image."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from ase.calculators.calculator import PropertyNotImplementedError
from ase.calculators.emt import EMT as AseEMT

from tests.many_body import is_exact
from tests.ranks import brute_force
from tests.ranks.cases import (
    CASEBOOK,
    CUTOFF,
    EPSILON,
    REFERENCE,
    SIGMA,
    STATIC,
    WITH_EMT,
    argon,
    reference_atoms,
    reference_model,
)
from tests.systems import REFERENCE_PAIRS, evaluate

ROUNDING = 5e-9  # Å: the positions in the reference files carry eight decimals


@cache
def change_by(file: str, size: float) -> float:
    """eV/Å, by how much a force in double changes as every coordinate moves by up to ``size`` Å."""
    atoms = reference_atoms(file)
    model = reference_model(file, atoms)
    forces = [evaluate(atoms, model, skin=0.5).forces]
    for seed in range(2):
        moved = atoms.copy()
        moved.positions += np.random.default_rng(seed).uniform(-size, size, atoms.positions.shape)
        forces.append(evaluate(moved, model, skin=0.5).forces)
    return max(np.abs(other - forces[0]).max() for other in forces[1:])


def is_rounded(file: str) -> bool:
    """Whether eight decimals of the positions are too few for the forces, by far more than is asked of the others."""
    entry = REFERENCE[file]
    return entry["model"]["kind"] in REFERENCE_PAIRS or not is_exact(entry)


def spacing(file: str) -> float:
    """Å, between float32 numbers as large as a coordinate, relative to the middle, is at most: ghosts' too."""
    atoms = reference_atoms(file)
    atoms.wrap()
    corners = np.array(list(itertools.product((0, 1), repeat=3))) @ atoms.cell.array
    extent = np.ptp(np.vstack([atoms.positions, corners]), axis=0).max()
    reach = reference_model(file, atoms).cutoff + 0.5
    return float(np.spacing(np.float32(extent / 2 + reach)))


def lammps_stress(file: str) -> np.ndarray:
    """(3, 3) eV/Å³; the slab's, which has no volume, is nan."""
    try:
        stress = reference_atoms(file).get_stress(voigt=False)
    except PropertyNotImplementedError:
        return np.full((3, 3), np.nan)
    # LAMMPS gives bar, and these files were made with a unit of pressure that has more digits than LAMMPS's.
    is_of_pairs = REFERENCE[file]["model"]["kind"] in REFERENCE_PAIRS
    return stress * 1.6021766208 / 1.6021765 if is_of_pairs else stress


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("file", REFERENCE)
def test_energy_forces_and_stress_are_those_of_lammps(file, n_ranks, answers):
    found, forces = answers(n_ranks), reference_atoms(file).get_forces()
    blur = 3 * change_by(file, ROUNDING) if is_rounded(file) else 0.0
    energy = REFERENCE[file]["energy_eV"]
    assert found[f"statics/{file}/energy"] == pytest.approx(energy, rel=1e-9, abs=ROUNDING * np.abs(forces).sum())
    np.testing.assert_allclose(found[f"statics/{file}/forces"], forces, rtol=0, atol=1e-7 + blur)
    stress = lammps_stress(file)
    np.testing.assert_allclose(found[f"statics/{file}/stress"], stress, rtol=0, atol=1e-8 + blur / 100)


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("precision", ["mixed", "single"])
@pytest.mark.parametrize("file", REFERENCE)
def test_lower_precision_is_lammps_within_its_own_rounding(file, precision, n_ranks, lower_answers):
    """Forces: twice what coordinates rounded to float32 change in double. Energy: 2e-6 eV an atom, sixteen roundings of
    1 eV; virial: 5e-6 eV an atom, for distances of 2.5 times the decay."""
    found, atoms = lower_answers(n_ranks), reference_atoms(file)
    name, forces = f"lower/{precision}/{file}", atoms.get_forces()
    energy, blur = REFERENCE[file]["energy_eV"], 2 * change_by(file, spacing(file) / 2)
    assert abs(found[f"{name}/energy"] - energy) < 2e-6 * len(atoms)
    np.testing.assert_allclose(found[f"{name}/forces"], forces, rtol=0, atol=1e-7 + blur)
    atol = 5e-6 * len(atoms) / atoms.get_volume()
    np.testing.assert_allclose(found[f"{name}/stress"], lammps_stress(file), rtol=0, atol=atol)


def test_lower_precision_is_another_arithmetic(answers, lower_answers):
    for file in REFERENCE:
        energies = [answers(2)[f"statics/{file}/energy"]]
        energies += [lower_answers(2)[f"lower/{precision}/{file}/energy"] for precision in ("mixed", "single")]
        assert len({float(energy) for energy in energies}) == 3, file


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", WITH_EMT)
def test_effective_medium_theory_is_that_of_ase(name, n_ranks, answers):
    found, atoms = answers(n_ranks), WITH_EMT[name].atoms()
    atoms.calc = AseEMT()
    assert found[f"statics/{name}/energy"] == pytest.approx(atoms.get_potential_energy(), rel=1e-10)
    np.testing.assert_allclose(found[f"statics/{name}/forces"], atoms.get_forces(), rtol=0, atol=1e-10)
    stress = atoms.get_stress(voigt=False) if all(atoms.pbc) else np.full((3, 3), np.nan)
    np.testing.assert_allclose(found[f"statics/{name}/stress"], stress, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", [name for name, case in STATIC.items() if case.model is argon])
def test_argon_is_a_sum_over_every_image(name, n_ranks, answers):
    found, atoms = answers(n_ranks), STATIC[name].atoms()
    atoms.wrap()
    energy, forces, virial = brute_force.lennard_jones(atoms, EPSILON, SIGMA, CUTOFF)
    assert found[f"statics/{name}/energy"] == pytest.approx(energy, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(found[f"statics/{name}/forces"], forces, rtol=0, atol=1e-11)
    stress = -virial / atoms.get_volume() if all(atoms.pbc) else np.full((3, 3), np.nan)
    np.testing.assert_allclose(found[f"statics/{name}/stress"], stress, rtol=0, atol=1e-13)


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", [name for name, case in CASEBOOK.items() if case.energy is not None])
def test_the_energy_is_that_of_the_casebook(name, n_ranks, answers):
    case = CASEBOOK[name]
    assert answers(n_ranks)[f"statics/{name}/energy"] == pytest.approx(case.energy, rel=0, abs=case.tolerance)
