"""EAM: LAMMPS's numbers, ASE's calculator, and potentials made of polynomials, which splines must not change."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.eam import EAM as AseEAM
from ase.io import read
from numpy.polynomial import Polynomial as Poly

from mdrun.errors import InputError, SimulationError
from mdrun.potentials.base import UnknownSpecies
from mdrun.potentials.eam import EAM, hermite
from tests.eam_writer import FUNCFL_COULOMB, Polynomials, made_up, written
from tests.systems import DATA, empty_domain, evaluate, listed_pair, pfcc, species_of

REFERENCE, POTENTIALS = DATA / "reference", DATA / "potentials"


def cases() -> list[dict]:
    index = json.loads((REFERENCE / "index.json").read_text())
    return [case for case in index if case["model"]["kind"].startswith("eam")]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["file"])
def test_reference_files_are_met(case):
    """LAMMPS's numbers; the positions' eight decimals allow 5e-9 Å of error in each."""
    atoms = read(REFERENCE / case["file"])
    model = EAM.from_file(POTENTIALS / case["model"]["file"].split()[0], species_of(atoms))
    result, forces = evaluate(atoms, model), atoms.get_forces()
    assert result.energy == pytest.approx(case["energy_eV"], rel=1e-9, abs=5e-9 * np.abs(forces).sum())
    np.testing.assert_allclose(result.forces, forces, rtol=0, atol=1e-7)
    if all(atoms.pbc):
        np.testing.assert_allclose(result.stress, atoms.get_stress(voigt=False), rtol=0, atol=1e-8)
    else:
        assert result.stress is None


@pytest.mark.parametrize(
    ("structure", "file", "form"),
    [("eam_cu256", "Cu_mishin1.eam.alloy", "alloy"), ("eamfs_fe250", "Fe_mm.eam.fs", "fs")],
)
def test_forces_on_fine_grids_are_those_of_ase(structure, file, form):
    """ASE's splines are others, but 10,000 points leave them no room. Its funcfl has other units: not comparable."""
    atoms = read(REFERENCE / f"{structure}.extxyz")
    atoms.rattle(0.05, seed=3)
    result = evaluate(atoms, EAM.from_file(POTENTIALS / file, species_of(atoms)))
    atoms.calc = AseEAM(potential=str(POTENTIALS / file), form=form)
    assert result.energy == pytest.approx(atoms.get_potential_energy(), rel=1e-8)
    np.testing.assert_allclose(result.forces, atoms.get_forces(), rtol=0, atol=1e-6)


# Potentials that are polynomials


def alloy(symbols: list[str], a: float = 4.2) -> Atoms:
    atoms = pfcc(2, 2, 2, a)
    atoms.set_chemical_symbols(np.random.default_rng(2).choice(symbols, len(atoms)))
    return atoms


def compare(atoms: Atoms, model: EAM, truth: Polynomials) -> None:
    result = evaluate(atoms, model)
    energy, forces, virial = truth.exact(atoms)
    assert result.energy == pytest.approx(energy, rel=1e-12)
    np.testing.assert_allclose(result.forces, forces, rtol=0, atol=1e-12 * max(1, np.abs(forces).max()))
    if all(atoms.pbc):
        np.testing.assert_allclose(result.stress, -virial / atoms.get_volume(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("finnis_sinclair", [False, True], ids=["alloy", "fs"])
@pytest.mark.parametrize(
    ("in_file", "in_structure"),
    [
        (["Cu"], ["Cu"]),
        (["Ni", "Cu"], ["Cu", "Ni"]),
        (["Cu", "Ni"], ["Ni", "Cu"]),
        (["Zr", "Al", "Cu"], ["Al", "Cu", "Zr"]),
        (["Zr", "Al", "Cu"], ["Cu", "Zr"]),
        (["Zr", "Al", "Cu"], ["Al"]),
    ],
)
def test_every_element_and_pair_has_its_own_functions(tmp_path, in_file, in_structure, finnis_sinclair):
    truth = made_up(in_file, finnis_sinclair)
    path = written(tmp_path / f"x.eam.{'fs' if finnis_sinclair else 'alloy'}", truth.setfl(finnis_sinclair))
    atoms = alloy(in_structure)
    compare(atoms, EAM.from_file(path, species_of(atoms)), truth)


def test_the_pair_energy_of_funcfl_is_the_square_of_a_charge(tmp_path):
    truth, charge = made_up(["Cu"]), Poly([4.0, -0.8])
    path = written(tmp_path / "Cu.eam", truth.funcfl(charge))
    truth.r_phi = [[FUNCFL_COULOMB * charge**2]]
    compare(alloy(["Cu"]), EAM.from_file(path, (29,)), truth)


def test_pairs_end_at_the_cutoff_of_the_file(tmp_path):
    truth = made_up(["Cu"])
    truth.density, truth.r_phi = [[Poly([1.0])]], [[Poly([0.0, 1.0])]]  # 1 and φ = 1 up to the end
    model = EAM.from_file(written(tmp_path / "Cu.eam.alloy", truth.setfl(False)), (29,))
    assert model.cutoff == 5.0
    alone = 2 * truth.embedding[0](0.0)
    for distance, inside in ((5 - 1e-9, True), (5 + 1e-9, False)):
        energy = evaluate(Atoms("Cu2", positions=[[0, 0, 0], [0, distance, 0]]), model).energy
        assert energy == pytest.approx(2 * truth.embedding[0](1.0) + 1 if inside else alone, rel=1e-12)


def dimer_energy(model: EAM, distance: float) -> float:
    return evaluate(Atoms("Cu2", positions=[[0, 0, 0], [distance, 0, 0]]), model).energy


def test_beyond_its_table_the_embedding_goes_on_as_a_straight_line(tmp_path):
    """LAMMPS: F(ρ) = F(end) + F'(end) (ρ - end), the slope at the end being the last difference."""
    truth = made_up(["Cu"])
    truth.n_rho, truth.d_rho = 20, 0.01
    truth.r_phi = [[Poly([0.0])]]
    model = EAM.from_file(written(tmp_path / "Cu.eam.alloy", truth.setfl(False)), (29,))
    end, (last, before) = 0.19, truth.embedding[0](np.array([0.19, 0.18]))
    for distance in (2.0, 2.5):
        rho = truth.density[0][0](distance)
        assert rho > 2 * end
        expected = last + (last - before) / 0.01 * (rho - end)
        assert dimer_energy(model, distance) == pytest.approx(2 * expected, rel=1e-12)
    forces_are_the_slope(model, 2.0)


def forces_are_the_slope(model: EAM, distance: float) -> None:
    result = evaluate(Atoms("Cu2", positions=[[0, 0, 0], [distance, 0, 0]]), model)
    slope = (dimer_energy(model, distance + 1e-5) - dimer_energy(model, distance - 1e-5)) / 2e-5
    assert abs(slope) > 1e-3
    assert result.forces[1, 0] == pytest.approx(-slope, rel=1e-7)


def test_a_negative_density_continues_the_first_cubic(tmp_path):
    """As in LAMMPS; above all, forces remain the derivative of the energy."""
    truth = made_up(["Cu"])
    truth.density, truth.d_rho = [[-truth.density[0][0]]], 0.1
    model = EAM.from_file(written(tmp_path / "Cu.eam.alloy", truth.setfl(False)), (29,))
    f = truth.embedding[0](np.arange(3) * 0.1)
    slopes = f[1] - f[0], (f[2] - f[0]) / 2
    p = truth.density[0][0](4.0) / 0.1
    assert p < -1
    rise = f[1] - f[0]
    cubic = Poly([f[0], slopes[0], 3 * rise - 2 * slopes[0] - slopes[1], slopes[0] + slopes[1] - 2 * rise])
    assert dimer_energy(model, 4.0) == pytest.approx(2 * cubic(p) + truth.r_phi[0][0](4.0) / 4.0, rel=1e-12)
    forces_are_the_slope(model, 4.0)


def test_cubics_pass_through_the_points_with_the_slopes_of_lammps():
    f = np.random.default_rng(1).normal(size=12)
    slope = np.empty(12)
    slope[0], slope[1], slope[-2], slope[-1] = f[1] - f[0], (f[2] - f[0]) / 2, (f[-1] - f[-3]) / 2, f[-1] - f[-2]
    for k in range(2, 10):
        slope[k] = (f[k - 2] - 8 * f[k - 1] + 8 * f[k + 1] - f[k + 2]) / 12
    for k, coefficients in enumerate(hermite(f)[:-1]):
        cubic = Poly(coefficients[::-1])
        assert (cubic(0.0), cubic(1.0)) == pytest.approx((f[k], f[k + 1]))
        assert (cubic.deriv()(0.0), cubic.deriv()(1.0)) == pytest.approx((slope[k], slope[k + 1]))


# Evaluation at the edges


def copper(tmp_path) -> EAM:
    return EAM.from_file(written(tmp_path / "Cu.eam.alloy", made_up(["Cu"]).setfl(False)), (29,))


@pytest.mark.parametrize("distance", [0.0, np.nan])
def test_impossible_positions_show_in_the_forces(tmp_path, distance):
    assert torch.isnan(copper(tmp_path)(listed_pair(distance), totals=True).forces[:, 0]).all()


def test_a_run_is_stopped_by_an_impossible_position(tmp_path):
    atoms = Atoms("Cu2", positions=[[0, 0, 0], [0, 0, 0]])
    with pytest.raises(SimulationError, match="atoms"):
        evaluate(atoms, copper(tmp_path))


def test_forces_without_totals_are_the_same_and_nothing_else_comes(tmp_path):
    alone, full = (copper(tmp_path)(listed_pair(2.3), totals) for totals in (False, True))
    assert alone.energy is None
    assert alone.virial is None
    torch.testing.assert_close(alone.forces, full.forces, rtol=1e-13, atol=0)


def test_a_rank_that_owns_nothing_gets_empty_forces(tmp_path):
    result = copper(tmp_path)(empty_domain(), totals=True)
    assert result.forces.shape == (0, 3)
    assert result.energy == 0
    assert not result.virial.any()


def test_an_atom_alone_has_the_embedding_of_nothing(tmp_path):
    result = evaluate(Atoms("Cu", positions=[[1, 2, 3]]), copper(tmp_path))
    assert result.energy == pytest.approx(made_up(["Cu"]).embedding[0](0.0), rel=1e-13)
    assert not result.forces.any()


def test_species_that_the_file_lacks_are_named():
    with pytest.raises(UnknownSpecies, match=r"CuNi\.eam\.alloy.*Ar, Fe; it knows Ni, Cu") as caught:
        EAM.from_file(POTENTIALS / "CuNi.eam.alloy", (18, 26, 29))
    assert caught.value.numbers == (18, 26)
    with pytest.raises(InputError, match="no parameters for Ni; it knows Cu"):
        EAM.from_file(POTENTIALS / "Cu_u3.eam", (28,))
