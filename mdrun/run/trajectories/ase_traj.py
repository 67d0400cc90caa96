"""ASE's own .traj files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mdrun.errors import InputError
from mdrun.run.appending import too_short
from mdrun.run.trajectories.frames import Frame
from mdrun.structures.frame import asking_ase


class TrajWriter:
    """Written by ASE, in double precision; its position is in frames.

    Columns that ASE does not know by name are left out, as ASE does.
    """

    def __init__(self, path: Path, at: int | None = None) -> None:
        """Raises:
        InputError: the file has fewer than ``at`` frames, or is none of ASE's.
        """
        from ase.io.trajectory import TrajectoryWriter

        if at is not None:
            cut(path, at)
        # One that is gone on with is read: its first frame says what is the same in all.
        with asking_ase(str(path)) if at else nullcontext():
            self._writer = TrajectoryWriter(path, "a" if at else "w")
        self._mask: np.ndarray | None = None
        self._constraints: list | None = None

    def write(self, frame: Frame) -> None:
        atoms = frame.atoms()
        mask = frame.columns.get("move_mask", np.empty(0, bool))
        # ASE takes constraints that are not the same objects for different, and would repeat what is constant.
        if self._constraints is None:
            self._adopt(atoms.constraints)
        if self._constraints is not None and self._mask is not None and np.array_equal(mask, self._mask):
            atoms.set_constraint(self._constraints)
        self._mask, self._constraints = mask, list(atoms.constraints)
        self._writer.write(atoms)

    def _adopt(self, constraints: list) -> None:
        from ase.io.jsonio import encode

        header = self._writer.header_data
        if header is not None and encode(header["constraints"]) == encode(constraints):
            header["constraints"] = list(constraints)

    def flush(self) -> None:
        self._writer.backend.fd.flush()
        os.fsync(self._writer.backend.fd.fileno())

    def position(self) -> int:
        return len(self._writer.backend)

    def close(self) -> None:
        self._writer.close()


def cut(path: Path, n: int) -> None:
    """Leave the first ``n`` frames, to the byte as if no more had been written; layout: ``ase.io.ulm``.

    Raises:
        InputError: there are fewer, or it is no such file, which is left as it is.
    """
    if n == 0:
        path.write_bytes(b"")
        return
    check(path, n)
    with path.open("r+b") as file:
        offsets, table, end = _layout(file, path, n)
        _put(file, 32, [n])  # from here on the rest is no part of the file, whatever happens
        _put(file, table, offsets)
        _put(file, 40, [table])
        file.truncate(end)
        file.flush()
        os.fsync(file.fileno())


def check(path: Path, n: int) -> None:
    """Refuse what ``cut`` would, with the file left as it is.

    Raises:
        InputError: there are fewer frames, or it is no such file.
    """
    if not path.exists():
        raise too_short(path, 0, n, "frames")
    with path.open("rb") as file:
        _layout(file, path, n)


def _layout(file: BinaryIO, path: Path, n: int) -> tuple[list[int], int, int]:
    """Of a file of the first ``n`` items: its table of offsets, where that is, and where all ends."""
    from ase.io.ulm import N1

    offsets = _offsets(file, path, n)
    size = 1  # of the table of offsets that a file of n items has: it grows by N1 where it is full
    while size < n:
        size *= N1

    def end_of(item: int) -> int:
        end = int(offsets[item]) + 8 + _get(file, int(offsets[item]), 1)[0]
        if not offsets[item] + 8 <= end <= os.fstat(file.fileno()).st_size:
            raise _damaged(path, f"its frame {item} ends elsewhere")
        return end

    end, table = end_of(n - 1), 48
    if size > 1:  # it was put behind the item that had no place in the one before
        table = -(-end_of(size // N1) // 8) * 8
        end = max(end, table + 8 * size)
    return [*offsets, *([0] * (size - n))], table, end


def _offsets(file: BinaryIO, path: Path, n: int) -> list[int]:
    """Where the first ``n`` items are, within the file and one behind the other.

    Raises:
        InputError: there are fewer, or it is no such file.
    """
    from ase.io.ulm import VERSION

    size = os.fstat(file.fileno()).st_size
    if size < 48 or file.read(24) != b"- of UlmASE-Trajectory  ":
        raise _damaged(path, "it does not begin as one")
    version, n_items, table = _get(file, 24, 3)
    if version != VERSION or not 0 <= 8 * n_items <= size or not 48 <= table <= size - 8 * n_items:
        raise _damaged(path, "its first lines lead nowhere")
    if n_items < n:
        raise too_short(path, n_items, n, "frames")
    offsets = _get(file, table, n)
    if any(here >= after for here, after in pairwise([47, *offsets, size - 7])):
        raise _damaged(path, "its table of frames leads nowhere")
    return offsets


def _damaged(path: Path, why: str) -> InputError:
    return InputError(
        f"{path} is no trajectory of ASE's that can be gone on with: {why}. Put the file back, or start afresh."
    )


def _get(file: BinaryIO, at: int, n: int) -> list[int]:
    file.seek(at)
    return np.frombuffer(file.read(8 * n), "<i8").tolist()


def _put(file: BinaryIO, at: int, numbers: Sequence[int]) -> None:
    file.seek(at)
    file.write(np.array(numbers, "<i8").tobytes())
    file.flush()
