"""The run directory: claimed by one run at a time, never overwritten without being told to."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tomllib
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mdrun.errors import InputError

THERMO, TRAJECTORY, RANKS = "thermo.csv", "trajectory.extxyz", "ranks.csv"
STATUS, CONFIG, RELAXED = "status.json", "config.toml", "relaxed.extxyz"
CHECKPOINT, PREVIOUS_CHECKPOINT = "checkpoint.npz", "checkpoint.previous.npz"
FILES = (THERMO, TRAJECTORY, RANKS, STATUS, CONFIG, CHECKPOINT, PREVIOUS_CHECKPOINT, RELAXED)

SUFFIXES = (".extxyz", ".xyz", ".traj", ".h5md", ".dump", ".lammpstrj")  # of trajectories


class RunDirectory:
    """Held by the writing rank for the life of the run."""

    def __init__(self, path: Path, inputs: list[Path], overwrite: bool, trajectories: Sequence[str] = ()) -> None:
        """Make or claim ``path``.

        Args:
            inputs: files that the run reads, which it must not write.
            trajectories: names of files that it writes beside ``FILES``.

        Raises:
            InputError: it exists already, another run holds it, it can't be made, or holds an input.
        """
        self.path = path
        self._files = tuple(dict.fromkeys((*FILES, *trajectories)))
        for name in self._files:
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
        former = _trajectories_of(path / CONFIG) if overwrite else ()
        present = [name for name in dict.fromkeys((*self._files, *former)) if (path / name).exists()]
        if any(path.iterdir()) and not overwrite:
            raise InputError(
                f"the run directory {path} exists and is not empty. Choose another --out, or give --overwrite to "
                "replace the run in it."
            )
        if not os.access(path, os.W_OK):
            raise InputError(f"the run directory {path} can't be written to.")
        for name in present:
            (path / name).unlink()

    def release(self) -> None:
        """Let another run have it; what happens anyway once nobody knows of it."""
        self._release()

    def discard(self) -> None:
        """Take back what was written, and the directory where nothing else is in it: the run never began."""
        for name in self._files:
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def write_status(self, status: dict[str, Any]) -> None:
        """Replace ``status.json`` in one step, so that a reader never sees half of it."""
        partial = self.path / f".{STATUS}.{os.getpid()}"
        partial.write_text(json.dumps(status, indent=2) + "\n")
        os.replace(partial, self.path / STATUS)


def _trajectories_of(config: Path) -> list[str]:
    """The trajectories of the run that is replaced, so that none of them stays beside the new one's."""
    try:
        names = tomllib.loads(config.read_text(encoding="utf-8")).get("trajectory", [])
    except (OSError, ValueError):
        return []
    named = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return [name for name in named if Path(name).name == name and Path(name).suffix in SUFFIXES]
