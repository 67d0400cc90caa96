"""The three DYNAMO file formats of the embedded-atom method: funcfl, setfl (``eam.alloy``) and Finnis-Sinclair setfl
(``eam.fs``). Files are untrusted: whatever is wrong with one is told with its line.

The formats are described in the documentation of LAMMPS's ``pair_style eam``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mdrun.errors import InputError
from mdrun.potentials.files import read_text

MOST_BYTES = 256 * 1024**2
MOST_POINTS = 1_000_000
MOST_ELEMENTS = 100
# Hartree times Bohr as the format's own program rounded them; a funcfl file is meant with these.
FUNCFL_COULOMB = 27.2 * 0.529


@dataclass(frozen=True)
class EamTables:
    """Functions on even grids that start at zero.

    Attributes:
        symbols: elements in the order of the file.
        embedding: (n_elements, n_rho) F of each element's density, eV.
        density: (n_elements, n_elements, n_r) [a, b] what an atom of a contributes at a site of b.
        r_phi: (n_elements, n_elements, n_r) r times the pair energy, eV·Å, symmetric.
        d_rho, d_r: grid spacings.
        cutoff: Å.
    """

    symbols: tuple[str, ...]
    embedding: np.ndarray
    density: np.ndarray
    r_phi: np.ndarray
    d_rho: float
    d_r: float
    cutoff: float


class _Lines:
    """The file as lines, with the number of the one at hand for messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = read_text(path, "EAM file", MOST_BYTES, errors="replace").splitlines()
        self.number = 0

    def fail(self, what: str) -> InputError:
        return InputError(
            f"{self.path}, line {self.number}: {what}. Is it a funcfl, setfl (eam.alloy) or eam.fs file, and whole?"
        )

    def skip(self, count: int) -> None:
        """Pass over lines that may hold anything."""
        for _ in range(count):
            self._advance()

    def next(self) -> list[str]:
        """Words of the next line that has any; # starts a remark."""
        words: list[str] = []
        while not words:
            words = self._advance().split("#")[0].split()
        return words

    def _advance(self) -> str:
        if self.number >= len(self.lines):
            raise self.fail("the file ends too early")
        self.number += 1
        return self.lines[self.number - 1]

    def numbers(self, count: int) -> np.ndarray:
        """The next ``count`` numbers, over as many lines as they take."""
        values: list[float] = []
        while len(values) < count:
            words = self.next()
            try:
                values += [_real(word) for word in words]
            except ValueError as error:
                raise self.fail("a finite number was expected") from error
        if len(values) > count:
            raise self.fail(f"{len(values)} numbers where {count} end a block")
        return np.array(values)

    def element(self) -> str:
        """The symbol on a line of atomic number, mass, lattice constant, lattice."""
        from ase.data import chemical_symbols

        words = self.next()
        try:
            number, _ = int(words[0]), _real(words[1])
        except (ValueError, IndexError) as error:
            raise self.fail("a line of atomic number, mass, lattice constant, lattice was expected") from error
        return chemical_symbols[number] if 0 < number < len(chemical_symbols) else ""

    def end(self) -> None:
        """Refuse numbers after the last function: they are another format's (ADP has more functions, eam.fs more
        densities), and what was read would be a wrong potential."""
        while self.number < len(self.lines):
            words = self._advance().split()
            if words and _is_number(words[0]):
                raise self.fail("numbers follow what should be the last function; an eam.fs file must be named so")

    def numbers_of_blocks(self, *counts: int) -> list[np.ndarray]:
        """Blocks that follow each other; a line may hold the end of one and the start of the next."""
        values = self.numbers(sum(counts))
        return np.split(values, np.cumsum(counts)[:-1])

    def grid(self) -> tuple[int, float, int, float, float]:
        """n_rho, d_rho, n_r, d_r, cutoff."""
        words = self.next()
        try:
            n_rho, n_r = int(words[0]), int(words[2])
            d_rho, d_r, cutoff = _real(words[1]), _real(words[3]), _real(words[4])
        except (ValueError, IndexError) as error:
            raise self.fail("a line of n_rho, d_rho, n_r, d_r, cutoff was expected") from error
        for name, n in (("n_rho", n_rho), ("n_r", n_r)):
            if not 6 <= n <= MOST_POINTS:
                raise self.fail(f"{name} is {n}; it must lie between 6 and {MOST_POINTS}")
        for name, value in (("d_rho", d_rho), ("d_r", d_r), ("the cutoff", cutoff)):
            if not value > 0:
                raise self.fail(f"{name} is {value}; it must be positive")
        # Files are written with the cutoff at the last point or one interval behind it.
        if cutoff > (n_r + 0.5) * d_r:
            raise self.fail(f"the cutoff {cutoff:g} lies behind the end of the tables, {(n_r - 1) * d_r:g} Å")
        return n_rho, d_rho, n_r, d_r, cutoff


def _real(word: str) -> float:
    value = float(word.replace("D", "e").replace("d", "e"))  # Fortran writes 1.0D-3
    if not math.isfinite(value):
        raise ValueError
    return value


def _is_number(word: str) -> bool:
    try:
        _real(word)
    except ValueError:
        return False
    return True


def read_eam(path: Path) -> EamTables:
    """Read any of the three formats; the name (``.fs``) or the layout tells which.

    Raises:
        InputError: not such a file, or a broken one.
    """
    lines = _Lines(path)
    unit = re.search(r"\bUNITS:\s*(\w+)", lines.lines[0]) if lines.lines else None
    if unit and unit.group(1) != "metal":
        raise InputError(f"{path}, line 1: UNITS: {unit.group(1)}; mdrun reads files in eV and Å (UNITS: metal).")
    if len(lines.lines) > 2 and _is_grid(lines.lines[2]):
        return _read_funcfl(lines)
    return _read_setfl(lines, finnis_sinclair=path.suffix.lower() == ".fs")


def _is_grid(line: str) -> bool:
    words = line.split()
    if len(words) < 5:
        return False
    try:
        int(words[0]), int(words[2]), [_real(word) for word in words[1:5:2]]
    except ValueError:
        return False
    return True


def _read_funcfl(lines: _Lines) -> EamTables:
    lines.skip(1)
    symbol = lines.element()
    if not symbol:
        raise lines.fail("the line starts with no atomic number")
    n_rho, d_rho, n_r, d_r, cutoff = lines.grid()
    blocks = lines.numbers_of_blocks(n_rho, n_r, n_r)
    lines.end()
    # The last point of each grid goes: LAMMPS lays a grid of one interval less over the file's, and is what
    # funcfl potentials are compared with.
    embedding, charge, density = (values[:-1] for values in blocks)
    return EamTables(
        symbols=(symbol,),
        embedding=embedding[None],
        density=density[None, None],
        r_phi=(FUNCFL_COULOMB * charge * charge)[None, None],
        d_rho=d_rho,
        d_r=d_r,
        cutoff=cutoff,
    )


def _read_setfl(lines: _Lines, finnis_sinclair: bool) -> EamTables:
    lines.skip(3)
    header = lines.next()
    try:
        n, symbols = int(header[0]), tuple(header[1:])
    except ValueError:
        n = 0
    if not 0 < n <= MOST_ELEMENTS:
        raise lines.fail("the number of elements and their names were expected")
    if len(symbols) != n or len(set(symbols)) != n:
        raise lines.fail(f"{n} different elements were announced, and {' '.join(symbols) or 'none'} named")
    n_rho, d_rho, n_r, d_r, cutoff = lines.grid()
    if n * n * n_r * 16 > MOST_BYTES * 4:
        raise lines.fail("the tables would take more than 1 GiB")
    embedding = np.empty((n, n_rho))
    density = np.empty((n, n, n_r))
    for a in range(n):
        lines.element()  # the structure has its own masses
        if finnis_sinclair:
            blocks = lines.numbers_of_blocks(n_rho, *[n_r] * n)
            embedding[a], density[a] = blocks[0], np.stack(blocks[1:])
        else:
            embedding[a], density[a] = lines.numbers_of_blocks(n_rho, n_r)
    r_phi = np.empty((n, n, n_r))
    for a in range(n):
        for b in range(a + 1):
            r_phi[a, b] = r_phi[b, a] = lines.numbers(n_r)
    lines.end()
    return EamTables(symbols, embedding, density, r_phi, d_rho, d_r, cutoff)
