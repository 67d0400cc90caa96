"""Checkpoints: whole or not there, in input order, and enough to go on from."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms

from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.errors import OutputError, SimulationError
from mdrun.integrate.nvt import Langevin
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.run.averages import Rows
from mdrun.run.changes import settings_of
from mdrun.run.checkpoint import FORMAT, CheckpointFile, write_whole
from mdrun.run.settings import Settings
from mdrun.run.simulation import Observer, Simulation, run, start
from mdrun.run.thermo import Thermometer
from mdrun.scope import Scope
from mdrun.state import FIELDS, State
from mdrun.units import FS, PS
from tests.systems import argon, pfcc, simulate

SETTINGS = Settings(structure="argon.extxyz", model="lj", seed=3, steps=100, replicate=(1, 2, 3))


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "checkpoint.npz"


def mixture() -> Atoms:
    """Every field of the state differs from atom to atom."""
    rng = np.random.default_rng(1)
    atoms = pfcc(2, 2, 2)
    atoms.numbers = rng.choice([18, 36], 32)
    atoms.set_masses(rng.uniform(20, 90, 32))
    atoms.set_initial_charges(rng.normal(size=32))
    atoms.set_momenta(rng.normal(0, 1.5, size=(32, 3)))
    atoms.positions += [40.0, 0.0, -25.0]  # outside of the cell
    return atoms


def checkpoint_file(path: Path | None) -> CheckpointFile:
    comm = Comm()
    return CheckpointFile(path, SETTINGS, {}, comm, lambda: {"thermo.csv": 12}, Rows(Thermometer(comm)))


def observed(path: Path | None, every: int) -> Observer:
    return Observer(every, checkpoint_file(path), needs_totals=False)


def load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def test_it_holds_every_field_of_every_atom_in_input_order(path):
    atoms = mixture()
    mobile = np.random.default_rng(2).random((32, 3)) > 0.2
    atoms.set_momenta(np.where(mobile, atoms.get_momenta(), 0))
    run = simulate(
        atoms, argon(n_types=2), VelocityVerlet(FS), 20, watch=20, mobile=mobile, observers=[observed(path, 20)]
    )
    kept = load(path)
    assert not np.array_equal(run.sim.state.ids, np.arange(32))  # rows are sorted in space
    more = {
        "checksum", "positions_then", "cell_then", "since_rebuild", "fresh_imbalance", "partition_axis",
        "partition_cut", "partition_lower", "partition_upper", "averages_rows", "averages_sum", "averages_counts",
        "rank_figures", "rank_shares",
    }  # fmt: skip
    assert set(kept) == {"cell", "pbc", "numbers", "meta", *more, *(field.name for field in FIELDS)}
    assert np.array_equal(kept["ids"], np.arange(32))
    assert np.array_equal(kept["numbers"][kept["types"]], atoms.numbers)
    assert np.array_equal(kept["masses"], atoms.get_masses())
    assert np.array_equal(kept["charges"], atoms.get_initial_charges())
    assert np.array_equal(kept["mobile"], mobile)
    assert np.array_equal(kept["positions"], run.positions[-1])
    assert np.array_equal(kept["momenta"], run.momenta[-1])
    assert np.array_equal(kept["cell"], atoms.cell.array)
    assert kept["pbc"].tolist() == [True] * 3
    for field in FIELDS:
        assert kept[field.name].shape == (32, *field.width)
        assert torch.from_numpy(kept[field.name]).dtype == field.dtype


def test_it_says_what_run_it_is_of(path):
    simulate(mixture(), argon(n_types=2), VelocityVerlet(FS), 6, observers=[observed(path, 3)])
    meta = json.loads(str(load(path)["meta"]))
    assert (meta["step"], meta["format"]) == (6, FORMAT)
    assert meta["outputs"] == {"thermo.csv": 12}
    assert settings_of(meta["settings"]) == SETTINGS


def test_the_one_before_is_kept_and_nothing_else_is(path):
    simulate(mixture(), argon(n_types=2), VelocityVerlet(FS), 9, observers=[observed(path, 2)])
    steps = {file.name: json.loads(str(load(file)["meta"]))["step"] for file in path.parent.iterdir()}
    assert steps == {"checkpoint.npz": 8, "checkpoint.previous.npz": 6}


def test_the_input_is_no_checkpoint_and_no_step_is_written_twice(path):
    file = checkpoint_file(path)
    simulate(mixture(), argon(n_types=2), VelocityVerlet(FS), 0, observers=[Observer(1, file)])
    assert not path.exists()
    both = [Observer(4, file), Observer(8, file)]  # the interval, and the end of the run
    simulate(mixture(), argon(n_types=2), VelocityVerlet(FS), 8, observers=both)
    assert json.loads(str(load(path)["meta"]))["step"] == 8
    assert json.loads(str(load(path.with_suffix(".previous.npz"))["meta"]))["step"] == 4


def test_a_rank_that_does_not_write_makes_no_file(tmp_path):
    simulate(mixture(), argon(n_types=2), VelocityVerlet(FS), 4, observers=[observed(None, 2)])
    assert not list(tmp_path.iterdir())


def state_from(kept: dict[str, np.ndarray]) -> State:
    fields = {field.name: torch.from_numpy(kept[field.name]) for field in FIELDS}
    numbers, pbc = tuple(int(z) for z in kept["numbers"]), tuple(bool(p) for p in kept["pbc"])
    return State(torch.from_numpy(kept["cell"]), pbc, numbers, n_total=len(kept["ids"]), **fields)


INTEGRATORS = [VelocityVerlet(2 * FS), Langevin(2 * FS, 60, 5 / PS, seed=3)]


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=["nve", "nvt"])
def test_it_is_enough_to_go_on_from(path, integrator):
    """60 steps from the checkpoint of step 40 end where 100 unbroken steps do, noise and all."""
    model = argon(shift=True, n_types=2)
    unbroken = simulate(mixture(), model, integrator, 100, observers=[observed(path, 40)])
    kept = load(path.with_suffix(".previous.npz"))
    meta = json.loads(str(kept["meta"]))
    assert meta["step"] == 40
    state, domain = state_from(kept), Domain(Comm(), model.cutoff, 1.0)
    with Scope(model, domain, state.n_total) as scope:
        sim = Simulation(state, domain, scope, integrator, unbroken.sim.n_dof, step=40)
        start(sim)
        run(sim, 60)
    order = sim.state.ids.argsort()
    np.testing.assert_allclose(sim.state.positions[order], unbroken.positions[-1], rtol=0, atol=1e-10)
    np.testing.assert_allclose(sim.state.momenta[order], unbroken.momenta[-1], rtol=0, atol=1e-10)


class GoneBad:
    """A model whose force on one atom is not a number from its eighth call on."""

    name, cutoff = "gone bad", 8.5

    def __init__(self) -> None:
        self.n_calls = 0

    def __call__(self, domain, totals):
        forces = argon(n_types=2)(domain, totals)
        self.n_calls += 1
        if self.n_calls > 7:
            forces.forces[3] = np.nan
        return forces


def test_a_bad_state_is_not_kept(path):
    with pytest.raises(SimulationError, match=r"step 7: .* not finite.* last good step is 6"):
        simulate(mixture(), GoneBad(), VelocityVerlet(FS), 20, observers=[observed(path, 1)])
    kept = load(path)
    assert json.loads(str(kept["meta"]))["step"] == 6
    assert np.isfinite(kept["positions"]).all()
    assert np.isfinite(kept["momenta"]).all()


# Writing


def test_a_write_that_fails_leaves_what_was_there(path, monkeypatch):
    write_whole(path, {}, step=np.array(1))
    write_whole(path, {}, step=np.array(2))
    whole = np.savez

    def break_off(file, **arrays):
        file.write(b"half of it")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", break_off)
    with pytest.raises(OutputError, match=r"checkpoint.npz can't be written: No space"):
        write_whole(path, {}, step=np.array(3))
    monkeypatch.setattr(np, "savez", whole)
    assert {p.name for p in path.parent.iterdir()} == {"checkpoint.npz", "checkpoint.previous.npz"}
    assert (load(path)["step"], load(path.with_suffix(".previous.npz"))["step"]) == (2, 1)
    write_whole(path, {}, step=np.array(4))
    assert (load(path)["step"], load(path.with_suffix(".previous.npz"))["step"]) == (4, 2)


def test_the_name_is_taken_only_after_the_bytes_are_on_the_disk(path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("fsync"), fsync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append(Path(b).name), replace(a, b))[1])
    write_whole(path, {}, step=np.array(1))
    write_whole(path, {}, step=np.array(2))
    first, second = (
        ["fsync", "checkpoint.npz", "fsync"],
        ["fsync", "checkpoint.previous.npz", "checkpoint.npz", "fsync"],
    )
    assert order == first + second  # the second fsync is of the directory


def test_objects_that_would_need_pickle_are_not_written(path):
    with pytest.raises(ValueError, match=r"[Oo]bject arrays"):
        write_whole(path, {}, anything=np.array([{}], dtype=object))
    assert not list(path.parent.iterdir())
