"""Frames of the whole system, atoms in the order of the input file whatever rank owns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from mdrun.comm import Comm
from mdrun.errors import InputError
from mdrun.run.directory import TRAJECTORY, writing
from mdrun.run.simulation import Simulation
from mdrun.run.thermo import Thermometer
from mdrun.run.trajectories.files import open_writer
from mdrun.run.trajectories.frames import Frame, Writer, move_mask, wrapped
from mdrun.run.trajectories.names import format_of, parse_precision
from mdrun.run.trajectories.writing import WritingThread
from mdrun.state import FIELDS, Field
from mdrun.structures.selection import select

if TYPE_CHECKING:
    from ase import Atoms

FRAME_FIELDS = (
    *(f for f in FIELDS if f.name in ("positions", "momenta", "mobile")),
    Field("forces", (3,), torch.float64),
)
IDS = next(f for f in FIELDS if f.name == "ids")


def gather_by_id(
    arrays: Mapping[str, torch.Tensor], fields: Sequence[Field], comm: Comm
) -> dict[str, torch.Tensor] | None:
    """The named per-atom fields of all ranks in the order of the ids on rank 0, None elsewhere; a collective.

    Field by field, so that no more than one of them is held twice.
    """
    ids = _gather(arrays, IDS, comm)
    found = {}
    for f in fields:
        values = _gather(arrays, f, comm)
        if values is not None and ids is not None:
            found[f.name] = torch.empty_like(values).index_copy_(0, ids, values)
    return None if ids is None else found


def _gather(arrays: Mapping[str, torch.Tensor], field: Field, comm: Comm) -> torch.Tensor | None:
    values = arrays[field.name].cpu()
    rows = comm.gather(values.byte() if field.dtype == torch.bool else values)  # flags can't be sent as such
    return None if rows is None else rows.to(field.dtype)


class TrajectoryFile:
    """The files of a trajectory: all that the input file said of the atoms, with what moved brought up to date.

    Frames are gathered here and written by a thread of its own on the rank that writes.
    """

    def __init__(
        self,
        directory: Path | None,
        template: Atoms | None,
        comm: Comm,
        thermometer: Thermometer,
        names: Sequence[str] = (TRAJECTORY,),
        *,
        selection: str | None = None,
        precision: str | None = None,
        is_wrapped: bool = False,
        at: Mapping[str, int] | None = None,
    ) -> None:
        """Open the files of these names, cut back to the places ``at``, by name, where these are given.

        Args:
            directory: where they are; it and ``template`` are None on ranks that don't write.
            selection: the atoms that are kept, as ``mdrun.structures.selection`` takes it; all where None.
            precision: see ``mdrun.run.trajectories.files.parse_precision``.
            is_wrapped: positions are brought into the cell.

        Raises:
            InputError: the selection is wrong, or a file ends before its place.
        """
        self._comm, self._thermometer, self._is_wrapped = comm, thermometer, is_wrapped
        self._writers: dict[Path, Writer] = {}
        self._thread: WritingThread | None = None
        if directory is None or template is None:
            return
        everyone = np.arange(len(template))
        self._ids = everyone if selection is None else np.flatnonzero(select(selection, template, "--trajectory-atoms"))
        self._numbers = template.numbers[self._ids].astype(np.uint8)
        others = {n: v for n, v in template.arrays.items() if n not in ("numbers", "positions", "momenta")}
        self._constants = {name: values[self._ids] for name, values in others.items()}
        self._info = dict(template.info)
        digits = parse_precision(precision, names)
        paths = [directory / name for name in names]
        for path in paths:  # one without frames is what a start left that was killed
            if at is not None and path.name not in at and path.exists() and path.stat().st_size > 0:
                raise InputError(f"{path} is none of this run's trajectories, and would be written over. Move it away.")
        # Those first that are copied as they are cut back, where damage may show that no look at them could find.
        for path in sorted(paths, key=lambda path: format_of(path, "--trajectory") != "h5md"):
            with writing(path):
                self._writers[path] = open_writer(path, digits, is_wrapped, (at or {}).get(path.name))
        self._thread = WritingThread(self._writers)

    def __call__(self, sim: Simulation) -> None:
        """Raises:
        OutputError: an earlier frame could not be written.
        """
        thermo = self._thermometer(sim)
        arrays = {**sim.state.fields(), "forces": sim.forces.forces}
        gathered = gather_by_id(arrays, FRAME_FIELDS, self._comm)
        if gathered is None or self._thread is None:
            return
        is_all = len(self._ids) == len(gathered["positions"])
        chosen = {name: v.numpy() if is_all else v.numpy()[self._ids] for name, v in gathered.items()}
        cell, pbc = sim.state.cell.numpy().copy(), sim.state.pbc
        info = {**self._info, "step": sim.step, "time_ps": thermo.time_ps, "energy": thermo.potential_eV}
        if bool(torch.isfinite(thermo.stress).all()):
            info["stress"] = thermo.stress.numpy().copy()
        positions = wrapped(chosen["positions"], cell, pbc) if self._is_wrapped else chosen["positions"]
        columns = {"positions": positions, **move_mask(chosen["mobile"]), **self._constants}
        columns |= {name: chosen[name] for name in ("momenta", "forces")}
        self._thread.put(Frame(sim.step, thermo.time_ps, cell, pbc, self._ids, self._numbers, columns, info))

    def flush(self) -> None:
        """Wait until every frame is in the files, and they on the disk; on ranks that don't write nothing happens.

        Raises:
            OutputError: a frame could not be written.
        """
        if self._thread is not None:
            self._thread.flush()

    def positions(self) -> dict[str, int]:
        """Where each file ends, after ``flush``: bytes of text, frames of others; empty on other ranks."""
        self.flush()
        return {path.name: writer.position() for path, writer in self._writers.items()}

    def close(self) -> None:
        """Write what waits, as far as that can be, and let go of the files; raises nothing."""
        if self._thread is not None:
            self._thread.close()
            self._thread = None
