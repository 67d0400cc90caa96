"""Energy, forces and stress on any number of ranks against other programs and against sums over every image."""

from __future__ import annotations

import numpy as np
import pytest
from ase.calculators.calculator import PropertyNotImplementedError
from ase.calculators.emt import EMT as AseEMT

from tests.ranks import brute_force
from tests.ranks.cases import CASEBOOK, CUTOFF, EPSILON, REFERENCE, SIGMA, STATIC, WITH_EMT, argon, reference_atoms

ROUNDING = 5e-9  # Å: the positions in the reference files carry eight decimals


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("file", REFERENCE)
def test_energy_forces_and_stress_are_those_of_lammps(file, n_ranks, answers):
    found, expected = answers(n_ranks), reference_atoms(file)
    forces = expected.get_forces()
    energy = REFERENCE[file]["energy_eV"]
    assert found[f"statics/{file}/energy"] == pytest.approx(energy, rel=1e-9, abs=ROUNDING * np.abs(forces).sum())
    np.testing.assert_allclose(found[f"statics/{file}/forces"], forces, rtol=0, atol=1e-7)
    try:
        stress = expected.get_stress(voigt=False)
    except PropertyNotImplementedError:  # the slab has no volume
        stress = np.full((3, 3), np.nan)
    np.testing.assert_allclose(found[f"statics/{file}/stress"], stress, rtol=0, atol=1e-8)


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
