"""Runs by torch beside runs by Numba: trajectories, room that is kept, ranks, the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import ase.io
import numpy as np
import pytest
import torch
from ase import Atoms
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from mdrun import units
from mdrun.backends.on_torch import TorchBackend
from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.errors import SimulationError
from mdrun.integrate.nvt import Langevin
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.neighbors.torch_list import TorchNeighborList
from mdrun.potentials.base import ForceModel, Forces
from mdrun.potentials.torch_models import NoTorchPath, on_torch
from mdrun.run.devices import with_devices
from mdrun.run.settings import Settings
from mdrun.run.setup import where_the_model_runs
from mdrun.run.simulation import Observer, Simulation, run, start
from mdrun.scope import Scope
from tests.cli.launcher import call
from tests.ranks.builders import warmed
from tests.ranks.cases import argon
from tests.ranks.jobs.torch_backend import STILL, run_one
from tests.ranks.jobs.torch_backend import SYSTEMS as MOVING
from tests.ranks.launcher import launch
from tests.systems import evaluate, pfcc, simulate, state_of
from tests.test_torch_backend import CPU, DEVICES, SYSTEMS


@pytest.fixture(params=DEVICES)
def backend(request) -> TorchBackend:
    return TorchBackend(request.param, looks_late=False)  # as Numba's


@pytest.fixture(params=DEVICES)
def late(request) -> TorchBackend:
    return TorchBackend(request.param, looks_late=True)  # as on a GPU


@pytest.fixture(autouse=True)
def eagerly(request) -> Iterator[None]:
    with torch.compiler.set_stance("default" if "compiled" in request.node.name else "force_eager"):
        yield


@pytest.fixture(scope="module")
def crystal(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("crystal") / "crystal.extxyz"
    ase.io.write(path, pfcc(2, 2, 2))
    return path


@pytest.mark.parametrize("name", ["liquid", "small triclinic cell", "cluster in the open"])
@pytest.mark.parametrize("ensemble", ["nve", "langevin"])
def test_a_hundred_steps_agree(name, ensemble, backend):
    follow_each_other(warmed(SYSTEMS[name](), 40.0), argon, ensemble, backend)


@pytest.mark.parametrize("name", ["gold with copper", "silicon carbide", "silicon"])
def test_a_hundred_steps_of_many_bodies_agree(name, backend):
    make_atoms, make_model = MOVING[name]
    follow_each_other(make_atoms(), make_model, "nve", backend)


def follow_each_other(atoms: Atoms, make_model: Callable, ensemble: str, backend: TorchBackend) -> None:
    runs = []
    for model, where in ((make_model(atoms), CPU), (on_torch(make_model(atoms)), backend)):
        integrator = VelocityVerlet(2 * units.FS) if ensemble == "nve" else Langevin(2 * units.FS, 40.0, 0.05, seed=3)
        runs.append(simulate(atoms, model, integrator, 100, watch=50, skin=0.3, backend=where))
    theirs, ours = runs
    assert ours.sim.domain.counts.rebuilds == theirs.sim.domain.counts.rebuilds
    np.testing.assert_allclose(ours.positions, theirs.positions, rtol=0, atol=1e-8)
    np.testing.assert_allclose(ours.total_energies, theirs.total_energies, rtol=1e-9)


def test_a_look_every_few_steps_finds_what_was_outrun(backend):
    atoms = warmed(pfcc(3, 3, 3), 300.0)
    counts = []
    for model, where in ((argon(atoms), CPU), (on_torch(argon(atoms)), backend)):
        run = simulate(atoms, model, VelocityVerlet(4 * units.FS), 60, skin=0.2, backend=where, check_every=4)
        counts.append((run.sim.domain.counts.rebuilds, run.sim.domain.counts.dangerous_builds))
    assert counts[0] == counts[1]
    assert counts[0][1] > 0


# Numbers that are read when the next step has begun


@pytest.mark.parametrize("name", ["liquid", "drifting cluster", "alloy", "gold with copper", "silicon carbide"])
def test_a_rebuild_that_comes_a_step_late_comes_in_time(name, late):
    make_atoms, make_model = MOVING[name]
    atoms, runs = make_atoms(), []
    for model, where in ((make_model(atoms), CPU), (on_torch(make_model(atoms)), late)):
        runs.append(simulate(atoms, model, VelocityVerlet(2 * units.FS), 100, watch=50, skin=0.3, backend=where))
    theirs, ours = runs
    assert ours.sim.domain.counts.rebuilds > 1
    assert ours.sim.domain.counts.dangerous_builds == 0
    np.testing.assert_allclose(ours.positions, theirs.positions, rtol=0, atol=1e-8)
    np.testing.assert_allclose(ours.total_energies, theirs.total_energies, rtol=1e-9)


def test_an_atom_that_outruns_the_late_look_is_counted(late):
    atoms = pfcc(3, 3, 3)
    model, state = on_torch(argon(atoms)), state_of(atoms)
    state.move_to(late.device)
    domain = Domain(Comm(), model.cutoff, 1.0, backend=late)
    rebuilds = []
    # Half the skin is 0.5 Å. Read at once until a rebuild comes after five steps; then 0.3 Å are foreseen from 0.1 Å.
    for moved in (0, 0, 0, 0, 0, 0.6, 0, 0.1, 0.6, 0):
        state.positions[5, 0] += moved
        domain.follow(state)
        domain.look_back(state)
        rebuilds.append(domain.counts.rebuilds)
    assert rebuilds == [1, 1, 1, 1, 1, 2, 2, 2, 2, 3]
    assert domain.counts.dangerous_builds == 1


@contextmanager
def nothing_is_read(device: torch.device) -> Iterator[None]:
    """Whatever would wait for a device is an error."""
    if device.type == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        with NoReads() if device.type == "cpu" else nullcontext():
            yield
    finally:
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")


class NoReads(TorchDispatchMode):
    """On a CPU: operations that give the host a number, or a shape that depends on numbers."""

    READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique", "repeat_interleave")

    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        is_of_the_host = name == "equal" and args[0].shape == (3, 3)  # cells are the host's
        assert is_of_the_host or not name.startswith(self.READS), f"{function} reads a device"
        if name.startswith("index"):
            indices = [i for part in args if isinstance(part, (list, tuple)) for i in part if i is not None]
            assert not any(i.dtype == torch.bool for i in indices), f"{function} by flags reads a device"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("ensemble", ["nve", "langevin"])
@pytest.mark.parametrize("name", ["liquid", "alloy", "gold with copper", "silicon carbide", "silicon"])
def test_a_step_without_rebuild_waits_for_no_device(name, ensemble, late):
    make_atoms, make_model = MOVING[name]
    atoms = make_atoms()
    model, state = on_torch(make_model(atoms)), state_of(atoms)
    integrator = VelocityVerlet(units.FS) if ensemble == "nve" else Langevin(units.FS, 900.0, 0.05, seed=3)
    state.move_to(late.device)
    domain = Domain(Comm(), model.cutoff, 0.4, backend=late)
    with Scope(model, domain, len(atoms)) as scope:
        sim = Simulation(state, domain, scope, integrator, 3 * len(atoms))
        start(sim)
        while domain.counts.rebuilds < 2:  # from then on looks are late
            run(sim, 1)
        run(sim, 1)
        with nothing_is_read(late.device):
            run(sim, 2)
        assert domain.counts.rebuilds == 2


@pytest.mark.parametrize("step", [1, 2])
def test_forces_that_turn_bad_are_refused_before_anybody_sees_the_step(step, late):
    class Spoilt:
        name, cutoff = "spoilt", 5.0

        def __call__(self, domain: Domain, totals: bool) -> Forces:
            forces = torch.zeros((domain.n_owned, 3), dtype=torch.float64, device=late.device)
            if sim.step >= step:
                forces[domain.ids[: domain.n_owned] == 7] = torch.nan
            return Forces(forces, 0.0, torch.zeros((3, 3))) if totals else Forces(forces)

    atoms, seen = warmed(pfcc(2, 2, 2), 30.0), []
    state = state_of(atoms)
    state.move_to(late.device)
    domain = Domain(Comm(), 5.0, 1.0, backend=late)
    with Scope(Spoilt(), domain, len(atoms)) as scope:
        observers = [Observer(2, lambda sim: seen.append(sim.step))]
        sim = Simulation(state, domain, scope, VelocityVerlet(units.FS), 3 * len(atoms), observers=observers)
        start(sim)
        message = rf"step {step}: the force on 1 atom \(ids 7\) .* not finite.* The last good step is {step - 1}\."
        with pytest.raises(SimulationError, match=message):
            run(sim, 10)
    assert seen == [0]


def test_an_atom_that_leaps_is_missed_by_name_and_step(late):
    atoms = pfcc(3, 3, 3)
    momenta = np.zeros((len(atoms), 3))
    momenta[11, 1] = 1e4
    atoms.set_momenta(momenta)
    with pytest.raises(SimulationError, match=r"step 1: rank 0 lost 1 atom \(ids 11\).* The last good step is 0\."):
        simulate(atoms, on_torch(argon(atoms)), VelocityVerlet(50 * units.FS), 10, skin=0.3, backend=late)


def test_two_ranks_by_torch_follow_one_by_numba():
    found = launch(2, "torch")
    for name in MOVING:
        expected = run_one(name, Comm(), CPU, by_torch=False)
        np.testing.assert_allclose(found[f"torch/{name}/positions"], expected.positions, rtol=0, atol=1e-8)
        assert found[f"torch/{name}/migrations"] > 0
    for name, (make_atoms, make_model) in STILL.items():
        atoms = make_atoms()
        expected = evaluate(atoms, make_model(atoms))
        scale = np.abs(expected.forces).max()
        for precision, off, atol in (("double", 1e-13, 1e-11), ("mixed", 1e-5, 1e-5 * scale)):
            energy, forces = (found[f"torch/{name}/{precision}/{what}"] for what in ("energy", "forces"))
            assert abs(energy - expected.energy) < off * len(atoms)
            np.testing.assert_allclose(forces, expected.forces, rtol=0, atol=atol)


def test_a_steady_run_keeps_its_room(backend):
    atoms, kept = warmed(pfcc(4, 4, 4), 60.0), []

    class Watched(TorchNeighborList):
        def build(self, *arguments) -> None:
            super().build(*arguments)
            kept.append((self.n_growths, *(room.data_ptr() for room in self._rooms._rooms.values())))

    backend.neighbor_list = lambda: Watched(backend.device)
    model = on_torch(argon(atoms))
    simulate(atoms, model, VelocityVerlet(4 * units.FS), 200, skin=0.3, backend=backend)
    assert len(kept) > 10
    assert len(set(kept[5:])) == 1


def test_a_list_is_made_in_the_room_of_the_last_one():
    domain, state = Domain(Comm(), 8.5, 1.0, backend=TorchBackend("cpu")), state_of(pfcc(5, 5, 5))
    domain.follow(state)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        domain._list.build(domain.positions, domain.n_owned, domain.ghost_width)
    taken = [event.self_cpu_memory_usage for event in seen.events() if event.self_cpu_memory_usage > 0]
    taken.remove(8 * domain.n_padded)  # by torch's sorting, for itself
    assert sum(taken) < 4096


# The program


def test_the_program_runs_by_torch(crystal, tmp_path):
    common = ("simulate", crystal, "--init-temperature", 40, "--seed", 5, "--steps", 20, "--log-every", 5)
    call(*common, "--out", "theirs", "--threads", 1, cwd=tmp_path).expect(0)
    ended = call(*common, "--out", "ours", "--device", "cpu", "--backend", "torch", cwd=tmp_path).expect(0)
    assert "torch on cpu, in double precision" in ended.out
    status = json.loads((tmp_path / "ours" / "status.json").read_text())
    assert (status["device"], status["backend"], status["state"]) == ("cpu", "torch", "finished")
    ours, theirs = (
        np.loadtxt(tmp_path / d / "thermo.csv", delimiter=",", skiprows=1, usecols=range(8)) for d in ("ours", "theirs")
    )
    assert len(ours) == 5
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_a_device_that_is_not_there_is_refused(crystal, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    ended = call("simulate", crystal, "--device", "cuda", cwd=tmp_path).expect(2)
    assert "--device cuda: torch finds no GPU here" in ended.err


def test_numba_on_a_gpu_is_refused(crystal, tmp_path):
    ended = call("simulate", crystal, "--device", "cuda", "--backend", "numba", cwd=tmp_path).expect(2)
    assert "--backend numba runs on CPUs" in ended.err


def test_a_model_without_a_torch_path_stays_on_the_cpu_where_nothing_was_asked_for(monkeypatch):
    def refuse(model: ForceModel) -> ForceModel:
        raise NoTorchPath(f"{model.name} has no torch path; run it with --backend numba.")

    monkeypatch.setattr("mdrun.potentials.torch_models.on_torch", refuse)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    settings, model, notes = where_the_model_runs(Settings(structure="copper.xyz", model="emt"), (29,))
    assert (settings.device, settings.backend, settings.precision) == ("cpu", "numba", "double")
    assert model.name.startswith("effective medium")
    assert notes == [f"on the CPU: {model.name} has no torch path"]
    with pytest.raises(NoTorchPath):
        where_the_model_runs(Settings(structure="copper.xyz", model="emt", device="cuda"), (29,))


def test_a_gpu_computes_in_mixed_precision_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = with_devices(Settings(structure="argon.xyz"))
    assert (found.device, found.backend, found.precision) == ("cuda", "torch", "mixed")
    assert with_devices(Settings(structure="argon.xyz", precision="double")).precision == "double"
    assert with_devices(Settings(structure="argon.xyz", backend="numba")).device == "cpu"
