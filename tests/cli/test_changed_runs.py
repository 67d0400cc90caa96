"""A change that was allowed when a run went on is the run's from its first step on, whenever it is killed."""

from __future__ import annotations

import itertools
import json
import signal
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase.build import molecule

from mdrun.run.checkpoint import read_checkpoint
from tests.cli.launcher import call, torchrun
from tests.systems import pfcc

WORDS = ("argon.xyz", "--init-temperature", 40, "--seed", 3, "--device", "cpu", "--log-every", 5)
OFTEN = ("--trajectory-every", 5)


@pytest.fixture
def folder(tmp_path) -> Path:
    ase.io.write(tmp_path / "argon.xyz", pfcc(3, 3, 3))
    call("simulate", *WORDS, *OFTEN, "--steps", 20, "--out", "run", cwd=tmp_path).expect(0)
    return tmp_path


def resumed_and_killed(folder: Path, *words: object, step: int | None) -> None:
    """Go on in a process of its own, and end that at once: before the loop, or after a step and what it writes."""
    code = f"""
import os, sys
from mdrun.run import job
def killing(sim, n):
    if {step} is not None:
        run(sim, {step} - sim.step)
    os.kill(os.getpid(), {int(signal.SIGKILL)})
run, job.run = job.run, killing
from mdrun.cli.app import main
sys.argv = ["mdrun", *{[str(word) for word in words]!r}]
main()
"""
    (folder / "killed.py").write_text(code)
    torchrun(1, "killed.py", cwd=folder).wait()


def frames(path: Path) -> list[int]:
    from mdrun.run.trajectories.reading import read_frames

    return [frame.step for frame in read_frames(path)]


@pytest.mark.parametrize("name", ["second.extxyz", "second.traj", "second.h5md", "second.dump"])
@pytest.mark.parametrize("step", [None, 21, 26])
def test_a_trajectory_that_is_added_is_the_runs_after_a_kill_at_any_step(folder, name, step):
    two = ("--trajectory", "trajectory.extxyz", "--trajectory", name)
    more = ("simulate", *WORDS, *OFTEN, *two, "--allow-changes", "trajectory", "--out", "run", "--resume")
    resumed_and_killed(folder, *more, "--steps", 1000, "--checkpoint-every", 500, step=step)
    status = json.loads((folder / "run/status.json").read_text())
    assert (status["state"], status["checkpoint_step"]) == ("running", 20 if step is None else 21)
    if step is not None:  # the change is known: what reads the configuration alone goes on with it
        on = call("resume", "run", "--steps", 40, cwd=folder).expect(0)
        assert "going on at step 21 of 40" in on.out
    else:  # nothing was done: it is what it was, and the change can be made again
        call("resume", "run", "--steps", 22, cwd=folder).expect(0)
        assert call(*more, "--steps", 40, cwd=folder).expect(0).out.count("changed at step 22") == 1
    assert frames(folder / "run/trajectory.extxyz") == [*range(0, 41, 5)]
    assert frames(folder / "run" / name) == [25, 30, 35, 40]


@pytest.mark.parametrize("step", [None, 21, 26])
def test_another_time_step_is_the_runs_after_a_kill_at_any_step(folder, step):
    change = ("--allow-changes", "timestep", "--timestep", 2)
    words = ("resume", "run", *change, "--steps", 1000, "--checkpoint-every", 0)
    resumed_and_killed(folder, *words, step=step)
    call("resume", "run", "--steps", 40, cwd=folder).expect(0)
    assert read_checkpoint(folder / "run/checkpoint.npz").settings["timestep"] == (1.0 if step is None else 2.0)
    rows = np.loadtxt(folder / "run/thermo.csv", delimiter=",", skiprows=1)
    assert rows[:, 0].tolist() == [*range(0, 41, 5)]
    assert rows[-1, 1] == pytest.approx(0.04 if step is None else 0.06)


def test_ranks_agree_on_the_checkpoint_that_a_change_is_owed(folder):
    words = ("resume", "run", "--allow-changes", "timestep", "--timestep", 2, "--checkpoint-every", 0)
    torchrun(2, "-m", "mdrun", *words, "--steps", 40, cwd=folder).wait().expect(0)
    assert read_checkpoint(folder / "run/checkpoint.npz").step == 21


def test_a_run_that_only_goes_on_owes_none(folder):
    call("resume", "run", "--steps", 40, "--checkpoint-every", 0, cwd=folder).expect(0)
    assert read_checkpoint(folder / "run/checkpoint.npz").step == 20


def test_a_change_at_the_last_step_is_made_once_there_are_more(folder):
    change = ("--allow-changes", "timestep", "--timestep", 2)
    call("resume", "run", *change, "--steps", 20, cwd=folder).expect(0)
    call("resume", "run", "--steps", 30, cwd=folder).expect(0)
    assert read_checkpoint(folder / "run/checkpoint.npz").settings["timestep"] == 1.0


BATHS = {
    "langevin": ("--ensemble", "nvt", "--temperature", 40),
    "nose-hoover": ("--ensemble", "nvt", "--temperature", 40, "--thermostat", "nose-hoover"),
    "mtk": ("--ensemble", "npt", "--temperature", 40, "--pressure", 0.1),
    "nve": (),
}
OPTIONS_OF_BATHS = "ensemble,thermostat,temperature,pressure"


SOME = [("nve", "langevin"), ("langevin", "nose-hoover"), ("nose-hoover", "mtk"), ("mtk", "nve")]
OTHERS = [pair for pair in itertools.permutations(BATHS, 2) if pair not in SOME]


@pytest.mark.parametrize(("then", "now"), [*SOME, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in OTHERS)])
def test_another_ensemble_that_is_allowed_begins_with_baths_of_its_own(folder, then, now):
    """And is gone on with from there to the last bit."""
    words = ("simulate", *WORDS, "--steps")
    call(*words, 10, *BATHS[then], "--out", "baths", cwd=folder).expect(0)
    call(*words, 10, *BATHS[then], "--out", "other", cwd=folder).expect(0)
    for out, ends in (("baths", (30,)), ("other", (20, 30))):
        for steps in ends:
            change = ("--allow-changes", OPTIONS_OF_BATHS, "--resume", "--out", out)
            told = " ".join(call(*words, steps, *BATHS[now], *change, cwd=folder).expect(0).out.split())
            assert ("begin anew, and with them the conserved energy" in told) == (steps == ends[0])
    assert (folder / "baths/thermo.csv").read_bytes() == (folder / "other/thermo.csv").read_bytes()


def test_ranks_change_the_ensemble_alike(folder):
    change = ("--allow-changes", OPTIONS_OF_BATHS, *BATHS["mtk"], "--resume", "--out", "run")
    torchrun(2, "-m", "mdrun", "simulate", *WORDS, *OFTEN, "--steps", 40, *change, cwd=folder).wait().expect(0)
    rows = np.loadtxt(folder / "run/thermo.csv", delimiter=",", skiprows=1)
    assert rows[:, 0].tolist() == [*range(0, 41, 5)]


@pytest.fixture
def nameless(folder) -> Path:
    """A run of a file that leaves the species to an option."""
    ase.io.write(folder / "a.data", pfcc(3, 3, 3), format="lammps-data", masses=False)
    call(
        "simulate", "a.data", "--species", "Ar", *WORDS[1:], *OFTEN, "--steps", 10, "--out", "data", cwd=folder
    ).expect(0)
    return folder


@pytest.mark.parametrize("how", ["resume", "simulate"])
def test_other_species_that_are_allowed_are_the_runs_from_then_on(nameless, how):
    krypton = ("simulate", "a.data", "--species", "Kr", *WORDS[1:], *OFTEN, "--resume", "--out", "data", "--steps", 20)
    refused = call(*krypton, cwd=nameless).expect(2).err
    assert "--species from Ar to Kr" in refused
    told = " ".join(call(*krypton, "--allow-changes", "species", cwd=nameless).expect(0).out.split())
    assert "changed at step 10: atom 0 has another species; momenta are kept" in told
    again = ("resume", "data") if how == "resume" else krypton[:-2]
    call(*again, "--steps", 30, cwd=nameless).expect(0)
    found = read_checkpoint(nameless / "data/checkpoint.npz")
    assert found.arrays["numbers"].tolist() == [36]
    assert found.arrays["masses"] == pytest.approx(83.798)
    last = ase.io.read(nameless / "data/trajectory.extxyz", "-1")
    assert (last.info["step"], set(last.symbols)) == (30, {"Kr"})


def test_a_file_that_names_species_once_has_no_others_later(nameless):
    words = ("simulate", "a.data", *WORDS[1:], "--out", "h5", "--trajectory", "a.h5md")
    call(*words, "--species", "Ar", "--steps", 10, cwd=nameless).expect(0)
    change = ("--species", "Kr", "--steps", 20, "--resume", "--allow-changes")
    assert "a.h5md says what atoms are once" in call(*words, *change, "species", cwd=nameless).expect(2).err
    call(*words[:-1], "b.h5md", *change, "species,trajectory", cwd=nameless).expect(0)


def test_species_that_changed_in_the_file_are_taken_where_that_is_allowed(folder):
    heavy = pfcc(3, 3, 3)
    heavy.symbols[:5] = "Kr"
    ase.io.write(folder / "argon.xyz", heavy)
    words = ("simulate", *WORDS, *OFTEN, "--steps", 30, "--out", "run", "--resume")
    assert "is not the structure that the run began with" in call(*words, cwd=folder).expect(2).err
    call(*words, "--allow-changes", "species", cwd=folder).expect(0)
    (folder / "argon.xyz").unlink()
    call("resume", "run", "--steps", 40, cwd=folder).expect(0)
    found = read_checkpoint(folder / "run/checkpoint.npz")
    assert found.arrays["numbers"][found.arrays["types"]].tolist() == heavy.numbers.tolist()


def test_bonds_that_are_held_from_now_on_are_held_whenever_the_run_goes_on(tmp_path):
    """What a run keeps of its structure has them too."""
    water = molecule("H2O", cell=[9, 9, 9], pbc=True)
    ase.io.write(tmp_path / "water.xyz", water)
    plugin = f"{Path(__file__).with_name('plugins.py')}:make"
    words = ("simulate", "water.xyz", "--model", plugin, *WORDS[1:], "--timestep", 0.2, "--out", "run", "--resume")
    call(*words, "--steps", 5, cwd=tmp_path).expect(0)
    bonds = ("--constrain-bonds", "O-H", "--allow-changes", "constrain-bonds")
    call(*words, *bonds, "--steps", 10, cwd=tmp_path).expect(0)
    held = ase.io.read(tmp_path / "run/trajectory.extxyz", "-1").get_distance(0, 1, mic=True)
    (tmp_path / "water.xyz").unlink()
    call("resume", "run", "--steps", 200, "--trajectory-every", 10, cwd=tmp_path).expect(0)
    for frame in ase.io.read(tmp_path / "run/trajectory.extxyz", "-3:"):
        assert frame.get_distance(0, 1, mic=True) == pytest.approx(held, abs=1e-6)
