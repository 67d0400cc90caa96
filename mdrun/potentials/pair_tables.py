"""Parameters of pair potentials: numbers on the command line for one species, a TOML table for several.

A table holds ``cutoff`` (Å), ``shift``, ``mixing`` where the potential has such rules, and sections ``[species.X]`` and
``[pairs.X-Y]`` with one number for each parameter. A section of a pair wins over a mixing rule.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mdrun.errors import InputError
from mdrun.potentials.base import UnknownSpecies, symbols_of
from mdrun.potentials.files import read_text
from mdrun.potentials.kernels import Formula, PairPotential

Values = tuple[float, ...]
MixingRule = Callable[[Values, Values], Values]

LARGEST = 1e20  # in any unit of a potential; powers of larger numbers overflow
POSITIVE, NOT_NEGATIVE, ANY = "a positive number", "a number not below 0", "a finite number"


@dataclass
class BoundedPair(PairPotential):
    """A pair potential that isn't defined at every distance: its forces are NaN where it is not, which stops the run.

    Attributes:
        non_finite_means: ends the error that the run stops with; empty where nothing is to be said.
    """

    non_finite_means: str = ""


@dataclass(frozen=True)
class Parameter:
    """One number of a pair.

    Attributes:
        name: as tables and options spell it.
        unit: as errors show it.
        range: POSITIVE, NOT_NEGATIVE or ANY.
    """

    name: str
    unit: str
    range: str = POSITIVE


@dataclass(frozen=True)
class PairFamily:
    """What turns numbers into rows of a pair potential's table. ``load`` is what the registry calls.

    Attributes:
        word: the model's name in a string.
        title: its name in the start-up panel.
        formula: of the energy and of force over r. Its row of parameters p begins with the squared cutoff (Å²), ends
            with the energy (eV) to take off, which ``shift`` asks for, and has ``row(*values)`` between the two.
        mixing: rules for pairs of unlike species, by name.
        default_mixing: the one that serves where none is named; None where each pair must be given.
        known: built-in values of species.
        default_cutoff: Å, from the values of the species present; None where a cutoff must be given.
        non_finite_means: what a user is told where the formula has returned NaN; see ``BoundedPair``.
    """

    word: str
    title: str
    formula: Formula
    parameters: tuple[Parameter, ...]
    row: Callable[..., Values] = lambda *values: values
    mixing: Mapping[str, MixingRule] = field(default_factory=dict)
    default_mixing: str | None = None
    known: Mapping[str, Values] = field(default_factory=dict)
    default_cutoff: Callable[[Sequence[Values]], float] | None = None
    non_finite_means: str = ""

    def from_pairs(
        self, pairs: Mapping[tuple[int, int], Values], n_types: int, cutoff: float, shift: bool, name: str
    ) -> PairPotential:
        """From the values of each unordered pair of types.

        Raises:
            InputError: they give no finite energy at the cutoff.
        """
        rows = {}
        for pair, values in pairs.items():
            row = np.array([cutoff**2, *self.row(*values), 0.0])
            try:
                with np.errstate(all="ignore"):
                    at_cutoff = float(self.formula(cutoff**2, row)[0])
            except ArithmeticError:  # the square of a tiny cutoff is 0
                at_cutoff = math.inf
            if not math.isfinite(at_cutoff):
                named = ", ".join(f"{p.name} = {v:g} {p.unit}" for p, v in zip(self.parameters, values, strict=True))
                raise InputError(f"{self.word}: {named} give no finite energy at the cutoff, {cutoff:g} Å.")
            row[-1] = at_cutoff if shift else 0.0
            rows[pair] = row
        return BoundedPair(name, self.formula, symmetric_table(rows, n_types), self.non_finite_means)

    def load(self, argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> PairPotential:
        """By numbers for one species, by built-in species, or from a TOML table.

        Args:
            argument: a TOML file, see the module's text; or None.
            options: parameters by name, cutoff (Å), shift, and mixing.
            numbers: atomic numbers of the structure's types.

        Raises:
            InputError: an option or an entry is unknown, missing or out of range.
            UnknownSpecies: a species has no parameters.
        """
        names = [p.name for p in self.parameters]
        settings = ["cutoff", "shift", *(["mixing"] if self.mixing else [])]
        refuse_unknown(self.word, options, [*names, *settings])
        symbols = symbols_of(numbers)
        table = self._read(Path(argument), settings) if argument else Table(self.known)
        if any(name in options for name in names):
            table = Table({self._one(symbols): self._by_numbers(options, argument)})
        elif argument is None and not self.known:
            raise InputError(f"{self.word} needs its parameters: {self._usage()}.")
        table.settings.update({key: options[key] for key in settings if key in options})

        shift = truth(self.word, "shift", table.settings.get("shift", False))
        pairs = self._pairs(table, numbers, argument)
        cutoff = table.settings.get("cutoff")
        if cutoff is not None:
            cutoff = number(self.word, "cutoff", cutoff)
        elif self.default_cutoff:
            cutoff = self.default_cutoff(list(pairs.values()))
        else:
            raise InputError(f"{self.word} needs a cutoff: {self._usage()}.")
        return self.from_pairs(pairs, len(numbers), cutoff, shift, f"{self.title}, cutoff {cutoff:g} Å")

    def _usage(self) -> str:
        numbers = ",".join(f"{p.name}=..." for p in self.parameters)
        units = ", ".join(f"{p.name} in {p.unit}" for p in self.parameters)
        return (
            f"{self.word}:{numbers},cutoff=... for one species, or {self.word}:FILE.toml with cutoff and sections "
            f"[species.X] and [pairs.X-Y] ({units}, cutoff in Å)"
        )

    def _one(self, symbols: tuple[str, ...]) -> str:
        if len(symbols) > 1:
            raise InputError(
                f"{self.word} by numbers covers one species; the structure has {', '.join(symbols)}. "
                f"Give a table: {self.word}:FILE.toml with a section for each species or pair."
            )
        return symbols[0]

    def _by_numbers(self, options: Mapping[str, str], argument: str | None) -> Values:
        missing = [p.name for p in self.parameters if p.name not in options]
        if argument or missing:
            wanted = ", ".join(f"{p.name}= ({p.unit})" for p in self.parameters)
            raise InputError(f"{self.word} by numbers takes all of {wanted}, and no file.")
        return tuple(number(self.word, p.name, options[p.name], p.range) for p in self.parameters)

    def _pairs(self, table: Table, numbers: tuple[int, ...], argument: str | None) -> dict[tuple[int, int], Values]:
        """The values of every pair of types: given, or mixed."""
        symbols = symbols_of(numbers)
        covered = set(table.species).union(*table.pairs)
        missing = [z for z, symbol in zip(numbers, symbols, strict=True) if symbol not in covered]
        if missing:
            raise UnknownSpecies(self.word, numbers=missing, known=sorted(covered))
        rule = table.settings.get("mixing", self.default_mixing)
        if rule is not None and str(rule).lower() not in self.mixing:
            raise InputError(f"{self.word}: mixing rule {rule!r} is unknown; there are {', '.join(self.mixing)}.")
        pairs, lacking = {}, []
        for (a, x), (b, y) in itertools.combinations_with_replacement(enumerate(symbols), 2):
            key = frozenset((x, y))
            if key in table.pairs:
                pairs[a, b] = table.pairs[key]
            elif a == b and x in table.species:
                pairs[a, b] = table.species[x]
            elif rule is not None and x in table.species and y in table.species:
                pairs[a, b] = self.mixing[str(rule).lower()](table.species[x], table.species[y])
            else:
                lacking.append(f"[pairs.{x}-{y}]")
        if lacking:
            rules = f", or a mixing rule ({', '.join(self.mixing)}) with [species.X] sections" if self.mixing else ""
            raise InputError(f"{self.word}: {argument} lacks {', '.join(lacking)}; give these sections{rules}.")
        return pairs

    def _read(self, path: Path, settings: Sequence[str]) -> Table:
        raw = read_toml(path)
        refuse_unknown(f"{self.word}: {path}", raw, [*settings, "species", "pairs"])
        table = Table({}, {}, {key: raw[key] for key in settings if key in raw})
        table.species = {
            known_symbol(path, f"species.{symbol}", symbol): self._entry(path, f"species.{symbol}", entry)
            for symbol, entry in _section(path, raw, "species").items()
        }
        for name, entry in _section(path, raw, "pairs").items():
            pair = pair_of(path, f"pairs.{name}", name)
            if pair in table.pairs:
                raise InputError(f"{path}: [pairs.{name}] stands there twice, in one order and in the other.")
            table.pairs[pair] = self._entry(path, f"pairs.{name}", entry)
        return table

    def _entry(self, path: Path, where: str, entry: Any) -> Values:
        if not isinstance(entry, dict) or set(entry) != {p.name for p in self.parameters}:
            wanted = ", ".join(f"{p.name} ({p.unit})" for p in self.parameters)
            raise InputError(f"{path}: [{where}] must hold {wanted}, and nothing else.")
        return tuple(number(str(path), f"{where}.{p.name}", entry[p.name], p.range) for p in self.parameters)


@dataclass
class Table:
    """What was given: values of species and of pairs, and the settings beside them."""

    species: Mapping[str, Values]
    pairs: dict[frozenset[str], Values] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def symmetric_table(rows: Mapping[tuple[int, int], np.ndarray], n_types: int) -> np.ndarray:
    """(n_types, n_types, longest row) from the row of each unordered pair; shorter rows are filled up with zeros."""
    table = np.zeros((n_types, n_types, max(len(row) for row in rows.values())))
    for (a, b), row in rows.items():
        table[a, b, : len(row)] = table[b, a, : len(row)] = row
    return table


def refuse_unknown(where: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raises InputError where something is given that is not known."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InputError(f"{where} has no {', '.join(map(repr, unknown))}; it takes {', '.join(known)}.")


def number(where: str, name: str, value: Any, range_: str = POSITIVE) -> float:
    """A finite number within its range and below ``LARGEST``, from an option's text or a TOML value.

    Raises:
        InputError: it is none.
    """
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found) or (found < 0 and range_ != ANY) or (found == 0 and range_ == POSITIVE):
        raise InputError(f"{where}: {name} must be {range_}, not {value!r}.")
    if abs(found) >= LARGEST:
        raise InputError(f"{where}: {name} must be below {LARGEST:g}, not {value!r}.")
    return found


def truth(where: str, name: str, value: Any) -> bool:
    words = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
    if str(value).lower() not in words:
        raise InputError(f"{where}: {name} must be true or false, not {value!r}.")
    return words[str(value).lower()]


def known_symbol(path: Path, where: str, symbol: str) -> str:
    from ase.data import atomic_numbers

    if not atomic_numbers.get(symbol):
        raise InputError(f"{path}: [{where}] names {symbol!r}, which is no chemical symbol.")
    return symbol


def pair_of(path: Path, where: str, name: str) -> frozenset[str]:
    """The two species (or one) of a name such as Na-Cl."""
    symbols = name.split("-")
    if len(symbols) != 2:
        raise InputError(f"{path}: [{where}] must name two species, as in [pairs.Ar-Kr].")
    return frozenset(known_symbol(path, where, symbol) for symbol in symbols)


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path, "table", 16 * 1024**2))
    except (ValueError, RecursionError) as error:
        raise InputError(f"the table {path} is not TOML: {error}.") from error


def _section(path: Path, raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = raw.get(name, {})
    if not isinstance(section, dict):
        raise InputError(f"{path}: {name} must be sections, as in [{name}.Ar].")
    return section
