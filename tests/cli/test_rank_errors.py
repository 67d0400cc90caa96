"""Trouble on one rank or on all: every process ends soon and by itself, one of them tells of it, the directory too."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ase.io
import psutil
import pytest

from mdrun.comm import SHARED_MEMORY
from tests.cli.launcher import MDRUN, Ended, Program, srun, torchrun, wait_all
from tests.systems import pfcc

PLUGIN = f"{Path(__file__).with_name('plugins.py')}:make"
SOON_S = 120.0  # on a busy machine; a rank left waiting would wait for --comm-timeout, ten minutes


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("errors")
    ase.io.write(path / "argon.xyz", pfcc(4, 2, 2))
    (path / "broken.xyz").write_text("2\nProperties=species:S:1:pos:R:3\nAr 0 0 0\nAr nan 0 0\n")
    return path


@pytest.fixture(params=["0", "1"], ids=["sockets", "shared-memory"])
def way(request) -> dict[str, str]:
    """How the ranks speak to each other."""
    return {SHARED_MEMORY: request.param}


def fail_on_two_ranks(
    folder: Path, name: str, *options: object, structure: str = "argon.xyz", way: dict[str, str] | None = None
) -> list[Ended]:
    words = ("--steps", 20, "--log-every", 1, "--out", name)
    return wait_all(srun(2, "simulate", structure, *options, *words, cwd=folder, env=way), SOON_S)


def told(ends: list[Ended]) -> str:
    """The only message, from whatever rank: one line."""
    texts = [ended.err for ended in ends if ended.err]
    assert len(texts) == 1, texts
    assert texts[0].startswith("mdrun: ")
    assert texts[0].count("\n") == 1
    return texts[0].removeprefix("mdrun: ").rstrip("\n")


def status_of(folder: Path, name: str) -> dict:
    return json.loads((folder / name / "status.json").read_text())


@pytest.mark.parametrize(
    ("fails", "rank", "code", "words"),
    [
        ("raise", 1, 1, ["rank 1", "step 7", "RuntimeError: the model gave up"]),
        ("raise", 0, 1, ["rank 0", "step 7", "RuntimeError: the model gave up"]),
        ("memory", 1, 1, ["rank 1", "step 7", "out of memory: ", "more ranks"]),
        ("numpy's memory", 0, 1, ["rank 0", "step 7", "out of memory: Unable to allocate", "more ranks"]),
        ("nan", 1, 3, ["rank 1", "step 7", "1 atom (ids ", "not finite", "last good step is 6"]),
    ],
)
def test_a_model_that_fails_on_one_rank_ends_all(folder, fails, rank, code, words, way):
    name = f"{fails}-{rank}-{way[SHARED_MEMORY]}"
    ends = fail_on_two_ranks(folder, name, "--model", f"{PLUGIN},fails={fails},rank={rank},call=7", way=way)
    assert [ended.code for ended in ends] == [code, code]
    message = told(ends)
    for word in words:
        assert word in message
    status = status_of(folder, name)
    assert (status["state"], status["exit_code"], status["reason"]) == ("failed", code, message)
    assert status["step"] == 6  # the last good one
    rows = (folder / name / "thermo.csv").read_text().splitlines()
    assert rows[-1].startswith("6,")  # what was good is there
    assert not (folder / name / "checkpoint.npz").exists()  # what was bad is not


def test_a_rank_that_sleeps_for_ever_is_not_waited_for_for_ever(folder, way):
    name = f"sleep-{way[SHARED_MEMORY]}"
    options = ("--model", f"{PLUGIN},fails=sleep,rank=1,call=7", "--comm-timeout", 10, "--out", name)
    ranks = srun(2, "simulate", "argon.xyz", *options, "--steps", 20, "--log-every", 1, cwd=folder, env=way)
    try:
        ended = ranks[0].wait(SOON_S)
    finally:
        ranks[1].kill()
    assert ended.code == 1
    assert "waited more than 10 s" in told([ended])
    assert "--comm-timeout" in ended.err
    assert status_of(folder, name)["state"] == "failed"


def test_a_rank_that_is_killed_ends_all(folder, way):
    name = f"killed-{way[SHARED_MEMORY]}"
    options = ("--model", f"{PLUGIN},fails=sleep,rank=1,call=7", "--out", name)
    ranks = srun(2, "simulate", "argon.xyz", *options, "--steps", 20, "--log-every", 1, cwd=folder, env=way)
    thermo = folder / name / "thermo.csv"
    try:
        deadline = time.monotonic() + SOON_S
        while not (thermo.exists() and "\n6," in thermo.read_text()) and time.monotonic() < deadline:
            time.sleep(0.1)  # until rank 0 waits for rank 1
    finally:
        ranks[1].kill()
    ended = ranks[0].wait(SOON_S)
    assert ended.code == 1
    assert "lost contact with another rank" in told([ended])
    assert status_of(folder, name)["state"] == "failed"


@pytest.mark.parametrize(
    ("structure", "options", "words"),
    [
        ("broken.xyz", [], ["atom 1 (Ar)", "broken.xyz", "nan"]),
        ("argon.xyz", ["--model", "eam:nowhere.alloy"], ["nowhere.alloy"]),
        ("argon.xyz", ["--timestep", "-1"], ["--timestep -1"]),
    ],
)
def test_wrong_input_is_told_once_and_nothing_is_written(folder, structure, options, words):
    ends = fail_on_two_ranks(folder, "nothing", *options, structure=structure)
    assert [ended.code for ended in ends] == [2, 2]
    message = told(ends)
    for word in words:
        assert word in message
    assert not (folder / "nothing").exists()


def test_a_mistake_in_the_options_is_told_by_rank_0_alone(folder):
    ends = fail_on_two_ranks(folder, "nothing", "--stepz", "5")
    assert [ended.code for ended in ends] == [2, 2]
    assert "--stepz" in ends[0].err
    assert (ends[1].out, ends[1].err) == ("", "")


def test_under_torchrun_one_message_and_its_own_report(folder):
    words = ("--steps", 20, "--model", f"{PLUGIN},fails=raise,rank=1,call=7", "--out", "torchrun")
    program = torchrun(2, "--no-python", MDRUN, "simulate", "argon.xyz", *words, cwd=folder)
    ended = program.wait(SOON_S)
    assert ended.code != 0
    assert ended.err.count("mdrun: rank 1") == 1
    assert sum(line.startswith("mdrun: ") for line in ended.err.splitlines()) == 1
    status = status_of(folder, "torchrun")
    assert status["exit_code"] == 1
    assert "the model gave up" in status["reason"]


def test_a_port_that_is_taken_ends_the_run_and_touches_no_files(folder):
    """A-50: whatever listens there is no rank of this job."""
    with listener() as port:
        options = ("--comm-timeout", 5, "--out", "port")
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks = srun(2, "simulate", "argon.xyz", *options, cwd=folder, env=place)
        try:
            first = ranks[0].wait(SOON_S)
        finally:
            ranks[1].kill()  # its library waits for whoever listens there to greet it
    assert first.code == 2
    message = told([first])
    assert f"127.0.0.1:{port}" in message
    assert "MASTER_PORT" in message
    assert not (folder / "port").exists()


@contextmanager
def listener() -> Iterator[int]:
    """Something else that listens on a port."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_the_launcher_of_these_tests_ends_what_hangs_with_all_that_it_started():
    sleeper = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    program = Program(sys.executable, "-c", sleeper + "time.sleep(60)")
    deadline = time.monotonic() + 20
    while not (children := psutil.Process(program.process.pid).children()) and time.monotonic() < deadline:
        time.sleep(0.02)
    with pytest.raises(pytest.fail.Exception, match="no end within"):
        program.wait(0.1)
    assert program.process.poll() is not None
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
