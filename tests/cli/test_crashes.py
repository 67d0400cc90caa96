"""Runs killed with -9 at random moments and started again, by one command line: at last as if nothing had happened."""

from __future__ import annotations

import csv
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import ase.io
import numpy as np
import pytest

from mdrun.run.resume import newest_checkpoint
from mdrun.run.trajectories.reading import read_frames
from tests.cli.launcher import MDRUN, Program, run, torchrun
from tests.cli.test_resume import arrays
from tests.systems import pfcc

FRAMES = ("frames.extxyz", "frames.dump", "frames.traj", "frames.h5md")
WORDS = (
    "--ensemble", "npt", "--temperature", 40, "--pressure", 0.1, "--barostat", "stochastic", "--thermostat", "langevin",
    "--compressibility", 1, "--init-temperature", 60, "--seed", 5, "--timestep", 4, "--skin", 0.15,
    "--log-every", 1, "--trajectory-every", 3, "--checkpoint-every", 2, *(f"--trajectory={name}" for name in FRAMES),
)  # fmt: skip
ENOUGH = 10**7  # steps that no run makes before it is killed
LIMIT_S = 300.0  # kernels may have to be compiled


def killed(command: tuple, cwd: Path, moment: Callable[[], bool]) -> float:
    """Seconds from the start of a run to the moment at which it is killed."""
    began = time.monotonic()
    program = Program(MDRUN, *command, cwd=cwd)
    while not moment():
        assert time.monotonic() < began + LIMIT_S, program.so_far()
        assert program.process.poll() is None, program.so_far()
        time.sleep(0.005)
    seconds = time.monotonic() - began
    program.process.kill()
    program.process.wait()
    return seconds


class Once:
    """True from a pause after something was true."""

    def __init__(self, something: Callable[[], bool], pause: float) -> None:
        self._something, self._pause, self._at = something, pause, None

    def __call__(self) -> bool:
        if self._at is None and self._something():
            self._at = time.monotonic() + self._pause
        return self._at is not None and time.monotonic() >= self._at


def kept_step(directory: Path) -> int:
    found = newest_checkpoint(directory) if directory.exists() else None
    return found[0].step if found else 0


@pytest.mark.parametrize("n_kills", [4, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_run_killed_at_random_moments_ends_as_one_that_was_not(tmp_path, n_kills):
    ase.io.write(tmp_path / "argon.xyz", pfcc(3, 3, 3))
    command = ("simulate", "argon.xyz", *WORDS, "--resume")
    endless = (*command, "--steps", ENOUGH, "--out", "killed")
    moments, step, usual = random.Random(n_kills), 0, 0.0
    for n in range(n_kills):
        if n % 2 == 0:  # once it has gone on, in the midst of steps, frames and checkpoints
            until, pause = (lambda before=step: kept_step(tmp_path / "killed") > before), moments.uniform(0, 0.3)
        else:  # at the start, where files are cut back
            until, pause = (lambda: True), usual * moments.uniform(0.3, 1.2)
        seconds = killed(endless, tmp_path, Once(until, pause))
        usual = seconds - pause if n % 2 == 0 else usual
        now = kept_step(tmp_path / "killed")
        assert now >= step + (n % 2 == 0), "a checkpoint was lost"
        step = now
    last = step + 20
    run(*command, "--steps", last, "--out", "killed", cwd=tmp_path).expect(0)
    run(*command, "--steps", last, "--out", "whole", cwd=tmp_path).expect(0)
    as_if_nothing_had_happened(tmp_path / "killed", tmp_path / "whole", last)


def as_if_nothing_had_happened(killed: Path, whole: Path, last: int) -> None:
    for name in ("thermo.csv", "frames.extxyz", "frames.dump"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name
    first, second = arrays(killed), arrays(whole)
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)
    with (killed / "ranks.csv").open() as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == [*range(last + 1)]
    assert len(ase.io.read(killed / "frames.traj", ":")) == last // 3 + 1
    for one, other in zip(ase.io.iread(killed / "frames.traj"), ase.io.iread(whole / "frames.traj"), strict=True):
        assert one == other
        assert np.array_equal(one.get_momenta(), other.get_momenta())
    steps = []
    for one, other in zip(read_frames(killed / "frames.h5md"), read_frames(whole / "frames.h5md"), strict=True):
        steps.append(one.step)
        assert np.array_equal(one.columns["positions"], other.columns["positions"])
    assert steps == [*range(0, last + 1, 3)]
    assert {path.name for path in killed.iterdir()} == {path.name for path in whole.iterdir()}


def test_one_rank_then_three_then_two_make_the_run_of_one(tmp_path):
    ase.io.write(tmp_path / "argon.xyz", pfcc(3, 3, 3))
    command = ("simulate", "argon.xyz", *WORDS, "--resume")
    run(*command, "--steps", 20, "--out", "one", cwd=tmp_path).expect(0)
    shutil.copytree(tmp_path / "one", tmp_path / "moved")
    for n_ranks, steps in ((3, 40), (2, 60)):
        on = torchrun(n_ranks, "-m", "mdrun", *command, "--steps", steps, "--out", "moved", cwd=tmp_path).wait()
        assert f"going on at step {steps - 20} of {steps}" in on.expect(0).out
    run(*command, "--steps", 60, "--out", "one", cwd=tmp_path).expect(0)
    one, moved = arrays(tmp_path / "one"), arrays(tmp_path / "moved")
    assert np.abs(one["positions"] - moved["positions"]).max() < 1e-8
    assert np.abs(one["cell"] - moved["cell"]).max() < 1e-8
    frames = [ase.io.read(tmp_path / name / "frames.traj", ":") for name in ("one", "moved")]
    assert [a.info["step"] for a in frames[1]] == [a.info["step"] for a in frames[0]] == [*range(0, 61, 3)]
    rows = [np.loadtxt(tmp_path / n / "thermo.csv", delimiter=",", skiprows=1) for n in ("one", "moved")]
    assert rows[0].shape == rows[1].shape
