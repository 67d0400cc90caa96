"""The program as its users start it: piped, under torchrun, under srun's variables; what hangs is ended by its id."""

from __future__ import annotations

import contextlib
import io
import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
MDRUN = str(BIN / "mdrun")
LIMIT_S = 120.0
# Variables that would change what the program prints, or make it believe that a launcher started it.
FOREIGN = ("NO_COLOR", "TERM", "COLUMNS", "LINES", "FORCE_COLOR", "PYTHONIOENCODING", "RANK", "WORLD_SIZE")


@dataclass(frozen=True)
class Ended:
    """What a process left behind."""

    code: int
    out: str
    err: str

    def expect(self, code: int) -> Ended:
        """Itself, if the exit code is that one."""
        if self.code != code:
            pytest.fail(f"exit code {self.code} in place of {code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}")
        return self


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """One thread for each process, nothing of the terminal that the tests run in, and the changes."""
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN and not name.startswith("SLURM_")}
    return kept | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"} | dict(changes or {})


class Program:
    """A process at work, its output in files so that no pipe fills up."""

    def __init__(self, *command: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        self.command = [str(word) for word in command]
        self._files: list[Any] = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]  # noqa: SIM115
        self.process = subprocess.Popen(
            self.command, cwd=cwd, env=environment(env), stdin=subprocess.DEVNULL,
            stdout=self._files[0], stderr=self._files[1],
        )  # fmt: skip

    def wait(self, limit_s: float = LIMIT_S) -> Ended:
        """Its end; a failure of the test if that does not come in time."""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"no end within {limit_s:g} s: {' '.join(self.command)}\n{self.so_far()}")
        return self.so_far()

    def so_far(self) -> Ended:
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read().decode("utf-8", "backslashreplace"))
        return Ended(self.process.poll() or 0, *texts)

    def kill(self) -> None:
        """End it and what it started; a launcher's ranks have sessions of their own."""
        if self.process.poll() is None:
            family = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
            for member in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            self.process.wait()
            psutil.wait_procs(family, timeout=10)


def call(*arguments: object, cwd: Path) -> Ended:
    """``mdrun ARGUMENTS`` within this process, for what a start of its own would not prove better."""
    from mdrun.cli.app import main

    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["mdrun", *map(str, arguments)]
    try:
        with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as leaving:
        return Ended(int(leaving.code or 0), out.getvalue(), err.getvalue())
    finally:
        sys.argv = before
    raise AssertionError("main always leaves by SystemExit")


def start(*arguments: object, **more: Any) -> Program:
    """``mdrun ARGUMENTS`` on one rank."""
    return Program(MDRUN, *arguments, **more)


def run(*arguments: object, **more: Any) -> Ended:
    """``start``, to its end."""
    return start(*arguments, **more).wait()


def torchrun(n_ranks: int, *command: object, **more: Any) -> Program:
    """``torchrun`` with a port of its own."""
    return Program(BIN / "torchrun", "--standalone", "--nproc-per-node", n_ranks, *command, **more)


def srun(n_ranks: int, *arguments: object, env: Mapping[str, str] | None = None, **more: Any) -> list[Program]:
    """``mdrun ARGUMENTS`` with the variables that srun sets for each task; nobody ends a rank but the rank itself."""
    job = random.randrange(10_000)
    while not is_free(20_000 + job):  # where mdrun will meet
        job = random.randrange(10_000)
    step = {
        "SLURM_JOB_ID": str(job), "SLURM_NTASKS": str(n_ranks), "SLURM_STEP_NUM_TASKS": str(n_ranks),
        "SLURM_STEP_TASKS_PER_NODE": str(n_ranks), "SLURM_STEP_NODELIST": "localhost",
    }  # fmt: skip
    return [
        start(*arguments, env={**step, "SLURM_PROCID": str(r), "SLURM_LOCALID": str(r), **(env or {})}, **more)
        for r in range(n_ranks)
    ]


def wait_all(ranks: list[Program], limit_s: float = LIMIT_S) -> list[Ended]:
    """All ends; a rank that waits for ever fails the test, and takes no other with it."""
    try:
        return [rank.wait(limit_s) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
