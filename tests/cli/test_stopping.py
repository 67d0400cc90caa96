"""Runs that are asked to stop: by signals to any of their processes, a file, a clock; each ends well and can go on."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import ase.io
import numpy as np
import psutil
import pytest

from tests.cli.launcher import MDRUN, Ended, Program, call, srun, start, torchrun, wait_all
from tests.systems import pfcc

PLUGIN = f"{Path(__file__).with_name('plugins.py')}:make"
SOON_S = 60.0
LONG = ("--init-temperature", 60, "--seed", 4, "--steps", 100_000_000, "--log-every", 20, "--threads", 1)
# A model that asks its own run to stop at its sixth evaluation; it pulls everything one way, so nothing ever relaxes.
ASKING = """
import os, signal
import torch
from mdrun.potentials.base import Forces

class Asking:
    name, cutoff = "asking", 4.0

    def __init__(self, asks):
        self.asks, self.n_calls = asks, 0

    def __call__(self, domain, totals):
        self.n_calls += 1
        if self.n_calls == 6:
            if self.asks.startswith("SIG"):
                os.kill(os.getpid(), getattr(signal, self.asks))
            else:
                open(self.asks, "w").close()
        x = domain.positions[0, : domain.n_owned]
        forces = torch.zeros((domain.n_owned, 3), dtype=torch.float64)
        forces[:, 0] = 1e-4
        return Forces(forces, -1e-4 * float(x.sum()) if totals else None, torch.zeros((3, 3), dtype=torch.float64))

def make(numbers, asks):
    return Asking(asks)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("stopping")
    ase.io.write(path / "argon.xyz", pfcc(4, 2, 2))
    (path / "asking.py").write_text(ASKING)
    return path


def status_of(out: Path) -> dict:
    return json.loads((out / "status.json").read_text())


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("it did not come in time")
        time.sleep(0.05)


def moves(out: Path) -> Callable[[], bool]:
    """Whether a run has made steps."""
    return lambda: (out / "thermo.csv").exists() and (out / "thermo.csv").read_text().count("\n") > 3


def expect_stopped(out: Path, reason: str) -> int:
    """The step at which it stopped; everything in its directory is whole and says so."""
    status = status_of(out)
    assert (status["state"], status["reason"], status["exit_code"]) == ("stopped", reason, 75)
    step = status["step"]
    with np.load(out / "checkpoint.npz", allow_pickle=False) as file:
        assert json.loads(str(file["meta"]))["step"] == step == status["checkpoint_step"]
    assert (out / "thermo.csv").read_text().endswith("\n")
    assert len(ase.io.read(out / "trajectory.extxyz", ":")) == 1 + step // 1000  # none but those that were asked for
    assert not (out / "STOP").exists()
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    return step


@pytest.mark.parametrize("asks", ["SIGTERM", "SIGINT", "SIGUSR1", "STOP"])
def test_whatever_asks_a_run_stops_after_a_step_with_a_checkpoint(folder, asks):
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]
    out = folder / f"{asks}.run"
    wish = out / "STOP" if asks == "STOP" else asks
    options = ("--model", f"{folder}/asking.py:make,asks={wish}", "--out", out, "--checkpoint-every", 0)
    ended = call("simulate", "argon.xyz", *LONG, *options, cwd=folder).expect(75)
    reason = "the file STOP" if asks == "STOP" else asks
    step = expect_stopped(out, reason)
    assert step >= 5
    assert ended.err == f"mdrun: stopped after step {step} of 100000000: {reason}; mdrun resume {out} goes on.\n"
    assert re.search(rf"^stopped after {step} steps in ", ended.out, re.MULTILINE)
    assert "finished" not in ended.out
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)] == handlers
    assert "signals" not in {thread.name for thread in threading.enumerate()}


def test_a_run_without_time_left_stops_before_its_first_step(folder):
    """The hours count from the start of the process, and this one is older than that."""
    out = folder / "hours.run"
    ended = call("simulate", "argon.xyz", *LONG, "--max-hours", 1e-6, "--out", out, cwd=folder).expect(75)
    words = "stopped after step 0 of 100000000: --max-hours 1e-06; no step was made: start it again."
    assert ended.err == f"mdrun: {words}\n"
    assert (status_of(out)["state"], status_of(out)["checkpoint_step"]) == ("stopped", None)
    for bad in ("0", "-1", "nan"):
        refused = call("simulate", "argon.xyz", "--max-hours", bad, "--out", "bad", cwd=folder).expect(2)
        assert f"--max-hours {bad}" in refused.err


def test_a_run_that_is_asked_after_its_last_step_is_finished(folder):
    options = ("--model", f"{folder}/asking.py:make,asks=SIGTERM", "--steps", 5, "--out", "last.run")
    call("simulate", "argon.xyz", *LONG, *options, cwd=folder).expect(0)
    assert status_of(folder / "last.run")["state"] == "finished"


def test_a_relaxation_stops_as_well_with_its_last_frame(folder):
    options = ("--model", f"{folder}/asking.py:make,asks=SIGUSR1", "--steps", 10_000_000, "--out", "relax.run")
    ended = call("relax", "argon.xyz", *options, "--fmax", 1e-9, "--threads", 1, cwd=folder).expect(75)
    status = status_of(folder / "relax.run")
    assert status["state"] == "stopped"
    assert status["reason"].startswith(f"stopped after {status['step']} steps by SIGUSR1: largest force ")
    assert ended.err == f"mdrun: {status['reason']}. Go on from relax.run/relaxed.extxyz.\n"
    last = ase.io.read(folder / "relax.run/trajectory.extxyz", -1)
    assert last.info["step"] == status["step"]
    assert ase.io.read(folder / "relax.run/relaxed.extxyz").positions == pytest.approx(last.positions)


def test_a_signal_to_one_rank_stops_all_at_the_same_step(folder):
    out = folder / "one-rank.run"
    ranks = srun(3, "simulate", "argon.xyz", *LONG, "--out", out, cwd=folder)
    try:
        wait_for(moves(out))
        ranks[1].process.send_signal(signal.SIGUSR1)
    finally:
        ends = wait_all(ranks, SOON_S)
    assert [ended.code for ended in ends] == [75] * 3
    step = expect_stopped(out, "SIGUSR1")
    assert [ended.err for ended in ends[1:]] == ["", ""]
    assert ends[0].err == f"mdrun: stopped after step {step} of 100000000: SIGUSR1; mdrun resume {out} goes on.\n"


@pytest.mark.parametrize("to_all", [False, True], ids=["launcher", "all"])
def test_a_signal_to_torchrun_stops_the_ranks_that_it_passes_it_on_to(folder, to_all):
    """Also where they have it already: then each gets it twice."""
    out = folder / f"torchrun-{to_all}.run"
    program = torchrun(2, "--no-python", MDRUN, "simulate", "argon.xyz", *LONG, "--out", out, cwd=folder)
    try:
        wait_for(moves(out))
        ranks = psutil.Process(program.process.pid).children() if to_all else []
        for process in (*ranks, program.process):
            process.send_signal(signal.SIGTERM)
        ended = program.wait(SOON_S)
    finally:
        program.kill()
    assert ended.code != 0  # torchrun's own
    step = expect_stopped(out, "SIGTERM")
    assert ended.err.count(f"mdrun: stopped after step {step} of 100000000: SIGTERM; mdrun resume {out}") == 1
    assert sum(line.startswith("mdrun: ") for line in ended.err.splitlines()) == 1


def test_a_second_signal_ends_a_rank_that_waits_for_another(folder):
    """Deep inside of a library, where the first one finds no end of a step."""
    options = ("--model", f"{PLUGIN},fails=sleep,rank=1,call=7", "--out", "second.run", "--log-every", 1)
    words = ("simulate", "argon.xyz", "--steps", 20, *options)
    ranks = srun(2, *words, cwd=folder, env={"MDRUN_SHARED_MEMORY": "0"})
    try:
        wait_for(lambda: (folder / "second.run/thermo.csv").exists())
        wait_for(lambda: "\n6," in (folder / "second.run/thermo.csv").read_text())
        ranks[0].process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        ranks[0].process.send_signal(signal.SIGTERM)  # an echo of the first
        time.sleep(3)
        assert ranks[0].process.poll() is None
        ranks[0].process.send_signal(signal.SIGINT)
        ended = ranks[0].wait(SOON_S)
    finally:
        for rank in ranks:
            rank.kill()
    assert ended.code == 128 + signal.SIGINT
    assert ended.err.startswith("mdrun: rank 0: SIGINT after SIGTERM: ended at once, ")
    assert ended.err.count("\n") == 1


def listens(program: Program) -> bool:
    """Whether its process hears SIGUSR1: the mask of caught signals is the system's own word."""
    masks = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{program.process.pid}/status").read_text(), re.MULTILINE)
    return masks is not None and bool(int(masks[1], 16) >> (signal.SIGUSR1 - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("n_ranks", [1, 2])
def test_a_signal_during_the_start_stops_at_the_first_agreement(folder, n_ranks, number):
    out = folder / f"early-{n_ranks}-{number}.run"
    ranks = srun(n_ranks, "simulate", "argon.xyz", *LONG, "--out", out, cwd=folder)
    try:
        for rank in ranks:
            wait_for(lambda rank=rank: listens(rank))
        assert not out.exists()  # still among the imports
        ranks[-1].process.send_signal(number)
    finally:
        ends = wait_all(ranks, SOON_S)
    assert [ended.code for ended in ends] == [75] * n_ranks
    assert sum(ended.err.count("mdrun: ") for ended in ends) == 1
    status = status_of(out)
    assert (status["state"], status["step"], status["exit_code"]) == ("stopped", 0, 75)


def test_a_signal_while_others_are_waited_for_ends_with_75_and_a_message(folder):
    step = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost",
            "MASTER_PORT": "29677"}  # fmt: skip
    alone = start("simulate", "argon.xyz", *LONG, "--out", "alone.run", cwd=folder, env=step)
    try:
        wait_for(lambda: listens(alone))
        alone.process.send_signal(signal.SIGUSR1)
        ended = alone.wait(SOON_S).expect(75)
    finally:
        alone.kill()
    assert ended.err == "mdrun: rank 0: SIGUSR1 while the ranks had not all met: nothing was begun. Start it again.\n"
    assert not (folder / "alone.run").exists()


IGNORING = """
import signal, sys
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
from mdrun.run.signals import Signals
with Signals():
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
"""


def test_a_signal_that_the_process_was_started_to_ignore_stays_ignored():
    Program(sys.executable, "-c", IGNORING).wait(SOON_S).expect(0)


def test_elsewhere_than_in_the_main_thread_signals_are_left_alone():
    from mdrun.run.signals import Signals

    handler, seen = signal.getsignal(signal.SIGTERM), []

    def inside() -> None:
        with Signals() as signals:
            seen.append((signal.getsignal(signal.SIGTERM), signals.wish))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [(handler, 0)]


def test_a_killed_run_is_told_as_such(folder):
    """SIGKILL leaves no last words; what was written is whole, and others see that nobody writes any more."""
    out = folder / "killed.run"
    program = start("simulate", "argon.xyz", *LONG, "--trajectory-every", 10, "--checkpoint-every", 50, "--out", out,
                    cwd=folder)  # fmt: skip
    try:
        wait_for(lambda: (out / "checkpoint.npz").exists() and bool(status_of(out)["checkpoint_step"]))
        alive: Ended = call("status", out, cwd=folder).expect(0)
    finally:
        program.kill()
    assert alive.out.startswith("state: running\nstep: ")
    assert re.search(r"^left: \d+:\d\d:\d\d, until \d{4}-\d\d-\d\dT", alive.out, re.MULTILINE)
    status = status_of(out)
    assert status["state"] == "running"
    dead = call("status", out, cwd=folder).expect(0)
    assert f"state: died\nstep: {status['step']} of 100000000" in dead.out
    assert f"checkpoint: step {status['checkpoint_step']}\n" in dead.out
    assert f"to go on: mdrun resume {out}\n" in dead.out
    assert os.path.getsize(out / "checkpoint.npz") > 0
