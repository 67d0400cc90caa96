"""Names, formats and precision of trajectories: what a run is asked to write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mdrun.errors import InputError
from mdrun.run.directory import SUFFIXES

FORMATS = dict(zip(SUFFIXES, ("extxyz", "extxyz", "traj", "h5md", "dump", "dump"), strict=True))
TEXTS = ("extxyz", "dump")
FLOATS = ("float32", "float64")
MOST_DECIMALS = 17


@dataclass(frozen=True)
class Precision:
    """Decimals of text, and the type of numbers in H5MD; .traj is in double always."""

    decimals: int = 8
    dtype: str = "float64"


def format_of(name: str | Path, option: str) -> str:
    """By the extension.

    Raises:
        InputError: it is none of those that are known.
    """
    found = FORMATS.get(Path(name).suffix.lower())
    if found is None:
        raise InputError(f"{option} {name}: the format is chosen by the extension, one of {', '.join(FORMATS)}.")
    return found


def check_names(names: Sequence[str], taken: Sequence[str]) -> None:
    """Refuse what is no file in the run directory, and names that are there for something else.

    Raises:
        InputError: naming it.
    """
    for name in names:
        if not name or Path(name).name != name or name.startswith("."):
            raise InputError(
                f"--trajectory {name!r} must be the name of a file in the run directory, not a path to it."
            )
        format_of(name, "--trajectory")
        if name in taken:
            raise InputError(f"--trajectory {name}: the run writes something else under that name. Choose another.")
    if len(set(names)) < len(names):
        raise InputError(f"--trajectory: one file is named twice: {', '.join(names)}.")


def parse_precision(text: str | None, names: Sequence[str], option: str = "--trajectory-precision") -> Precision:
    """``6``, ``float32`` or both with a comma between; each must have a file that it means something for.

    Raises:
        InputError: it is not understood, or no file looks at it.
    """
    decimals, dtype = Precision.decimals, Precision.dtype
    formats = {format_of(name, "--trajectory") for name in names}
    for word in (text or "").split(",") if text is not None else ():
        word = word.strip()
        if word in FLOATS:
            dtype, of = word, {"h5md"} | ({"traj"} if word == "float64" else set())
        elif word.isdigit() and 1 <= int(word) <= MOST_DECIMALS:
            decimals, of = int(word), {"extxyz", "dump"}
        else:
            raise InputError(
                f"{option} {text}: it takes a number of decimals from 1 to {MOST_DECIMALS} (text), float32 or float64 "
                "(h5md), or both with a comma between."
            )
        if not formats & of:
            raise InputError(
                f"{option} {word} means nothing for {', '.join(names)}: decimals are those of .extxyz and .dump, "
                "float32 is for .h5md; .traj is in double always."
            )
    return Precision(decimals, dtype)


def parse_frames(text: str | None) -> slice | None:
    """``FIRST:STOP:STEP``, each part at will, or one number; all where None.

    Raises:
        InputError: it is not understood, or goes backwards.
    """
    if text is None:
        return None
    try:
        parts = [int(word) if word.strip() else None for word in text.split(":")]
        if len(parts) == 1 and parts[0] is not None:
            return slice(parts[0], parts[0] + 1 or None)
        if 2 <= len(parts) <= 3 and (len(parts) < 3 or parts[2] is None or parts[2] > 0):
            return slice(*parts)
    except ValueError:
        pass
    raise InputError(f"--frames {text}: it takes FIRST:STOP:STEP like 100::10 or -5:, or one number; STEP above 0.")
