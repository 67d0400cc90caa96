"""Energies, temperature and pressure against ASE's, and the file that keeps them."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
import torch
from ase import Atoms, units
from ase.calculators.lj import LennardJones as AseLennardJones

from mdrun.comm import Comm
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.base import Forces
from mdrun.run.simulation import Observer, Simulation
from mdrun.run.thermo import CELL, COLUMNS, TENSOR, Thermo, ThermoFile, Thermometer
from mdrun.units import FS
from tests.systems import argon, free_particles, pfcc, simulate

HEADER = (
    "step,time_ps,temperature_K,potential_eV,kinetic_eV,total_eV,pressure_GPa,volume_A3,conserved_eV,enthalpy_eV,"
    "density_g_cm3,pxx_GPa,pyy_GPa,pzz_GPa,pyz_GPa,pxz_GPa,pxy_GPa,a_A,b_A,c_A,alpha_deg,beta_deg,gamma_deg"
)


def moving(atoms: Atoms, seed: int = 1) -> Atoms:
    """With momenta whose sum is not zero."""
    atoms.set_momenta(np.random.default_rng(seed).normal(0.2, 1.0, size=(len(atoms), 3)))
    return atoms


def sheared() -> Atoms:
    atoms = pfcc(2, 2, 2)
    atoms.set_cell(atoms.cell.array @ [[0.97, 0.02, 0], [0, 1.01, -0.05], [0.03, 0, 0.95]], scale_atoms=True)
    return atoms


def left_handed() -> Atoms:
    atoms = pfcc(2, 2, 2)
    atoms.cell[:] = atoms.cell.array[::-1]
    return atoms


def measured(atoms: Atoms, model=None) -> Thermo:
    return simulate(atoms, model or argon(shift=True), VelocityVerlet(FS), 0).thermo[0]


every_cell = pytest.mark.parametrize(
    "make", [lambda: pfcc(2, 2, 2), sheared, left_handed], ids=["cube", "sheared", "left_handed"]
)


@every_cell
def test_pressure_has_the_momentum_and_the_virial_of_ase(make):
    atoms = moving(make())
    thermo = measured(atoms)
    atoms.calc = AseLennardJones(sigma=3.4, epsilon=0.0104, rc=8.5)
    stress = atoms.get_stress(include_ideal_gas=True)
    assert thermo.pressure_GPa == pytest.approx(-stress[:3].mean() / units.GPa, rel=1e-10)
    assert thermo.volume_A3 == pytest.approx(atoms.get_volume(), rel=1e-13)
    assert thermo.kinetic_eV == pytest.approx(atoms.get_kinetic_energy(), rel=1e-13)
    assert thermo.potential_eV == pytest.approx(atoms.get_potential_energy(), rel=1e-12)
    assert thermo.total_eV == pytest.approx(atoms.get_total_energy(), rel=1e-12)
    assert thermo.temperature_K == pytest.approx(atoms.get_temperature(), rel=1e-13)  # 3N: the sum moves
    static = atoms.get_stress(voigt=False)
    np.testing.assert_allclose(thermo.stress, static, rtol=0, atol=1e-13)
    np.testing.assert_allclose(np.array(thermo.pressure_tensor) * units.GPa, -stress, rtol=0, atol=1e-13)
    assert np.mean(thermo.pressure_tensor[:3]) == pytest.approx(thermo.pressure_GPa, rel=1e-14)


@every_cell
def test_density_lengths_and_angles_are_those_of_ase(make):
    atoms = make()
    thermo = measured(atoms)
    grams, cm3 = atoms.get_masses().sum() / (units.kg / 1000), atoms.get_volume() / (units.m / 100) ** 3
    assert thermo.density_g_cm3 == pytest.approx(grams / cm3, rel=1e-13)
    np.testing.assert_allclose(thermo.cell_parameters, atoms.cell.cellpar(), rtol=1e-13)


class Pressed(VelocityVerlet):
    """Newton's motion that says it aims at a pressure."""

    pressure = 2.5 * units.GPa


def test_enthalpy_is_that_of_the_barostats_pressure_else_of_the_measured():
    atoms = moving(pfcc(2, 2, 2))
    free = measured(atoms)
    assert free.enthalpy_eV == pytest.approx(free.total_eV + free.pressure_GPa * units.GPa * 10.52**3, rel=1e-13)
    (pressed,) = simulate(atoms, argon(shift=True), Pressed(FS), 0).thermo
    assert pressed.enthalpy_eV == pytest.approx(free.total_eV + 2.5 * units.GPa * 10.52**3, rel=1e-13)


def test_free_particles_have_the_pressure_of_an_ideal_gas():
    """P V = N k T with T of 3N degrees of freedom."""
    thermo = measured(moving(pfcc(2, 2, 2)), free_particles())
    expected = 32 * units.kB * thermo.temperature_K / 10.52**3 / units.GPa
    assert thermo.pressure_GPa == pytest.approx(expected, rel=1e-12)
    assert thermo.potential_eV == 0


def test_pressure_is_the_casebooks_where_nothing_moves():
    assert measured(pfcc(4, 4, 4), argon()).pressure_GPa == pytest.approx(0.158325114, abs=1e-9)
    assert measured(pfcc(2, 2, 2), argon()).pressure_GPa == pytest.approx(0.142511538, abs=1e-9)


@pytest.mark.parametrize("pbc", [(True, True, False), (False, True, True), (False, False, True), (False,) * 3])
def test_an_open_axis_leaves_pressure_volume_and_stress_unknown(pbc):
    atoms = moving(pfcc(2, 2, 2))
    atoms.pbc = pbc
    thermo = measured(atoms)
    assert math.isnan(thermo.pressure_GPa)
    assert math.isnan(thermo.volume_A3)
    assert math.isnan(thermo.density_g_cm3)
    assert math.isnan(thermo.enthalpy_eV)
    assert np.isnan(thermo.pressure_tensor).all()
    assert torch.isnan(thermo.stress).all()
    lengths, angles = thermo.cell_parameters[:3], thermo.cell_parameters[3:]
    assert [math.isnan(length) for length in lengths] == [not periodic for periodic in pbc]
    for axis, angle in enumerate(angles):  # between the two others
        assert math.isnan(angle) == (not (pbc[axis - 2] and pbc[axis - 1]))
    assert math.isfinite(thermo.total_eV)
    assert thermo.temperature_K == pytest.approx(atoms.get_temperature(), rel=1e-13)


class WithoutVirial:
    name, cutoff = "no stress", 8.5

    def __call__(self, domain, totals):
        forces = argon()(domain, totals)
        return Forces(forces.forces, forces.energy)


def test_a_model_without_stress_runs_and_its_pressure_is_unknown():
    run, usual = (simulate(moving(pfcc(2, 2, 2)), model, VelocityVerlet(FS), 3) for model in (WithoutVirial(), argon()))
    assert math.isnan(run.thermo[-1].pressure_GPa)
    assert torch.isnan(run.thermo[-1].stress).all()
    assert run.thermo[-1].volume_A3 == pytest.approx(10.52**3)
    assert run.thermo[-1].total_eV == pytest.approx(usual.thermo[-1].total_eV, rel=1e-12)


def test_time_is_steps_in_picoseconds():
    run = simulate(pfcc(2, 2, 2), argon(), VelocityVerlet(2.5 * FS), 40, watch=20)
    assert [t.time_ps for t in run.thermo] == pytest.approx([0, 0.05, 0.1], rel=1e-12)


def rows_of(path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_file_has_the_columns_of_the_contract_and_every_digit(tmp_path):
    path, thermometer = tmp_path / "thermo.csv", Thermometer(Comm())
    run = simulate(
        moving(pfcc(2, 2, 2)), argon(), VelocityVerlet(FS), 10, watch=2,
        observers=[Observer(2, ThermoFile(path, thermometer))],
    )  # fmt: skip
    text = path.read_text()
    assert text.splitlines()[0] == HEADER
    assert "\r" not in text
    rows = rows_of(path)
    assert [int(row["step"]) for row in rows] == [0, 2, 4, 6, 8, 10]
    for row, thermo in zip(rows, run.thermo, strict=True):
        assert [float(row[name]) for name in COLUMNS] == thermo.numbers()
        assert float(row["pressure_GPa"]) == thermo.pressure_GPa
        assert float(row["pxy_GPa"]) == thermo.pressure_tensor[5]
        assert float(row["gamma_deg"]) == thermo.cell_parameters[5]


def test_more_columns_follow_and_take_the_place_of_their_namesakes(tmp_path):
    more = {"enthalpy_eV": lambda: 1.5, "fmax_eV_A": lambda: 0.25}
    file = ThermoFile(tmp_path / "thermo.csv", Thermometer(Comm()), more)
    simulate(pfcc(2, 2, 2), argon(), VelocityVerlet(FS), 0, observers=[Observer(1, file)])
    (row,) = rows_of(tmp_path / "thermo.csv")
    assert ",".join(row) == f"{HEADER},fmax_eV_A"
    assert (row["enthalpy_eV"], row["fmax_eV_A"]) == ("1.5", "0.25")
    assert float(row["volume_A3"]) == pytest.approx(10.52**3)


def test_unknown_numbers_are_written_as_nan(tmp_path):
    atoms = pfcc(2, 2, 2)
    atoms.pbc = False
    file = ThermoFile(tmp_path / "thermo.csv", Thermometer(Comm()))
    simulate(atoms, argon(), VelocityVerlet(FS), 0, observers=[Observer(1, file)])
    (row,) = rows_of(tmp_path / "thermo.csv")
    for name in ("pressure_GPa", "volume_A3", "enthalpy_eV", "density_g_cm3", *TENSOR, *CELL):
        assert row[name] == "nan"


def test_rows_are_on_disk_while_the_run_goes_on(tmp_path):
    seen = []

    def look(sim: Simulation) -> None:
        seen.append(len(rows_of(tmp_path / "thermo.csv")))

    file = ThermoFile(tmp_path / "thermo.csv", Thermometer(Comm()))
    simulate(pfcc(2, 2, 2), argon(), VelocityVerlet(FS), 3, observers=[Observer(1, file), Observer(1, look)])
    assert seen == [1, 2, 3, 4]


def test_a_rank_that_does_not_write_measures_all_the_same():
    sums = []

    class Counting(Comm):
        def all_sum(self, values):
            sums.append(1)
            return super().all_sum(values)

    thermometer = Thermometer(Counting())
    observers = [Observer(1, ThermoFile(None, thermometer)), Observer(1, lambda sim: thermometer(sim) and None)]
    simulate(pfcc(2, 2, 2), argon(), VelocityVerlet(FS), 4, observers=observers)
    assert len(sums) == 5  # once a step, however many look
