"""Checkpoints: the whole state by atom id, whatever ranks owned it, written so that a kill leaves a whole one."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np

from mdrun.comm import Comm
from mdrun.run.directory import writing
from mdrun.run.settings import Settings
from mdrun.run.simulation import Simulation, look_back
from mdrun.run.trajectory import gather_by_id
from mdrun.state import FIELDS

FORMAT = 1


class CheckpointFile:
    """``checkpoint.npz`` and the generation before it, ``checkpoint.previous.npz``.

    Arrays are those of ``mdrun.state.FIELDS`` in id order (positions unwrapped), beside ``cell``, ``pbc``, ``numbers``
    and ``meta``, a JSON text with the step, the degrees of freedom and the settings. No pickle.
    """

    def __init__(self, path: Path | None, settings: Settings, comm: Comm) -> None:
        """``path`` is None on ranks that don't write."""
        self._path = path
        self._settings = settings
        self._comm = comm
        self._written_at: int | None = None

    def __call__(self, sim: Simulation) -> None:
        if sim.step == 0 or sim.step == self._written_at:  # the input itself, or twice the same
            return
        self._written_at = sim.step
        look_back(sim)  # nothing is kept that may turn out bad
        atoms = gather_by_id(sim.state.fields(), FIELDS, self._comm)
        if atoms is None or self._path is None:
            return
        meta = {"format": FORMAT, "step": sim.step, "n_dof": sim.n_dof, "settings": asdict(self._settings)}
        write_whole(
            self._path,
            cell=sim.state.cell.numpy(),
            pbc=np.array(sim.state.pbc),
            numbers=np.array(sim.state.numbers),
            meta=np.array(json.dumps(meta)),
            **{name: values.numpy() for name, values in atoms.items()},
        )


def write_whole(path: Path, **arrays: np.ndarray) -> None:
    """Write an npz beside ``path``, force it to the disk, and only then let it take the name.

    The file that had the name becomes the previous generation. Of the two, one is whole at any moment, after a loss of
    power too; what a process killed meanwhile leaves is in nobody's way, and goes when the directory is next claimed.

    Raises:
        OutputError: the disk is full, the directory was removed or can't be written to; what was there is untouched.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            with partial.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                os.replace(path, path.with_suffix(f".previous{path.suffix}"))
            os.replace(partial, path)
            _sync_names(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def _sync_names(directory: Path) -> None:
    """Force the names of a directory's files to the disk."""
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
