"""Ranks that are killed, that stop answering, or lie beyond a cut cable: the others end in time, one of them tells."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import ase.io
import numpy as np
import psutil
import pytest

from mdrun.comm import SHARED_MEMORY
from mdrun.last_words import FAREWELL, PATIENCE
from tests.cli.launcher import MDRUN, Ended, Program, srun, torchrun, wait_all
from tests.cli.test_rank_errors import told
from tests.systems import pfcc

TIMEOUT_S = 8  # of a machine that has other things to do
# The wait, the store's silence (once), rank 0's, the farewell; and room for a busy machine.
LIMIT_S = TIMEOUT_S + 2 * PATIENCE + FAREWELL + 30
ENDLESS = ("--steps", 10_000_000, "--log-every", 20, "--checkpoint-every", 20, "--comm-timeout", TIMEOUT_S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("lost")
    ase.io.write(path / "argon.xyz", pfcc(4, 2, 2))
    return path


def begin(folder: Path, name: str, n_ranks: int, shared_memory: str) -> list[Program]:
    """Ranks at work, that have written two checkpoints."""
    words = ("simulate", "argon.xyz", *ENDLESS, "--init-temperature", 20, "--out", name)
    ranks = srun(n_ranks, *words, cwd=folder, env={SHARED_MEMORY: shared_memory})
    wait_for_checkpoints(folder / name, ranks)
    return ranks


def wait_for_checkpoints(directory: Path, ranks: list[Program], limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not (directory / "checkpoint.previous.npz").exists():
        if time.monotonic() > deadline or any(rank.process.poll() is not None for rank in ranks):
            for rank in ranks:
                rank.kill()
            pytest.fail(f"the run did not come to work: {[rank.so_far() for rank in ranks]}")
        time.sleep(0.05)


def check_directory(directory: Path, message: str) -> None:
    """What is left says how it ended, and a whole checkpoint is there."""
    status = json.loads((directory / "status.json").read_text())
    assert (status["state"], status["exit_code"]) == ("failed", 1)
    # Rank 0 beyond a cut cable tells the directory what it saw, while another may have told the user.
    assert status["reason"] == message or "rank 0 lost contact" in status["reason"]
    steps = []
    for name in ("checkpoint.npz", "checkpoint.previous.npz"):
        if (directory / name).exists():
            with np.load(directory / name, allow_pickle=False) as file:
                assert np.isfinite(file["positions"]).all()
                steps.append(json.loads(str(file["meta"]))["step"])
    assert steps


def lose(folder: Path, n_ranks: int, victim: int, how: signal.Signals, shared_memory: str) -> None:
    name = f"{n_ranks}-{victim}-{how.name}-{shared_memory}"
    ranks = begin(folder, name, n_ranks, shared_memory)
    survivors = [rank for r, rank in enumerate(ranks) if r != victim]
    try:
        os.kill(ranks[victim].process.pid, how)
        began = time.monotonic()
        ends = wait_all(survivors, LIMIT_S)
        print(name, f"{time.monotonic() - began:.1f} s", ends)
    finally:
        for rank in ranks:
            rank.kill()
    assert {ended.code for ended in ends} == {1}
    message = told(ends)
    assert "lost contact with another rank" in message
    check_directory(folder / name, message)


WAYS = pytest.mark.parametrize("shared_memory", ["0", "1"], ids=["sockets", "shared-memory"])


def test_when_rank_0_is_killed_with_the_store_and_the_files_another_tells(folder):
    lose(folder, 2, 0, signal.SIGKILL, shared_memory="0")


@WAYS
@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize(("n_ranks", "victim"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_whoever_is_lost_and_however_one_of_the_others_tells(folder, n_ranks, victim, how, shared_memory):
    lose(folder, n_ranks, victim, how, shared_memory)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_under_torchrun_which_ends_the_others_one_of_them_tells_first(folder, victim):
    name = f"torchrun-{victim}"
    words = ("simulate", "argon.xyz", *ENDLESS, "--init-temperature", 20, "--out", name)
    program = torchrun(2, "--no-python", MDRUN, *words, cwd=folder)
    wait_for_checkpoints(folder / name, [program])
    ranks = psutil.Process(program.process.pid).children(recursive=True)
    next(rank for rank in ranks if rank.environ().get("RANK") == str(victim)).kill()
    ended = program.wait(LIMIT_S)
    assert ended.code != 0
    messages = [line for line in ended.err.splitlines() if line.startswith("mdrun: ")]
    assert len(messages) == 1
    check_directory(folder / name, messages[0].removeprefix("mdrun: "))


# Two hosts: name spaces of the network, joined by a cable

TWO_HOSTS = """
set -e
ip link set lo up
unshare -n sleep 600 & OTHER=$!
trap 'kill $OTHER' EXIT
sleep 0.5
ip link add name here type veth peer name there
ip link set there netns $OTHER
ip addr add 10.77.0.1/24 dev here
ip link set here up
there() { nsenter -t $OTHER -n "$@"; }
there ip addr add 10.77.0.2/24 dev there
there ip link set there up
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=10.77.0.1 MASTER_PORT=29511
set +e
RANK=0 GLOO_SOCKET_IFNAME=here "$@" > out.0 2> err.0 & FIRST=$!
RANK=1 GLOO_SOCKET_IFNAME=there there "$@" > out.1 2> err.1 & SECOND=$!
for i in $(seq 600); do test -e run/checkpoint.previous.npz && break; sleep 0.1; done
ip link set here down
wait $FIRST; echo $? > code.0
wait $SECOND; echo $? > code.1
"""


def can_split_the_network() -> bool:
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return False
    probe = "ip link add name a0 type veth peer name a1"
    return subprocess.run(["unshare", "-Urn", "sh", "-c", probe], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_split_the_network(), reason="no networks of one's own on this system (unshare -Urn)")
def test_hosts_between_which_the_cable_is_cut_both_end_and_one_tells(folder):
    where = folder / "cable"
    where.mkdir()
    words = (MDRUN, "simulate", folder / "argon.xyz", *ENDLESS, "--init-temperature", 20, "--out", "run")
    program = Program("unshare", "-Urn", "bash", "-c", TWO_HOSTS, "bash", *words, cwd=where, env={SHARED_MEMORY: "0"})
    program.wait(LIMIT_S + 90).expect(0)
    codes, errors = ([(where / f"{kind}.{rank}").read_text() for rank in range(2)] for kind in ("code", "err"))
    print(codes, errors)
    assert codes == ["1\n", "1\n"]
    message = told([Ended(1, "", text) for text in errors])
    assert "lost contact with another rank" in message
    check_directory(where / "run", message)
