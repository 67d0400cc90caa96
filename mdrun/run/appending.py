"""Files that a run writes from their start, or goes on with from where a checkpoint saw them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TextIO

from mdrun.errors import InputError


def open_text(path: Path, at: int | None = None) -> TextIO:
    """To be written in UTF-8, lines as they are: anew, or cut back to its first ``at`` bytes and gone on with.

    Raises:
        InputError: it is gone, or shorter than that.
    """
    if at is None:
        return path.open("w", encoding="utf-8", newline="")
    check_place(path, at)
    file = path.open("r+", encoding="utf-8", newline="")
    file.seek(at)
    file.truncate()
    return file


def too_short(path: Path, holds: int, at: int, unit: str) -> InputError:
    """What is said of a file that ends before the place where it is to go on."""
    return InputError(
        f"{path} has {holds} {unit} where the checkpoint saw {at}, fewer than the run wrote: part of it was lost. Put "
        "it back, or start afresh."
    )


def check_place(path: Path, at: int) -> None:
    """Refuse what ``open_text`` would, with the file left as it is.

    Raises:
        InputError: it is gone, shorter than that, or another file.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise InputError(f"{path} is gone, and the run can't go on with it. Put it back, or start afresh.") from error
    if size < at:
        raise too_short(path, size, at, "bytes")
    with path.open("rb") as file:
        file.seek(max(at - 1, 0))
        if at and file.read(1) != b"\n":
            raise InputError(f"{path} has no end of a line where the checkpoint saw one. Put it back, or start afresh.")


def written(file: TextIO) -> int:
    """Bytes, all of them forced to the disk."""
    file.flush()
    os.fsync(file.fileno())
    return os.fstat(file.fileno()).st_size
