"""Frames of the whole system, atoms in the order of the input file whatever rank owns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
import torch

from mdrun.comm import Comm
from mdrun.run.appending import open_text, written
from mdrun.run.directory import writing
from mdrun.run.simulation import Simulation
from mdrun.run.thermo import Thermometer
from mdrun.state import FIELDS, Field

if TYPE_CHECKING:
    from ase import Atoms

FRAME_FIELDS = (
    *(f for f in FIELDS if f.name in ("positions", "momenta", "mobile")),
    Field("forces", (3,), torch.float64),
)
ROWS_AT_ONCE = 10_000  # made into text together: a frame's text is never held whole
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
    """``trajectory.extxyz``: everything that the input file said of the atoms, with what has moved brought up to date.

    Velocities are the ``momenta`` column, in sqrt(amu·eV), which is what ASE reads back as velocities.
    """

    def __init__(
        self, path: Path | None, template: Atoms | None, comm: Comm, thermometer: Thermometer, at: int | None = None
    ) -> None:
        """``path`` and ``template`` are None on ranks that don't write; ``at``: go on there, see ``open_text``."""
        self._comm = comm
        self._thermometer = thermometer
        self._file: TextIO | None = None
        if path is not None:
            self._path = path
            with writing(path):
                self._file = open_text(path, at)
        if template is not None:
            self._numbers = template.numbers.astype(np.uint8)
            self._constants = {n: v for n, v in template.arrays.items() if n not in ("numbers", "positions", "momenta")}
            self._header = template[:0]
            self._header.info = dict(template.info)

    def position(self) -> int:
        """Bytes written, and safe; 0 on ranks that don't write."""
        return 0 if self._file is None else written(self._file)

    def __call__(self, sim: Simulation) -> None:
        thermo = self._thermometer(sim)
        arrays = {**sim.state.fields(), "forces": sim.forces.forces}
        frame = gather_by_id(arrays, FRAME_FIELDS, self._comm)
        if frame is None or self._file is None:
            return
        header = self._header
        header.info.update(step=sim.step, time_ps=thermo.time_ps, energy=thermo.potential_eV)
        if bool(torch.isfinite(thermo.stress).all()):
            header.info["stress"] = thermo.stress.numpy()
        header.set_cell(sim.state.cell.numpy())
        columns = {"positions": frame["positions"].numpy(), **move_mask(frame["mobile"].numpy()), **self._constants}
        columns |= {name: frame[name].numpy() for name in ("momenta", "forces")}
        with writing(self._path, self._file):
            write_frame(self._file, header, self._numbers, columns)
            self._file.flush()


def move_mask(mobile: np.ndarray) -> dict[str, np.ndarray]:
    """The column that ASE makes constraints of: a flag for each atom where these will do, else for each component."""
    if mobile.all():
        return {}
    return {"move_mask": mobile[:, 0] if (mobile == mobile[:, :1]).all() else mobile}


def write_frame(file: TextIO, header: Atoms, numbers: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
    """One frame as ``ase.io.write`` formats it, byte for byte, in a fraction of the time and without a copy of it.

    Args:
        header: cell, periodic axes and ``info`` for the comment line; its atoms don't matter.
        numbers: (n,) atomic numbers.
        columns: (n,) or (n, k) by ASE's names, in the order of the file.
    """
    from ase.data import chemical_symbols
    from ase.io.extxyz import output_column_format

    empty = {"symbols": np.empty(0, "U2"), **{name: values[:0] for name, values in columns.items()}}
    comment, _, _, row = output_column_format(header, list(empty), empty, write_info=True)
    file.write(f"{len(numbers)}\n{comment}\n")
    for first in range(0, len(numbers), ROWS_AT_ONCE):
        part = slice(first, first + ROWS_AT_ONCE)
        words = [[chemical_symbols[z] for z in numbers[part].tolist()]]
        for values in columns.values():
            words += values[part].reshape(len(words[0]), -1).T.tolist()
        file.write("".join(map(row.__mod__, zip(*words, strict=True))))
