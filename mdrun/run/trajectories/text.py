"""Trajectories as text: extended XYZ, and the dump of LAMMPS."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
import torch

from mdrun import units
from mdrun.cell import completed
from mdrun.run.appending import open_text, written
from mdrun.run.trajectories.frames import Frame

if TYPE_CHECKING:
    from ase import Atoms

ROWS_AT_ONCE = 10_000  # made into text together: a frame's text is never held whole
DECIMALS = 8


class TextWriter:
    """What both formats share: a file that is cut back to a byte and goes on from there; its position is in bytes."""

    def __init__(self, path: Path, decimals: int = DECIMALS, at: int | None = None) -> None:
        """Raises:
        InputError: the file is gone, or shorter than ``at``.
        """
        self._decimals = decimals
        self._file = open_text(path, at)

    def flush(self) -> None:
        written(self._file)

    def position(self) -> int:
        self._file.flush()
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()


class ExtxyzWriter(TextWriter):
    """Extended XYZ as ASE has it: every column and everything in ``info``. Velocities are the ``momenta`` column."""

    def write(self, frame: Frame) -> None:
        from ase import Atoms

        header = Atoms(cell=frame.cell, pbc=frame.pbc, info=dict(frame.info))
        write_frame(self._file, header, frame.numbers, frame.columns, self._decimals)
        self._file.flush()


class DumpWriter(TextWriter):
    """LAMMPS's text dump in metal units: Å, Å/ps, eV/Å, amu, e.

    A cell whose vectors are lower triangular goes in as LAMMPS has it; any other as a general triclinic box
    (``ITEM: BOX BOUNDS abc origin``, LAMMPS of April 2024 and later, ASE, OVITO), so that no vector is rotated. An axis
    without a cell vector has the bounds of the atoms.
    """

    def __init__(self, path: Path, decimals: int = DECIMALS, at: int | None = None, is_wrapped: bool = False) -> None:
        super().__init__(path, decimals, at)
        self._places = ("x", "y", "z") if is_wrapped else ("xu", "yu", "zu")
        self._is_empty = self.position() == 0

    def write(self, frame: Frame) -> None:
        names, words = ["id", "type", "element"], ["%d", "%d", "%s"]
        kinds = np.unique(frame.numbers)
        columns = [frame.ids + 1, np.searchsorted(kinds, frame.numbers) + 1, _symbols(frame.numbers)]
        velocities = frame.velocities()
        vectors = {
            self._places: frame.columns["positions"],
            ("vx", "vy", "vz"): None if velocities is None else velocities * units.PS,
            ("fx", "fy", "fz"): frame.columns.get("forces"),
            ("mass",): frame.columns.get("masses"),
            ("q",): frame.columns.get("initial_charges"),
        }
        for labels, values in vectors.items():
            if values is not None:
                names += labels
                words += [f"%.{self._decimals}f"] * len(labels)
                columns.append(values)
        head = "ITEM: UNITS\nmetal\n" if self._is_empty else ""
        if frame.time_ps == frame.time_ps:
            head += f"ITEM: TIME\n{frame.time_ps!r}\n"
        head += f"ITEM: TIMESTEP\n{max(frame.step, 0)}\nITEM: NUMBER OF ATOMS\n{len(frame)}\n"
        self._file.write(f"{head}{box_bounds(frame)}ITEM: ATOMS {' '.join(names)}\n")
        write_rows(self._file, " ".join(words) + "\n", columns)
        self._file.flush()
        self._is_empty = False


def box_bounds(frame: Frame) -> str:
    """The lines of a dump that tell the box; https://docs.lammps.org/Howto_triclinic.html."""
    positions = frame.columns["positions"]
    bare: np.ndarray = np.logical_not(frame.cell.any(axis=1))
    origin, cell = np.zeros(3), frame.cell
    if bare.any():
        # Rows without a vector become the normal of the others, as long as the atoms reach along it.
        cell = completed(torch.tensor(cell), [not b for b in bare]).numpy()
        places = positions @ np.linalg.inv(cell)
        low, high = places.min(axis=0) - 0.5, places.max(axis=0) + 0.5
        origin = np.where(bare, low, 0.0) @ cell
        cell = np.where(bare[:, None], cell * (high - low)[:, None], cell)
    flags = " ".join("pp" if periodic else "ff" for periodic in frame.pbc)
    if np.triu(cell, 1).any() or (np.diag(cell) <= 0).any():
        rows = [
            f"{' '.join(map(repr, vector.tolist()))} {x!r}\n" for vector, x in zip(cell, origin.tolist(), strict=True)
        ]
        return f"ITEM: BOX BOUNDS abc origin {flags}\n" + "".join(rows)
    low, high = origin.tolist(), (origin + np.diag(cell)).tolist()
    xy, xz, yz = float(cell[1, 0]), float(cell[2, 0]), float(cell[2, 1])
    if not (xy or xz or yz):
        rows = [f"{lo!r} {hi!r}\n" for lo, hi in zip(low, high, strict=True)]
        return f"ITEM: BOX BOUNDS {flags}\n" + "".join(rows)
    reaches = (0.0, xy, xz, xy + xz)  # LAMMPS gives the box that bounds the tilted one
    low[0], high[0] = low[0] + min(reaches), high[0] + max(reaches)
    low[1], high[1] = low[1] + min(0.0, yz), high[1] + max(0.0, yz)
    rows = [f"{lo!r} {hi!r} {tilt!r}\n" for lo, hi, tilt in zip(low, high, (xy, xz, yz), strict=True)]
    return f"ITEM: BOX BOUNDS xy xz yz {flags}\n" + "".join(rows)


def write_frame(
    file: TextIO, header: Atoms, numbers: np.ndarray, columns: Mapping[str, np.ndarray], decimals: int = DECIMALS
) -> None:
    """One frame as ``ase.io.write`` formats it, byte for byte, in a fraction of the time and without a copy of it.

    Args:
        header: cell, periodic axes and ``info`` for the comment line; its atoms don't matter.
        numbers: (n,) atomic numbers.
        columns: (n,) or (n, k) by ASE's names, in the order of the file.
        decimals: of real numbers in the rows; ASE writes 8.
    """
    from ase.io.extxyz import output_column_format

    empty = {"symbols": np.empty(0, "U2"), **{name: values[:0] for name, values in columns.items()}}
    comment, _, _, row = output_column_format(header, list(empty), empty, write_info=True)
    file.write(f"{len(numbers)}\n{comment}\n")
    if decimals != DECIMALS:
        row = row.replace(f"%{DECIMALS + 8}.{DECIMALS}f", f"%{decimals + 8}.{decimals}f")
    write_rows(file, row, [_symbols(numbers), *columns.values()])


def write_rows(file: TextIO, row: str, columns: Iterable[np.ndarray]) -> None:
    """Rows in the words of a format like ``%-2s %16.8f ...``, one for each number of the columns (n,) or (n, k)."""
    columns = list(columns)
    for first in range(0, len(columns[0]), ROWS_AT_ONCE):
        words: list[list] = []
        for values in columns:
            part = values[first : first + ROWS_AT_ONCE]
            words += part.reshape(len(part), -1).T.tolist()
        file.write("".join(map(row.__mod__, zip(*words, strict=True))))


def _symbols(numbers: np.ndarray) -> np.ndarray:
    from ase.data import chemical_symbols

    return np.array(chemical_symbols)[numbers]
