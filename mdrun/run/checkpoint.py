"""Checkpoints: the whole run by atom id, whatever ranks owned the atoms, so that a kill leaves a whole one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mdrun import npz
from mdrun.clock import CLOCK, SECTIONS
from mdrun.comm import Comm
from mdrun.domain import THEN, DomainCounts
from mdrun.errors import InputError
from mdrun.integrate import kept
from mdrun.npz import Damaged as DamagedCheckpoint
from mdrun.run.averages import Rows
from mdrun.run.checkpoint_contents import Wrong, check_arrays, check_meta
from mdrun.run.directory import DAMAGED_CHECKPOINT, writing
from mdrun.run.history import Start, starts_of
from mdrun.run.origin import Origin
from mdrun.run.settings import Settings
from mdrun.run.simulation import Simulation, look_back
from mdrun.run.trajectory import gather_by_id
from mdrun.state import FIELDS, Field

FORMAT = 4
BY_ATOM = (*FIELDS, Field(THEN, (3,), torch.float64))


@dataclass(frozen=True)
class Checkpoint:
    """What was read from a file.

    Attributes:
        step: that it was written after.
        origin: of the times up to there.
        settings: the options of the run that wrote it, by name.
        inputs: what was in each file that its model names, by path.
        outputs: by file name, how far each was written.
        variables: the integrator's, see ``mdrun.integrate.kept``.
        arrays: ``BY_ATOM`` in the order of ids, and those of ``CheckpointFile``.
        history: up to the process that wrote it.
    """

    step: int
    origin: Origin
    settings: dict[str, Any]
    inputs: dict[str, str]
    outputs: dict[str, int]
    variables: dict[str, list]
    arrays: dict[str, np.ndarray]
    history: tuple[Start, ...] = ()

    @property
    def n_atoms(self) -> int:
        return len(self.arrays["ids"])

    def without_atoms(self) -> Checkpoint:
        """What every rank needs of it."""
        names = {f.name for f in BY_ATOM}
        arrays = {name: values for name, values in self.arrays.items() if name not in names}
        return replace(self, arrays=arrays)


class CheckpointFile:
    """``checkpoint.npz`` and the generation before it, ``checkpoint.previous.npz``.

    Arrays: those of ``mdrun.state.FIELDS`` and the positions at the last rebuild in the order of ids (Å, unwrapped),
    ``cell``, ``pbc``, ``numbers``, what ``Domain.keep`` and ``Rows.keep`` give, a row of each rank's figures and shares
    of what the baths hold, and ``meta``, a JSON text. ``checksum`` is of all the others. No pickle.

    With the last rebuild in it a checkpoint leaves the run alone: nothing is rebuilt where one is written, and a run
    that goes on from it sees the rows and lists that the first one saw.
    """

    def __init__(
        self,
        path: Path | None,
        settings: Settings,
        inputs: Mapping[str, str],
        comm: Comm,
        outputs: Callable[[], Mapping[str, int]],
        rows: Rows,
        history: tuple[Start, ...] = (),
    ) -> None:
        """
        Args:
            path: None on ranks that don't write.
            inputs: as a ``Checkpoint`` has them.
            outputs: tells how far each file that grows was written and safe, by name.
        """
        self._path = path
        self._settings = settings
        self._inputs = inputs
        self._comm = comm
        self._outputs = outputs
        self._rows = rows
        self._history = history
        self._written_at: int | None = None

    def __call__(self, sim: Simulation) -> None:
        if sim.step == 0 or sim.step == self._written_at:  # the input itself, or twice the same
            return
        self._written_at = sim.step
        look_back(sim)  # nothing is kept that may turn out bad
        arrays = {**sim.domain.keep(), **self._rows.keep(), **_of_ranks(sim, self._comm)}
        atoms = gather_by_id({**sim.state.fields(), THEN: sim.domain.positions_then}, BY_ATOM, self._comm)
        if atoms is None or self._path is None:
            return
        meta = {
            "format": FORMAT,
            "step": sim.step,
            "origin": asdict(sim.origin),
            "settings": asdict(self._settings),
            "inputs": dict(self._inputs),
            "outputs": dict(self._outputs()),
            "variables": kept.variables(sim.integrator),
            "history": [asdict(start) for start in self._history],
        }
        write_whole(
            self._path,
            meta,
            cell=sim.state.cell.numpy(),
            pbc=np.array(sim.state.pbc),
            numbers=np.array(sim.state.numbers),
            **arrays,
            **{name: values.numpy() for name, values in atoms.items()},
        )


def _of_ranks(sim: Simulation, comm: Comm) -> dict[str, np.ndarray]:
    """A row of each rank: what it counted, and its shares of what the integrator holds; a collective."""
    counted = [*astuple(sim.domain.counts), comm.bytes_sent, *(CLOCK.seconds[s] for s in SECTIONS)]
    shares = kept.shares(sim.integrator)
    row = torch.from_numpy(np.concatenate([np.array(counted, dtype=np.float64), shares]))
    table = comm.all_gather(row).numpy()
    return {"rank_figures": table[:, : len(counted)], "rank_shares": table[:, len(counted) :]}


def put_back(checkpoint: Checkpoint, sim: Simulation, rows: Rows, with_baths: bool = True) -> None:
    """What the run had counted and its baths held, on every rank; the figures only where the ranks are as many.

    Args:
        with_baths: the integrator is the one that the checkpoint saw.

    Raises:
        InputError: the integrator is another.
    """
    comm, arrays = sim.domain.comm, checkpoint.arrays
    shares = arrays["rank_shares"]
    is_alike = len(shares) == comm.size
    whole = shares.sum(axis=0) * (comm.rank == 0)
    share = shares[comm.rank] if is_alike else whole
    try:
        if with_baths:
            kept.restore(sim.integrator, checkpoint.variables, share)
    except ValueError as error:
        raise InputError(f"the checkpoint is of another ensemble: {error}. Start afresh from its structure.") from error
    rows.restore(arrays)
    sim.counted_from = 0 if is_alike else checkpoint.step
    if is_alike:
        figures = arrays["rank_figures"][comm.rank].tolist()
        names = [f.name for f in fields(DomainCounts)]
        for name, value in zip(names, figures, strict=False):
            setattr(sim.domain.counts, name, int(value))
        comm.bytes_sent = int(figures[len(names)])
        CLOCK.seconds.update(zip(SECTIONS, figures[len(names) + 1 :], strict=True))


def write_whole(path: Path, meta: Any, **arrays: np.ndarray) -> None:
    """Write an npz, see ``mdrun.npz``, beside ``path``, force it to the disk, and only then let it take the name.

    The file that had the name becomes the previous generation. Of the two, one is whole at any moment, after a loss of
    power too; what a process killed meanwhile leaves is in nobody's way, and goes when the directory is next claimed.

    Raises:
        OutputError: the disk is full, the directory was removed or can't be written to; what was there is untouched.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            npz.write(partial, meta, arrays)
            if path.exists():
                os.replace(path, path.with_suffix(f".previous{path.suffix}"))
            os.replace(partial, path)
            _sync_names(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def put_damaged_away(path: Path) -> None:
    """Give a damaged checkpoint another name: the next one written would push it over the whole one before it.

    Raises:
        OutputError: it can't be renamed.
    """
    with writing(path):
        os.replace(path, path.with_name(DAMAGED_CHECKPOINT))
        _sync_names(path.parent)


def _sync_names(directory: Path) -> None:
    """Force the names of a directory's files to the disk."""
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read as untrusted: what it gives can be gone on with, whoever wrote it.

    Raises:
        DamagedCheckpoint: the file is not there, or no whole checkpoint.
        InputError: it is one of another version.
    """
    meta, arrays = npz.read(path, "checkpoint", FORMAT)
    try:
        check_meta(meta)
        check_arrays(arrays)
    except Wrong as error:
        raise DamagedCheckpoint(f"{path} is no checkpoint to go on from: {error}.") from error
    origin = Origin(**meta["origin"])
    named = {name: meta[name] for name in ("step", "settings", "inputs", "outputs", "variables")}
    return Checkpoint(origin=origin, arrays=arrays, history=starts_of(meta["history"]), **named)
