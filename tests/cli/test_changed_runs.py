"""A change that was allowed when a run went on is the run's from its first step on, whenever it is killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import ase.io
import numpy as np
import pytest

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
