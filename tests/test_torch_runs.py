"""Runs by torch beside runs by Numba: trajectories, room that is kept, ranks, the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import ase.io
import numpy as np
import pytest
import torch
from ase import Atoms
from torch.profiler import ProfilerActivity, profile

from mdrun import units
from mdrun.backends.on_torch import TorchBackend
from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.integrate.verlet import Langevin, VelocityVerlet
from mdrun.neighbors.torch_list import TorchNeighborList
from mdrun.potentials.base import ForceModel
from mdrun.potentials.torch_models import NoTorchPath, on_torch
from mdrun.run.devices import with_devices
from mdrun.run.settings import Settings
from mdrun.run.setup import where_the_model_runs
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
    return TorchBackend(request.param)


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
    settings, model, notes = where_the_model_runs(Settings("copper.xyz", model="emt"), (29,))
    assert (settings.device, settings.backend, settings.precision) == ("cpu", "numba", "double")
    assert model.name.startswith("effective medium")
    assert notes == [f"on the CPU: {model.name} has no torch path"]
    with pytest.raises(NoTorchPath):
        where_the_model_runs(Settings("copper.xyz", model="emt", device="cuda"), (29,))


def test_a_gpu_computes_in_mixed_precision_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = with_devices(Settings("argon.xyz"))
    assert (found.device, found.backend, found.precision) == ("cuda", "torch", "mixed")
    assert with_devices(Settings("argon.xyz", precision="double")).precision == "double"
    assert with_devices(Settings("argon.xyz", backend="numba")).device == "cpu"
