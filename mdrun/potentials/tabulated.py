"""A pair potential from a file of distances, energies and forces: LAMMPS's table files in its metal units.

Between two rows the energy is the cubic polynomial that has the file's energies and forces at both of them (Hermite's),
and the force is its exact derivative: the rows are met to rounding, and energy is conserved. A file is made of sections

    # comments
    Na-Cl
    N 500 R 0.5 10.0

    1  0.5000  35.2  120.1
    ...

each with a name, a line of parameters, and N rows of index, r (Å), energy (eV) and force (eV/Å). ``R`` says that
r is spaced evenly, ``RSQ`` that r² is; with neither, the rows must be even in r. The distances are then computed from
the two ends, as in LAMMPS, so that digits which a row lacks do not matter. ``FP`` is allowed, and not needed.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mdrun.errors import InputError
from mdrun.potentials.arithmetic import floor_to_index, select, sqrt
from mdrun.potentials.base import symbols_of
from mdrun.potentials.files import read_text
from mdrun.potentials.kernels import pair_formula
from mdrun.potentials.pair_tables import BoundedPair, number, refuse_unknown, symmetric_table

MOST_ROWS = 1_000_000
N_HEAD = 6  # numbers of a formula's row before the knots

NEAREST = (
    "Two atoms came nearer than the first row of their table. Lower --timestep or --temperature, start from a "
    "structure without close contacts, or give a table that begins at a smaller distance."
)


@dataclass(frozen=True)
class Section:
    """One potential of a file.

    Attributes:
        name: its keyword.
        distances, energies, forces: (n,) Å, eV, eV/Å.
        even_in_square: r², and not r, is evenly spaced.
    """

    name: str
    distances: np.ndarray
    energies: np.ndarray
    forces: np.ndarray
    even_in_square: bool

    def row(self, cutoff: float) -> np.ndarray:
        """The formula's parameters; a knot is the energy, and its derivative by the knot's number."""
        s = self.distances**2 if self.even_in_square else self.distances
        step = (s[-1] - s[0]) / (len(s) - 1)
        slopes = -self.forces / (2 * self.distances if self.even_in_square else 1.0) * step
        head = [min(cutoff, self.distances[-1]) ** 2, self.distances[0] ** 2, s[0], 1 / step, len(s) - 2,
                self.even_in_square]  # fmt: skip
        return np.concatenate([head, np.column_stack([self.energies, slopes]).ravel()])


@pair_formula
def tabulated(r2, p):
    """p = cutoff², square of the first distance, first s, 1/step, last interval, whether s is r² and not r; knots."""
    r = sqrt(r2)
    y = (select(p[5] > 0.0, r2, r) - p[2]) * p[3]
    k = floor_to_index(y, p[4])
    t = y - k
    n = N_HEAD + 2 * k
    u0, d0, u1, d1 = p[n], p[n + 1], p[n + 2], p[n + 3]
    square = 3.0 * (u1 - u0) - 2.0 * d0 - d1
    cube = d0 + d1 - 2.0 * (u1 - u0)
    energy = u0 + t * (d0 + t * (square + t * cube))
    slope = (d0 + t * (2.0 * square + t * 3.0 * cube)) * p[3]
    force = -slope * select(p[5] > 0.0, 2.0, 1.0 / r)
    return energy, select(r2 < p[1], np.nan, force)


def load(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> BoundedPair:
    """``table:FILE``, sections named by pairs, ``cutoff=`` (Å) to end before the last row.

    Raises:
        InputError: an unknown option; a file that is wrong, lacks a pair, or ends before the cutoff.
    """
    refuse_unknown("table", options, ["cutoff"])
    if argument is None:
        raise InputError("table needs a file: table:FILE, with sections as in LAMMPS's table files.")
    path = Path(argument)
    sections = read_table_file(path)
    cutoff = number("table", "cutoff", options["cutoff"]) if "cutoff" in options else math.inf
    symbols = symbols_of(numbers)
    rows = {}
    for (a, x), (b, y) in itertools.combinations_with_replacement(enumerate(symbols), 2):
        section = sections.get(f"{x}-{y}") or sections.get(f"{y}-{x}")
        if section is None and len(symbols) == len(sections) == 1:
            (only,) = sections.values()
            section = only if not _names_pair(only.name) else None  # one species needs no name
        if section is None:
            raise InputError(f"{path} has no section {x}-{y}; it has {', '.join(sections)}.")
        if "cutoff" in options and not section.distances[0] < cutoff <= section.distances[-1]:
            raise InputError(
                f"table: cutoff must be within the rows of {section.name} in {path}, {section.distances[0]:g} to "
                f"{section.distances[-1]:g} Å, not {cutoff:g}."
            )
        rows[a, b] = section.row(cutoff)
    table = symmetric_table(rows, len(numbers))
    name = f"table {path.name}, cutoff {math.sqrt(table[..., 0].max()):g} Å"
    return BoundedPair(name, tabulated, table, NEAREST)


def read_table_file(path: Path) -> dict[str, Section]:
    """The sections of a file, by keyword.

    Raises:
        InputError: with the line where the file is wrong.
    """
    try:
        text = read_text(path, "table")
    except UnicodeDecodeError as error:
        raise InputError(f"the table {path} is not text: {error}.") from error
    unit = re.search(r"\bUNITS:\s*(\w+)", text)
    if unit and unit.group(1) != "metal":
        raise InputError(f"{path} is in units {unit.group(1)!r}; eV and Å (metal) are what mdrun reads.")
    lines = [(k, words) for k, line in enumerate(text.splitlines(), 1) if (words := line.partition("#")[0].split())]
    sections: dict[str, Section] = {}
    while lines:
        n_read, section = _read_section(path, lines)
        if section.name in sections or "-".join(reversed(section.name.split("-"))) in sections:
            raise InputError(f"{path}, line {lines[0][0]}: section {section.name} stands there twice.")
        sections[section.name] = section
        lines = lines[n_read:]
    if not sections:
        raise InputError(f"{path} holds no table.")
    return sections


def _read_section(path: Path, lines: list[tuple[int, list[str]]]) -> tuple[int, Section]:
    """The section that ``lines`` begin with, and how many of them it takes."""
    where, words = lines[0]
    if len(lines) < 2 or lines[1][1][0] != "N":
        raise InputError(f"{path}, line {where}: a name alone, and a line 'N ...' after it, should begin a section.")
    name = words[0]
    n, spacing, ends = _read_parameters(path, *lines[1])
    if len(lines) < 2 + n:
        raise InputError(f"{path}: section {name} announces {n} rows and holds {len(lines) - 2}.")
    rows = np.array([_read_row(path, where, words) for where, words in lines[2 : 2 + n]])
    r, energies, forces = rows.T
    ends = ends or (r[0], r[-1])
    if not 0 < ends[0] < ends[1]:
        raise InputError(f"{path}: the distances of section {name} must be above 0 and grow.")
    square = spacing == "RSQ"
    even = np.sqrt(np.linspace(ends[0] ** 2, ends[1] ** 2, n)) if square else np.linspace(*ends, n)
    even[0], even[-1] = ends
    off = np.abs(r - even) > 0.01 * np.diff(even).min()
    if off.any():
        k = int(off.argmax())
        raise InputError(
            f"{path}, line {lines[2 + k][0]}: r = {r[k]:g} Å is not where rows that are even in "
            f"{'r²' if square else 'r'} have it, at {even[k]:g}. Other spacings are not read."
        )
    _refuse_unlike_forces(path, name, even, energies, forces)
    return 2 + n, Section(name, even, energies, forces, square)


def _read_parameters(path: Path, where: int, words: list[str]) -> tuple[int, str, tuple[float, float] | None]:
    """Rows, R or RSQ or nothing, first and last distance if they are told."""
    values: dict[str, list[float]] = {}
    k = 0
    while k < len(words):
        key = words[k]
        size = {"N": 1, "R": 2, "RSQ": 2, "FP": 2}.get(key)
        if size is None or key in values or len(words) < k + 1 + size:
            raise InputError(f"{path}, line {where}: {' '.join(words)!r} should be N, then R, RSQ or FP, with numbers.")
        values[key] = [_number(path, where, word) for word in words[k + 1 : k + 1 + size]]
        k += 1 + size
    n = values["N"][0]
    if n != int(n) or not 2 <= n <= MOST_ROWS:
        raise InputError(f"{path}, line {where}: N must be a whole number from 2 to {MOST_ROWS}, not {words[1]}.")
    if "R" in values and "RSQ" in values:
        raise InputError(f"{path}, line {where}: R or RSQ, not both.")
    spacing = "RSQ" if "RSQ" in values else "R"
    ends = values.get(spacing)
    return int(n), spacing, None if ends is None else (ends[0], ends[1])


def _read_row(path: Path, where: int, words: list[str]) -> list[float]:
    if len(words) != 4:
        raise InputError(f"{path}, line {where}: a row is index, r, energy and force, not {' '.join(words)!r}.")
    return [_number(path, where, word) for word in words[1:]]


def _number(path: Path, where: int, word: str) -> float:
    try:
        found = float(word)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"{path}, line {where}: {word!r} is no finite number.")
    return found


def _refuse_unlike_forces(path: Path, name: str, r: np.ndarray, energies: np.ndarray, forces: np.ndarray) -> None:
    """Forces must be what the energies' differences say: between those of both ends, but for a few turning points."""
    mean = -np.diff(energies) / np.diff(r)
    low, high = np.minimum(forces[1:], forces[:-1]), np.maximum(forces[1:], forces[:-1])
    slack = (high - low) + 1e-3 * np.abs(mean) + 1e-6 * np.abs(forces).max()
    unlike = (mean < low - slack) | (mean > high + slack)
    if unlike.mean() > 0.1:
        k = int(unlike.argmax())
        raise InputError(
            f"{path}: section {name} has forces that are not minus the slope of its energies, first between "
            f"r = {r[k]:g} and {r[k + 1]:g} Å: {forces[k]:g} and {forces[k + 1]:g} eV/Å, where the energies say "
            f"{mean[k]:g}."
        )


def _names_pair(name: str) -> bool:
    from ase.data import atomic_numbers

    parts = name.split("-")
    return len(parts) == 2 and all(part in atomic_numbers for part in parts)
