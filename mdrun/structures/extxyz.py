"""One frame of an extended XYZ file. ASE parses it, but only after its header and rows have been looked at.

ASE takes ``pbc="t f t"`` for three periodic axes, ``lattice=`` for a remark, an unreadable ``move_mask`` for fixed
atoms, and stops at the first blank line.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterator
from functools import partial
from io import StringIO
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mdrun.errors import InputError
from mdrun.structures.frame import (
    Frame,
    Part,
    Place,
    asking_ase,
    ends_within_a_row,
    missing_frame,
    opened,
    several_frames,
)

if TYPE_CHECKING:
    from ase import Atoms

ISOTOPES = {"D": 2.014102, "T": 3.016049}  # amu, AME2020
SPELLINGS = {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}
PLAIN = "species:S:1:pos:R:3"
PROPER_KEYS = {"lattice": "Lattice", "pbc": "pbc", "properties": "Properties"}


class _Spot(NamedTuple):
    """Where a frame lies in the file: byte offset, line number (from 1) of its count, and what follows."""

    offset: int
    line: int
    n_atoms: int
    n_rows: int
    n_vectors: int


class _Column(NamedTuple):
    name: str
    kind: str
    width: int
    first: int


def read_extxyz(path: str, index: int | None) -> Frame:
    """Read frame ``index``, the last where it is None.

    Raises:
        InputError: no such frame, a frame that is cut off, or a header or row that is not understood.
    """
    notes: list[str] = []
    with asking_ase(path, notes), opened(path) as fd:
        spot, number, n_frames = _find(fd, path, -1 if index is None else index)
        place = Place(path, f"frame {number}")
        atoms = _read(fd, spot, place, notes)
    return Frame(atoms, place, notes + (several_frames(place, n_frames) if index is None else []))


def parts_of_extxyz(path: str) -> Iterator[Part]:
    """The frames, one after the other; the file is open until the last was asked for.

    Raises:
        InputError: what should be a frame is none.
    """
    with open(path, "rb") as ahead, open(path, "rb") as fd:
        n_bytes = os.fstat(fd.fileno()).st_size
        for number, spot in enumerate(_spots(ahead, path)):
            cut_off = f"it holds {max(spot.n_rows, 0)} of {spot.n_atoms} atoms" if spot.n_rows < spot.n_atoms else ""
            if not cut_off and ahead.tell() == n_bytes and ends_within_a_row(fd, spot.offset, 2 + spot.n_atoms):
                cut_off = "its last row is not whole"
            yield Part(partial(_read_part, fd, spot, Place(path, f"frame {number}")), cut_off)


def _read_part(fd: IO[bytes], spot: _Spot, place: Place) -> Atoms:
    with asking_ase(place.path):
        return _read(fd, spot, place, [])


def _read(fd: IO[bytes], spot: _Spot, place: Place, notes: list[str]) -> Atoms:
    from ase.io import iread

    if spot.n_rows < spot.n_atoms:
        raise InputError(
            f"{place} is cut off: it holds {max(spot.n_rows, 0)} of {spot.n_atoms} atoms. "
            "Choose an earlier frame with --index, or write the file again."
        )
    fd.seek(spot.offset)
    lines = [raw.decode("utf-8", "replace") for raw in islice(fd, 2 + spot.n_atoms + spot.n_vectors)]
    rows, rest = lines[2 : 2 + spot.n_atoms], lines[2 + spot.n_atoms :]
    # With VEC lines ASE reads a bare comment and no keys at all.
    header = {} if spot.n_vectors else _header(lines[1], place, notes)
    columns = _columns(header.get("Properties", PLAIN), place)
    heavy = _check_rows(rows, columns, place.path, spot.line + 2, notes)
    text = "".join([*lines[:2], *rows, *rest])
    (atoms,) = iread(StringIO(text), index=0, format="extxyz", parallel=False)
    if "pbc" in header:
        atoms.pbc = _pbc(header["pbc"], place)
    if heavy and "masses" not in atoms.arrays:
        masses = atoms.get_masses()
        masses[list(heavy)] = list(heavy.values())
        atoms.set_masses(masses)
        notes.append(f"{place}: D and T are hydrogen with masses 2.014 and 3.016 amu ({len(heavy)} atoms)")
    return atoms


def _find(fd: IO[bytes], path: str, index: int) -> tuple[_Spot, int, int]:
    """The frame, its number from 0, and how many there are (those met, for an index from the front)."""
    n_frames = 0
    if index >= 0:
        for n_frames, spot in enumerate(_spots(fd, path), 1):
            if n_frames == index + 1:
                return spot, index, n_frames
    else:
        last: deque[_Spot] = deque(maxlen=min(-index, sys.maxsize))
        for spot in _spots(fd, path):
            last.append(spot)
            n_frames += 1
        if n_frames >= -index:
            return last[0], n_frames + index, n_frames
    raise missing_frame(path, index, n_frames)


def _spots(fd: IO[bytes], path: str) -> Iterator[_Spot]:
    """Every frame, by counting lines only; blank lines between frames are passed over."""
    offset, line, raw = 0, 1, fd.readline()
    while raw:
        count = raw.strip()
        if not count:
            offset, line, raw = fd.tell(), line + 1, fd.readline()
            continue
        if not count.isdigit() or len(count) > 15:
            raise InputError(
                f"{path}, line {line}: expected the number of atoms of a frame, found "
                f"'{count[:40].decode('utf-8', 'replace')}'."
            )
        n_atoms = int(count)
        n_rows = sum(1 for _ in islice(fd, n_atoms + 1)) - 1
        n_vectors, start, begins = 0, offset, line
        offset, line, raw = fd.tell(), line + 2 + n_rows, fd.readline()
        while raw.lstrip().startswith(b"VEC"):
            n_vectors += 1
            offset, line, raw = fd.tell(), line + 1, fd.readline()
        yield _Spot(start, begins, n_atoms, n_rows, n_vectors)


def _header(comment: str, place: Place, notes: list[str]) -> dict[str, Any]:
    from ase.io.extxyz import key_val_str_to_dict

    header = key_val_str_to_dict(comment) if comment.strip() else {}
    for key, value in header.items():
        proper = PROPER_KEYS.get(key.lower(), key)
        if key != proper and value is not True:  # a bare word is a remark
            raise InputError(f"{place}: the header says '{key}=', which would be ignored. Spell it '{proper}='.")
    if "pbc" in header:
        _pbc(header["pbc"], place)
    if "Lattice" not in header and re.search(r"\bcell\b", comment, re.I):
        notes.append(f'{place}: the comment speaks of a cell, but only Lattice="..." is read; there is none')
    return header


def _pbc(value: Any, place: Place) -> list[bool]:
    """Three flags from ``T F T``, ``true false true``, ``1 0 1`` in any case, or one for all."""
    words = re.findall(r"[^\s,]+", value) if isinstance(value, str) else np.ravel(value).tolist()
    flags = [SPELLINGS.get(str(word).lower()) for word in words]
    if len(flags) not in (1, 3) or None in flags:
        shown = value if isinstance(value, str) else " ".join(map(str, words))
        raise InputError(f'{place}: pbc="{shown}" is not understood. Write three of T and F, like pbc="T T F".')
    return [bool(flag) for flag in flags] * (3 // len(flags))


def _columns(properties: Any, place: Place) -> list[_Column]:
    """The columns that ``Properties=name:kind:width:...`` declares."""
    words = str(properties).split(":")
    if len(words) % 3 or not all(width.isdigit() and 0 < int(width) < 1000 for width in words[2::3]):
        raise InputError(f"{place}: Properties={properties} is not a row of name:type:width.")
    columns, first = [], 0
    for name, kind, width in zip(words[::3], words[1::3], words[2::3], strict=True):
        columns.append(_Column(name, kind, int(width), first))
        first += int(width)
    named = {column.name: column for column in columns}
    if not {"species", "symbols", "Z", "numbers"} & set(named):
        raise InputError(f"{place}: Properties={properties} names no species column.")
    positions = named.get("pos") or named.get("positions")
    if positions is None or positions.width != 3:
        raise InputError(f"{place}: Properties={properties} names no positions (pos:R:3).")
    mask = named.get("move_mask")
    if mask is not None and (mask.kind not in "LI" or mask.width not in (1, 3)):
        raise InputError(f"{place}: move_mask must be move_mask:L:1 or move_mask:L:3.")
    return columns


def _check_rows(
    rows: list[str], columns: list[_Column], path: str, first_line: int, notes: list[str]
) -> dict[int, float]:
    """Refuse rows that ASE would misread; write H for D and T in ``rows``, and return the masses of those atoms."""
    from ase.data import chemical_symbols

    n_columns = columns[-1].first + columns[-1].width
    symbol_at = next((c.first for c in columns if c.name in ("species", "symbols") and c.kind == "S"), None)
    if any(c.name in ("Z", "numbers") for c in columns):
        symbol_at = None  # atomic numbers go before symbols
    mask = next((c for c in columns if c.name == "move_mask"), None)
    mask_words = {"L": {"T", "F", "True", "False"}, "I": {"0", "1"}}[mask.kind] if mask else set()
    elements = set(chemical_symbols[1:])
    heavy: dict[int, float] = {}
    for i, row in enumerate(rows):
        words = row.split()
        if len(words) < n_columns:
            raise InputError(f"{path}, line {first_line + i}: {len(words)} columns where {n_columns} are due.")
        if symbol_at is not None and words[symbol_at].capitalize() not in elements:
            symbol = words[symbol_at].capitalize()
            if symbol not in ISOTOPES:
                raise InputError(
                    f"{path}, line {first_line + i}: '{words[symbol_at]}' is no chemical element "
                    "(D and T are known, too)."
                )
            heavy[i] = ISOTOPES[symbol]
            words[symbol_at] = "H"
            rows[i] = " ".join(words) + "\n"
        if mask and not set(words[mask.first : mask.first + mask.width]) <= mask_words:
            raise InputError(f"{path}, line {first_line + i}: move_mask must be T (moves) or F (is fixed).")
    if rows and len(rows[0].split()) > n_columns:
        notes.append(
            f"{path}, line {first_line}: {len(rows[0].split())} columns, of which the header names only "
            f"{n_columns}; the others are not used"
        )
    return heavy
