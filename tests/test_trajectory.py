"""Trajectories as ASE reads them back."""

from __future__ import annotations

from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.calculators.lj import LennardJones as AseLennardJones
from ase.constraints import FixAtoms, FixCartesian
from ase.io import read

from mdrun.comm import Comm
from mdrun.integrate.base import Integrator
from mdrun.integrate.nvt import Langevin
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.base import ForceModel
from mdrun.run.simulation import Observer
from mdrun.run.thermo import Thermometer
from mdrun.run.trajectories import text
from mdrun.run.trajectory import TrajectoryFile, move_mask
from mdrun.structures import load_structure
from mdrun.units import FS, PS
from tests.systems import Run, argon, free_particles, pfcc, simulate

DIGITS = 6e-9  # half of the eighth decimal, which is the last in the file


def recorded(
    atoms: Atoms, path: Path, n_steps: int = 0, every: int = 1, model: ForceModel | None = None,
    integrator: Integrator | None = None, mobile: np.ndarray | None = None,
) -> tuple[Run, list[Atoms]]:  # fmt: skip
    """A run whose every watched step is also a frame, and the frames."""
    comm = Comm()
    frames = TrajectoryFile(path.parent, atoms.copy(), comm, Thermometer(comm))
    run = simulate(
        atoms, model or argon(shift=True), integrator or VelocityVerlet(2 * FS), n_steps, watch=every,
        mobile=mobile, observers=[Observer(every, frames)],
    )  # fmt: skip
    frames.close()
    return run, read(path, ":")


def moving(atoms: Atoms) -> Atoms:
    atoms.set_momenta(np.random.default_rng(1).normal(0, 1.0, size=(len(atoms), 3)))
    return atoms


def sheared() -> Atoms:
    """All six components of stress differ."""
    atoms = moving(pfcc(2, 2, 2))
    atoms.set_cell(atoms.cell.array @ [[0.97, 0.02, 0], [0, 1.01, -0.05], [0.03, 0, 0.95]], scale_atoms=True)
    return atoms


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "trajectory.extxyz"


def test_frames_hold_what_ase_computes_for_their_positions(path):
    """Energy, forces, and stress with ASE's sign and order of components, of the positions in the same frame."""
    _, frames = recorded(sheared(), path, n_steps=40, every=10)
    assert len(frames) == 5
    for frame in frames:
        fresh = frame.copy()
        fresh.calc = AseLennardJones(sigma=3.4, epsilon=0.0104, rc=8.5)
        assert frame.get_potential_energy() == pytest.approx(fresh.get_potential_energy(), abs=1e-7)
        np.testing.assert_allclose(frame.get_forces(), fresh.get_forces(), rtol=0, atol=1e-7)
        np.testing.assert_allclose(frame.get_stress(), fresh.get_stress(), rtol=0, atol=1e-9)
        assert len(set(np.abs(fresh.get_stress()).round(6))) == 6


def test_frames_hold_the_positions_and_velocities_of_the_run_in_input_order(path):
    atoms = sheared()
    atoms.set_masses(np.linspace(20, 60, 32))
    run, frames = recorded(atoms, path, n_steps=30, every=10)
    assert not np.array_equal(run.sim.state.ids, np.arange(32))  # rows are sorted in space
    for k, frame in enumerate(frames):
        np.testing.assert_allclose(frame.positions, run.positions[k], rtol=0, atol=DIGITS)
        np.testing.assert_allclose(frame.get_momenta(), run.momenta[k], rtol=0, atol=DIGITS)
        velocities = run.momenta[k] / atoms.get_masses()[:, None]
        np.testing.assert_allclose(frame.get_velocities(), velocities, rtol=0, atol=DIGITS)
        assert frame.get_kinetic_energy() == pytest.approx(run.thermo[k].kinetic_eV, abs=1e-6)
        assert frame.info["step"] == 10 * k
        assert frame.info["time_ps"] == pytest.approx(0.02 * k)
    np.testing.assert_allclose(frames[0].positions, atoms.positions, rtol=0, atol=DIGITS)


def test_positions_stay_unwrapped_when_atoms_leave_the_cell(path):
    """Free atoms fly straight on, several cells far, from places that were outside to begin with."""
    atoms = moving(pfcc(2, 2, 2))
    atoms.positions += [100.0, -57.0, 3.0]
    atoms.set_momenta(atoms.get_momenta() + np.array([100.0, -80.0, 0.0]))
    _, frames = recorded(atoms, path, n_steps=80, every=40, model=free_particles())
    velocities = atoms.get_velocities()
    assert np.abs(velocities * 160 * FS).max() > 3 * 10.52
    for k, frame in enumerate(frames):
        np.testing.assert_allclose(frame.positions, atoms.positions + velocities * 80 * k * FS, rtol=0, atol=1e-7)
        np.testing.assert_allclose(frame.cell.array, atoms.cell.array, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n_steps", "every", "n_frames"), [(0, 1, 1), (10, 4, 3), (12, 4, 4), (3, 5, 1)])
def test_there_is_a_frame_at_step_0_and_on_every_multiple(path, n_steps, every, n_frames):
    _, frames = recorded(moving(pfcc(1, 1, 2)), path, n_steps, every)
    assert [frame.info["step"] for frame in frames] == [every * k for k in range(n_frames)]


def test_what_the_file_said_of_the_atoms_is_kept(path):
    atoms = moving(pfcc(2, 2, 2))
    atoms.set_masses(np.linspace(20, 60, 32))
    atoms.set_initial_charges(np.linspace(-1, 1, 32))
    atoms.set_tags(np.arange(32) % 5)
    atoms.set_array("site_energy", np.linspace(0, 3.2, 32))
    atoms.info["origin"] = "melted twice"
    _, frames = recorded(atoms, path, n_steps=5, every=5)
    for frame in frames:
        np.testing.assert_allclose(frame.get_masses(), atoms.get_masses(), rtol=0, atol=DIGITS)
        np.testing.assert_allclose(frame.get_initial_charges(), atoms.get_initial_charges(), rtol=0, atol=DIGITS)
        assert np.array_equal(frame.get_tags(), atoms.get_tags())
        np.testing.assert_allclose(frame.get_array("site_energy"), atoms.get_array("site_energy"), rtol=0, atol=DIGITS)
        assert frame.info["origin"] == "melted twice"
        assert frame.get_chemical_symbols() == atoms.get_chemical_symbols()
        assert frame.pbc.all()


@pytest.mark.parametrize("kind", ["whole_atoms", "components"])
def test_constraints_come_back_and_forces_on_fixed_atoms_are_the_raw_ones(path, kind):
    atoms = moving(pfcc(2, 2, 2))
    mobile = np.ones((32, 3), bool)
    if kind == "whole_atoms":
        mobile[:5] = False
        atoms.set_constraint(FixAtoms(indices=range(5)))
    else:
        mobile[:5, 2] = False
        atoms.set_constraint(FixCartesian(range(5), mask=[False, False, True]))
    atoms.set_momenta(np.where(mobile, atoms.get_momenta(), 0.0))
    run, frames = recorded(atoms, path, n_steps=20, every=20, mobile=mobile)
    last = frames[-1]
    assert np.array_equal(load_structure(path).mobile, mobile)
    np.testing.assert_allclose(last.positions, run.positions[-1], rtol=0, atol=DIGITS)
    np.testing.assert_allclose(last.positions[~mobile], atoms.positions[~mobile], rtol=0, atol=DIGITS)
    assert not last.get_forces()[~mobile].any()  # ASE takes constraints off
    free = last.copy()
    free.set_constraint()
    free.calc = AseLennardJones(sigma=3.4, epsilon=0.0104, rc=8.5)
    np.testing.assert_allclose(last.get_forces(apply_constraint=False), free.get_forces(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("cell", [[10.52, 10.52, 30.0], [10.52, 10.52, 0.0]])
def test_a_slab_has_no_stress_and_keeps_the_cell_of_the_file(path, cell):
    atoms = moving(pfcc(2, 2, 2))
    atoms.set_cell(np.diag(cell))
    atoms.pbc = (True, True, False)
    _, frames = recorded(atoms, path, n_steps=2)
    for frame in frames:
        assert "stress" not in frame.calc.results
        assert frame.pbc.tolist() == [True, True, False]
        np.testing.assert_allclose(frame.cell.array[:2], np.diag(cell)[:2], rtol=0, atol=1e-12)


def test_a_molecule_without_a_cell_is_written_without_one(path):
    _, frames = recorded(Atoms("Ar2", positions=[[0, 0, 0], [3.8, 0, 0]]), path, n_steps=2)
    assert not frames[-1].pbc.any()
    assert not frames[-1].cell.array.any()
    assert frames[0].get_potential_energy() == pytest.approx(-0.010223204052, abs=1e-10)  # casebook


def test_a_frame_is_a_structure_that_the_run_goes_on_from(path):
    """Newton's motion again, from the eight decimals of the frame in the middle."""
    atoms = moving(pfcc(2, 2, 2))
    run, _ = recorded(atoms, path, n_steps=40, every=20)
    structure = load_structure(path, index=1)
    assert structure.has_velocities
    again = simulate(structure.atoms, argon(shift=True), VelocityVerlet(2 * FS), 20)
    np.testing.assert_allclose(again.positions[-1], run.positions[-1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_rows", [5, 1000])
def test_a_frame_is_what_ase_writes_byte_for_byte(path, n_rows, monkeypatch):
    """Strings, whole numbers, flags and vectors as columns, and the header with all that ``info`` may hold."""
    monkeypatch.setattr(text, "ROWS_AT_ONCE", n_rows)
    atoms = moving(pfcc(2, 2, 2))
    atoms.numbers[::3] = 36
    atoms.set_tags(np.arange(32) % 5)
    atoms.set_array("label", np.array([f"site{i}" for i in range(32)]))
    atoms.set_array("dipole", np.random.default_rng(2).normal(size=(32, 3)))
    atoms.set_array("seen", np.arange(32) % 2 == 0)
    atoms.info.update(origin='melted "twice"', count=3, matrix=np.eye(3), flag=True, pair=np.array([1, 2]))
    atoms.set_constraint([FixAtoms([3, 4]), FixCartesian([7], mask=[True, False, True])])
    with path.open("w") as file:
        columns = {"positions": atoms.positions, **move_mask(load_mask(atoms))}
        rest = {name: v for name, v in atoms.arrays.items() if name not in ("numbers", "positions")}
        text.write_frame(file, atoms, atoms.numbers, columns | rest)
    ase.io.write(path.with_name("ase.extxyz"), atoms)
    assert path.read_text() == path.with_name("ase.extxyz").read_text()


def load_mask(atoms: Atoms) -> np.ndarray:
    mobile = np.ones((len(atoms), 3), bool)
    mobile[[3, 4]] = False
    mobile[7] = [False, True, False]
    return mobile


def test_frames_can_be_read_while_the_run_goes_on(path):
    seen = []
    comm, atoms = Comm(), moving(pfcc(1, 1, 2))
    frames = TrajectoryFile(path.parent, atoms.copy(), comm, Thermometer(comm))
    observers = [Observer(1, frames), Observer(1, lambda sim: (frames.flush(), seen.append(len(read(path, ":")))))]
    simulate(atoms, argon(), Langevin(FS, 50, 1 / PS, 1), 3, observers=observers)
    assert seen == [1, 2, 3, 4]


def test_a_rank_that_does_not_write_makes_no_file(tmp_path):
    comm = Comm()
    frames = TrajectoryFile(None, None, comm, Thermometer(comm))
    simulate(pfcc(1, 1, 2), argon(), VelocityVerlet(FS), 2, observers=[Observer(1, frames)])
    assert not list(tmp_path.iterdir())
