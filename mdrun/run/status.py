"""``status.json`` as others read it: what it says of the way ahead and of the process, and whether that still lives."""

from __future__ import annotations

import functools
import json
import os
import shlex
import socket
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from mdrun.errors import EXIT_UNPHYSICAL, InputError
from mdrun.run.directory import BLOWUP, CHECKPOINT, PREVIOUS_CHECKPOINT, RELAXED, STATUS, file_of_run
from mdrun.run.history import Start, starts_of

RUNNING = "running"
MOST_BYTES = 64 << 20  # a kilobyte for each rank of the largest run there is
SILENT_S = 600.0  # of a process on another host, until it counts as silent
CLOCKS_S = 5.0  # by which a process's age may be told differently


def now() -> datetime:
    """With the zone, to the second."""
    return datetime.now().astimezone().replace(microsecond=0)


def outlook(n_steps_left: int, steps_per_second: float) -> dict[str, Any]:
    """``seconds_left`` and ``estimated_end``; None where nothing can be said."""
    if steps_per_second <= 0:
        return {"seconds_left": None, "estimated_end": None}
    seconds = n_steps_left / steps_per_second
    try:
        end = (now() + timedelta(seconds=seconds)).isoformat()
    except OverflowError:  # beyond the calendar
        end = None
    return {"seconds_left": seconds, "estimated_end": end}


@functools.cache
def this_process() -> dict[str, Any]:
    """Where to look for it."""
    process = psutil.Process()
    return {"host": socket.gethostname(), "pid": process.pid, "process_began": process.create_time()}


@dataclass(frozen=True)
class RunStatus:
    """The part of ``status.json`` that a person asks for, under its names there; what is missing is None.

    Attributes:
        state: ``died`` or ``silent`` where the file says ``running`` and the process does not.
        silent_s: seconds since the file was written.
    """

    directory: Path
    state: str
    command: str | None
    step: int
    time_ps: float | None
    n_steps: int | None
    steps_per_second: float | None
    seconds_left: float | None
    estimated_end: str | None
    checkpoint_step: int | None
    reason: str | None
    exit_code: int | None
    n_atoms: int | None
    ranks: int | None
    threads: int | None
    host: str | None
    pid: int | None
    silent_s: float
    history: tuple[Start, ...]


def read_status(directory: Path) -> RunStatus:
    """What is known of the run in a directory.

    Raises:
        InputError: there is none.
    """
    path = directory / STATUS
    if not path.exists():
        path = file_of_run(directory, STATUS)
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        raise InputError(f"{directory} {what}; mdrun status takes the directory of a run.")
    try:
        text = _text_of(path)
        age = max(time.time() - path.stat().st_mtime, 0.0)
    except FileNotFoundError as error:
        raise InputError(f"{directory} holds no run: there is no {STATUS} in it.") from error
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}.") from error
    try:
        raw = json.loads(text)
        status = _checked(raw, directory, age)
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is not the status of a run: {error}.") from error
    return status


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise InputError(f"{path} is not the status of a run: it is longer than {MOST_BYTES >> 20} MiB.")
    return content.decode("utf-8", "replace")


def _checked(raw: Any, directory: Path, age: float) -> RunStatus:
    def take(name: str, kinds: tuple[type, ...], needed: bool = False) -> Any:
        value = raw.get(name)
        if value is None and not needed:
            return None
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise TypeError(f"{name} is {str(value)[:40]!r}")
        return value

    if not isinstance(raw, dict):
        raise TypeError("it holds no names")
    state = take("state", (str,), needed=True)
    if state == RUNNING:
        state = _state_of_process(take("host", (str,)), take("pid", (int,)), take("process_began", (int, float)), age)
    whole = {name: take(name, (int,)) for name in ("n_steps", "checkpoint_step", "exit_code", "n_atoms")}
    return RunStatus(
        directory=directory,
        state=state,
        command=take("command", (str,)),
        step=take("step", (int,), needed=True),
        time_ps=take("time_ps", (int, float)),
        steps_per_second=take("steps_per_second", (int, float)),
        seconds_left=take("seconds_left", (int, float)),
        estimated_end=take("estimated_end", (str,)),
        reason=take("reason", (str,)),
        ranks=take("ranks", (int,)),
        threads=take("threads", (int,)),
        host=take("host", (str,)),
        pid=take("pid", (int,)),
        silent_s=age,
        history=starts_of(raw.get("history", [])),
        **whole,
    )


def _state_of_process(host: str | None, pid: int | None, began: float | None, age: float) -> str:
    """``running``, ``died`` where the process that wrote it is gone, ``silent`` where nobody here can know."""
    if host != socket.gethostname() or pid is None or began is None:
        return "silent" if age > SILENT_S else RUNNING
    try:
        process = psutil.Process(pid)
        # Numbers of processes are given anew.
        lives = process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - began) < CLOCKS_S
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        lives = False
    except psutil.AccessDenied:
        lives = True
    return RUNNING if lives else "died"


def way_on(status: RunStatus) -> str | None:
    """What to do with a run that did not come to its end; None where that is nothing."""
    if status.state not in ("stopped", "died", "failed"):
        return None
    if status.command == "relax":
        return way_on_from_relaxed(status.directory) or f"start it again: it left no {RELAXED}"
    # That of a killed run may be newer than its status.
    if not any(file_of_run(status.directory, name).exists() for name in (CHECKPOINT, PREVIOUS_CHECKPOINT)):
        return "start it again: it left no checkpoint"
    if status.exit_code == EXIT_UNPHYSICAL:
        return (
            f"see what is in {status.directory / BLOWUP}; from the last checkpoint it comes to the same again, unless "
            f"something changes: mdrun resume {shlex.quote(os.fspath(status.directory))} --allow-changes timestep "
            "--timestep FS, say"
        )
    return f"mdrun resume {shlex.quote(os.fspath(status.directory))}"


def way_on_from_relaxed(directory: Path) -> str | None:
    """How to go on with a relaxation, which leaves no checkpoint; None where it left no structure either."""
    relaxed = directory / RELAXED
    return f"mdrun relax {shlex.quote(os.fspath(relaxed))}, its options as before" if relaxed.exists() else None
