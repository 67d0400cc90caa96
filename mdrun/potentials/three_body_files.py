"""LAMMPS's parameter files of three-body potentials: entries of three elements and a fixed number of values.

``#`` starts a comment, an entry starts on a line of its own and may go on over several, its first element is the
centre of the triplet. Elements are labels: a file may hold several variants, as ``Si(B)`` and ``Si(C)``. The formats
are described in the documentation of LAMMPS's ``pair_style sw`` and ``pair_style tersoff``. Files are untrusted:
whatever is wrong with one is told with its line.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mdrun.errors import InputError
from mdrun.potentials.base import UnknownSpecies, symbols_of
from mdrun.potentials.files import read_text

MOST_BYTES = 16 * 1024**2
KCAL_PER_EV = 23.060549  # as LAMMPS converts files in its units "real"
Triplet = tuple[str, str, str]


@dataclass(frozen=True)
class Column:
    """One value of an entry: its name, and the least and the greatest that make sense."""

    name: str
    least: float = -math.inf
    most: float = math.inf
    is_energy: bool = False


@dataclass(frozen=True)
class Entry:
    """The values of a triplet, and the line where it starts."""

    line: int
    values: tuple[float, ...]


@dataclass(frozen=True)
class ThreeBodyFile:
    """A file's entries by their three labels, centre first; ``name`` is what messages call the file."""

    name: str
    columns: tuple[Column, ...]
    entries: dict[Triplet, Entry]

    def table(self, model: str, numbers: tuple[int, ...], labels: dict[str, str]) -> Table:
        """The values for the species of a structure.

        Args:
            model: its name, for messages.
            numbers: atomic numbers of the structure's types.
            labels: the file's label of a chemical symbol, where it is not the symbol itself.

        Raises:
            UnknownSpecies: a species has no entry of its own.
            InputError: a triplet of known species has none, or a label names no species.
        """
        symbols = symbols_of(numbers)
        stray = sorted(set(labels) - set(symbols))
        if stray:
            raise InputError(f"model {model}: no atom is {', '.join(stray)}, the species of an option.")
        chosen = [labels.get(symbol, symbol) for symbol in symbols]
        known = tuple(dict.fromkeys(triplet[0] for triplet in self.entries))
        missing = [z for z, label in zip(numbers, chosen, strict=True) if (label,) * 3 not in self.entries]
        if missing:
            raise UnknownSpecies(model, numbers=missing, known=known)
        triplets = list(itertools.product(chosen, repeat=3))
        absent = [" ".join(triplet) for triplet in triplets if triplet not in self.entries]
        if absent:
            raise InputError(
                f"{self.name} has no entry for {', '.join(absent)}: {len(chosen)} species need {len(triplets)} entries."
            )
        found = [self.entries[triplet] for triplet in triplets]  # type: ignore[index]
        n = len(numbers)
        values = np.array([entry.values for entry in found]).reshape(n, n, n, -1)
        return Table(
            name=self.name,
            triplets=np.array([" ".join(triplet) for triplet in triplets]).reshape(n, n, n),
            lines=np.array([entry.line for entry in found]).reshape(n, n, n),
            values={column.name: values[..., k] for k, column in enumerate(self.columns)},
        )


@dataclass(frozen=True)
class Table:
    """(n, n, n) arrays over [centre, second, third] type: the entries' names, lines and, by column, values."""

    name: str
    triplets: np.ndarray
    lines: np.ndarray
    values: dict[str, np.ndarray]

    def __getitem__(self, column: str) -> np.ndarray:
        return self.values[column]

    def require(self, is_right: np.ndarray, what: str) -> None:
        """Raise InputError with the first triplet, and its line, where ``is_right`` (n, n, n) is false."""
        for place in np.argwhere(~is_right):
            at = tuple(place)
            raise InputError(f"{self.name}, line {self.lines[at]}, entry {self.triplets[at]}: {what}.")


def read_three_body(path: Path, columns: tuple[Column, ...], style: str) -> ThreeBodyFile:
    """Read a file.

    Args:
        columns: the values that follow the three elements.
        style: LAMMPS's name of the format, for messages.

    Raises:
        InputError: not such a file, or a broken one.
    """
    text = read_text(path, f"{style} file", MOST_BYTES, errors="replace")
    return parse_three_body(text, columns, style, str(path))


def parse_three_body(text: str, columns: tuple[Column, ...], style: str, name: str) -> ThreeBodyFile:
    """The same from the text of a file."""
    n_words = 3 + len(columns)
    lines = text.splitlines()
    scale = _energy_unit(lines[0] if lines else "", name)
    entries: dict[Triplet, Entry] = {}
    words: list[str] = []
    start = 0
    for number, line in enumerate(lines, 1):
        found = line.partition("#")[0].split()
        if not words:
            start = number
        words += found
        if len(words) > n_words:
            raise InputError(
                f"{name}, line {number}: {len(words)} words where the entry that starts in line {start} has {n_words}, "
                f"three elements and {len(columns)} numbers. Is it a file for LAMMPS's pair_style {style}?"
            )
        if len(words) == n_words:
            triplet = (words[0], words[1], words[2])
            if triplet in entries:
                raise InputError(
                    f"{name}, line {start}: a second entry for {' '.join(triplet)}; the first is in line "
                    f"{entries[triplet].line}."
                )
            entries[triplet] = Entry(start, _values(words[3:], columns, scale, f"{name}, line {start}, entry "
                                                    f"{' '.join(triplet)}"))  # fmt: skip
            words = []
    if words:
        raise InputError(
            f"{name}, line {start}: the entry has {len(words)} words when the file ends, not {n_words}. Is it a whole "
            f"file for LAMMPS's pair_style {style}?"
        )
    if not entries:
        raise InputError(f"{name} holds no entry. Is it a file for LAMMPS's pair_style {style}?")
    return ThreeBodyFile(name, columns, entries)


def _energy_unit(first_line: str, name: str) -> float:
    """eV of the file's unit of energy, which the first line may name; without a word it is eV."""
    found = re.search(r"UNITS:\s*(\S+)", first_line) if first_line.lstrip().startswith("#") else None
    units = found.group(1) if found else "metal"
    if units not in ("metal", "real"):
        raise InputError(f"{name}, line 1: UNITS: {units} can't be read; metal (eV) and real (kcal/mol) can.")
    return 1.0 if units == "metal" else 1 / KCAL_PER_EV


def _values(words: list[str], columns: tuple[Column, ...], scale: float, where: str) -> tuple[float, ...]:
    values = []
    for column, word in zip(columns, words, strict=True):
        try:
            value = float(word.replace("_", "?"))  # Python reads 1_000; the format does not
        except ValueError as error:
            raise InputError(f"{where}: {column.name} should be a number, not {word!r}.") from error
        if not (math.isfinite(value) and column.least <= value <= column.most):
            raise InputError(f"{where}: {column.name} is {word}; it must lie {_range(column)}.")
        values.append(value * scale if column.is_energy else value)
    return tuple(values)


def _range(column: Column) -> str:
    if column.most < math.inf:
        return f"between {column.least:g} and {column.most:g}"
    return "at or above 0 and be finite" if column.least == 0 else "among finite numbers"
