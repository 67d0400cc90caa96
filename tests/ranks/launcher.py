"""N real processes on this machine, each ``python -m tests.ranks.worker JOBS OUT.npz``, and what they found.

As under torchrun, the store in which the ranks meet is the launcher's, so its port is free for certain.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mdrun.comm import SHARED_MEMORY, meeting_place

ROOT = Path(__file__).parents[2]
GRACE = 3.0  # seconds for the others to follow a rank that failed, or to print where they stand
TAIL = 4000  # characters of each rank's stderr that a failure shows


class RanksFailed(AssertionError):
    """A rank ended badly, or the time ran out; the text holds what each rank wrote on stderr."""


def launch(n_ranks: int, jobs: str, limit_s: float = 400.0) -> dict[str, np.ndarray]:
    """Run ``jobs`` (names separated by commas) on ``n_ranks`` processes; rank 0's arrays by name.

    Three ranks speak through sockets, as ranks on several hosts do; other numbers of them through shared memory.

    Raises:
        RanksFailed: whatever happens, within ``limit_s`` and a few seconds.
    """
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        out = folder / "out.npz"
        _meeting, places = meeting_place(n_ranks)
        processes: list[subprocess.Popen] = []
        try:
            processes += [_start(place, jobs, out) for place in places]
            trouble = _wait(processes, time.monotonic() + limit_s)
        finally:
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if trouble or not out.exists():
            raise RanksFailed(f"{n_ranks} ranks, {jobs}: {trouble or 'no output'}\n{_last_words(folder, n_ranks)}")
        with np.load(out) as found:
            return dict(found)


def _start(place: dict[str, str], jobs: str, out: Path) -> subprocess.Popen:
    environment = os.environ | place | {
        SHARED_MEMORY: "0" if place["WORLD_SIZE"] == "3" else "1",
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }  # fmt: skip
    with _words(out.parent, int(place["RANK"])).open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.ranks.worker", jobs, str(out)],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr,
            process_group=0,
        )  # fmt: skip


def _wait(processes: list[subprocess.Popen], deadline: float) -> str:
    """Empty when all ended well, else what went wrong."""
    while True:
        codes = [process.poll() for process in processes]
        bad = [(rank, code) for rank, code in enumerate(codes) if code]
        if bad:
            end = min(deadline, time.monotonic() + GRACE)
            while time.monotonic() < end and any(process.poll() is None for process in processes):
                time.sleep(0.05)
            return "; ".join(f"rank {rank} ended with code {code}" for rank, code in bad)
        if all(code == 0 for code in codes):
            return ""
        if time.monotonic() > deadline:
            waiting = [rank for rank, code in enumerate(codes) if code is None]
            for rank in waiting:
                processes[rank].send_signal(signal.SIGUSR1)  # the worker prints its stack
            time.sleep(1.0)
            return f"the time is up, ranks {waiting} are still at work"
        time.sleep(0.05)


def _words(folder: Path, rank: int) -> Path:
    return folder / f"stderr.{rank}"


def _last_words(folder: Path, n_ranks: int) -> str:
    texts = (_words(folder, rank).read_text(errors="replace")[-TAIL:] for rank in range(n_ranks))
    return "\n".join(f"--- rank {rank}\n{text}" for rank, text in enumerate(texts))
