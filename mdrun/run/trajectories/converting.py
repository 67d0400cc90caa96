"""From one format of trajectories to another, a frame at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mdrun.errors import InputError, MdrunError
from mdrun.run.trajectories.files import open_writer
from mdrun.run.trajectories.frames import Frame, Writer, wrapped
from mdrun.run.trajectories.names import Precision, format_of, parse_precision
from mdrun.run.trajectories.reading import read_frames
from mdrun.structures.selection import select

# Columns that a format has a place for, beside positions, momenta and forces; None for all.
COLUMNS = {
    "extxyz": None,
    "traj": {"masses", "initial_charges", "initial_magmoms", "tags", "move_mask"},
    "h5md": {"masses", "initial_charges", "move_mask"},
    "dump": {"masses", "initial_charges"},
}
INFO = {"extxyz": None, "traj": None, "h5md": {"energy", "stress"}, "dump": set[str]()}


@dataclass(frozen=True)
class Conversion:
    """What is to become of a trajectory.

    Attributes:
        frames: which, all where None; see ``read_frames``.
        atoms: which, as ``mdrun.structures.selection`` takes it, by the first frame; all where None.
        precision: see ``parse_precision``.
        species: elements of types 1, 2, .. in a dump that does not say them.
    """

    source: Path
    target: Path
    frames: slice | None = None
    atoms: str | None = None
    precision: str | None = None
    is_wrapped: bool = False
    species: Sequence[str] | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class Converted:
    """How much was written, and what the format had no place for."""

    n_frames: int
    n_atoms: int
    lost: tuple[str, ...]


def convert(asked: Conversion, tell: Callable[[int], None]) -> Converted:
    """Write the file; ``tell`` hears of each frame, by how many there are now.

    Raises:
        InputError: an option is wrong, a file is not there or in the way, or a frame can't be read; the text says how
            many were converted.
        MdrunError: the file can't be written.
    """
    format_of(asked.source, "the trajectory")
    _check_target(asked.source, asked.target, asked.overwrite)
    digits = parse_precision(asked.precision, (asked.target.name,), "--precision")
    first: Frame | None = None
    chosen, n, writer = np.empty(0, np.int64), 0, None
    try:
        for frame in read_frames(asked.source, asked.frames, asked.species):
            if first is None:
                first = frame
                chosen = np.arange(len(frame))
                if asked.atoms is not None:
                    chosen = np.flatnonzero(select(asked.atoms, frame.atoms(), "--atoms"))
                writer = _opened(asked, digits)
            _check_alike(asked, frame, first, n)
            _write(writer, _part_of(frame, chosen, asked), asked.target, n)
            n += 1
            tell(n)
        if writer is not None:
            _flush(writer, asked.target, n)
    except InputError as error:
        raise InputError(f"{error} {_how_many(n, asked.target)}") from error
    finally:
        if writer is not None:
            _close(writer)
    if first is None:
        raise InputError(f"{asked.source} holds none of the frames that --frames asks for.")
    return Converted(n, len(chosen) or len(first), _lost(first, format_of(asked.target, "the trajectory")))


def _check_target(source: Path, target: Path, overwrite: bool) -> None:
    """Refuse what can't be the target, before anything is read."""
    format_of(target, "the new file")
    if not target.absolute().parent.is_dir():
        raise InputError(f"{target} can't be written: there is no directory {target.parent}.")
    if target.exists():
        if source.exists() and target.samefile(source):
            raise InputError(f"{target} is the file that is to be read. Choose another name.")
        if not target.is_file():
            raise InputError(f"{target} is no file that could be replaced. Choose another name.")
        if not overwrite:
            raise InputError(f"{target} exists. Choose another name, or replace it with --overwrite.")


def _opened(asked: Conversion, digits: Precision) -> Writer:
    try:
        return open_writer(asked.target, digits, asked.is_wrapped)
    except OSError as error:
        raise MdrunError(f"{asked.target} can't be opened: {error.strerror or error}.") from error


def _check_alike(asked: Conversion, frame: Frame, first: Frame, n: int) -> None:
    is_same = np.array_equal(frame.numbers, first.numbers)
    if format_of(asked.target, "") == "h5md" and not (is_same and frame.pbc == first.pbc):
        raise InputError(
            f"{asked.source}: a frame has other atoms or periodic axes than the first, but {asked.target.suffix} has "
            "one list of atoms for all. Choose the frames with --frames, or another format."
        )
    if asked.atoms is not None and len(frame) != len(first):
        raise InputError(
            f"{asked.source}: a frame has {len(frame)} atoms, the first {len(first)}; --atoms counts on one number."
        )


def _part_of(frame: Frame, chosen: np.ndarray, asked: Conversion) -> Frame:
    if asked.atoms is not None:
        columns = {name: values[chosen] for name, values in frame.columns.items()}
        frame = replace(frame, ids=frame.ids[chosen], numbers=frame.numbers[chosen], columns=columns)
    if asked.is_wrapped:
        places = wrapped(frame.columns["positions"], frame.cell, frame.pbc)
        frame = replace(frame, columns={**frame.columns, "positions": places})
    return frame


def _write(writer: Writer | None, frame: Frame, target: Path, n: int) -> None:
    assert writer is not None
    try:
        writer.write(frame)
    except OSError as error:
        raise _unwritten(target, n, error) from error


def _flush(writer: Writer, target: Path, n: int) -> None:
    try:
        writer.flush()
    except OSError as error:
        raise _unwritten(target, n, error) from error


def _close(writer: Writer) -> None:
    with contextlib.suppress(OSError):  # what could not be written was told already
        writer.close()


def _unwritten(target: Path, n: int, error: OSError) -> MdrunError:
    return MdrunError(f"{target} can't be written: {error.strerror or error}. {_how_many(n, target)}")


def _how_many(n: int, target: Path) -> str:
    if n == 0:
        return "No frame was converted."
    return f"{n} whole frame{' was' if n == 1 else 's were'} converted before it: {target}."


def _lost(frame: Frame, kind: str) -> tuple[str, ...]:
    """Names of what the first frame has and the format not."""
    columns, info = COLUMNS[kind], INFO[kind]
    always = {"positions", "momenta", "forces"}
    names = [] if columns is None else [name for name in frame.columns if name not in columns | always]
    names += [] if info is None else [name for name in frame.info if name not in info | {"step", "time_ps"}]
    return tuple(names)
