"""The run directory: claimed by one run at a time, never overwritten without being told to."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import weakref
from pathlib import Path
from typing import Any

from mdrun.errors import InputError

THERMO, TRAJECTORY, RANKS = "thermo.csv", "trajectory.extxyz", "ranks.csv"
STATUS, CONFIG, RELAXED = "status.json", "config.toml", "relaxed.extxyz"
STOP = "STOP"  # made by the user: the run stops
CHECKPOINT, PREVIOUS_CHECKPOINT = "checkpoint.npz", "checkpoint.previous.npz"
FILES = (THERMO, TRAJECTORY, RANKS, STATUS, CONFIG, CHECKPOINT, PREVIOUS_CHECKPOINT, RELAXED)


class RunDirectory:
    """Held by the writing rank for the life of the run."""

    def __init__(self, path: Path, inputs: list[Path], overwrite: bool, keep: bool = False) -> None:
        """Make or claim ``path``.

        Args:
            inputs: files that the run reads, which it must not write.
            overwrite: replace the run that is there.
            keep: go on with the run that is there.

        Raises:
            InputError: it exists already, another run holds it, it can't be made, or holds an input.
        """
        self.path = path
        self.is_new = not keep
        for name in FILES:
            for source in inputs:
                if source.resolve() == (path / name).resolve():
                    raise InputError(
                        f"{source} is an input of this run, which would write over it. Choose another --out."
                    )
        if path.exists() and not path.is_dir():
            raise InputError(f"--out {path} is a file; it must be a directory that does not exist yet.")
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDONLY)
            self._release = weakref.finalize(self, os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"another run is writing to {path} now. Choose another --out.") from error
        except OSError as error:
            raise InputError(f"the run directory {path} can't be made: {error.strerror}.") from error
        present = [name for name in FILES if (path / name).exists()]
        if not keep and not overwrite and any(path.iterdir()):
            raise InputError(
                f"the run directory {path} exists and is not empty. Choose another --out, or give --overwrite to "
                "replace the run in it."
            )
        if not os.access(path, os.W_OK):
            raise InputError(f"the run directory {path} can't be written to.")
        if not keep:
            for name in present:
                (path / name).unlink()

    def release(self) -> None:
        """Let another run have it; what happens anyway once nobody knows of it."""
        self._release()

    def discard(self) -> None:
        """Take back what was written, and the directory where nothing else is in it: the run never began.

        What an earlier part of the run wrote stays.
        """
        if not self.is_new:
            return
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def write_status(self, status: dict[str, Any]) -> None:
        """Replace ``status.json`` in one step, so that a reader never sees half of it."""
        partial = self.path / f".{STATUS}.{os.getpid()}"
        partial.write_text(json.dumps(status, indent=2) + "\n")
        os.replace(partial, self.path / STATUS)
