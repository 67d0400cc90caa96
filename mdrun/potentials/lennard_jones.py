"""Lennard-Jones 12-6: U(r) = 4 ε ((σ/r)¹² - (σ/r)⁶), cut off at r_c; shifted to zero there on request.

J. E. Lennard-Jones, Proc. R. Soc. A 106 (1924) 463, doi 10.1098/rspa.1924.0082.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mdrun.errors import InputError
from mdrun.potentials.base import UnknownSpecies, symbols_of
from mdrun.potentials.kernels import PairPotential, pair_formula

# ε (eV) and σ (Å): N. W. Ashcroft and N. D. Mermin, Solid State Physics (1976), table 20.2, after N. Bernardes,
# Phys. Rev. 112 (1958) 1534.
NOBLE_GASES = {"Ne": (0.0031, 2.74), "Ar": (0.0104, 3.40), "Kr": (0.0140, 3.65), "Xe": (0.0200, 3.98)}
CUTOFF_IN_SIGMA = 2.5
MIXING_RULES = {
    "lorentz-berthelot": lambda a, b: (math.sqrt(a[0] * b[0]), (a[1] + b[1]) / 2),
    "geometric": lambda a, b: (math.sqrt(a[0] * b[0]), math.sqrt(a[1] * b[1])),
}


@pair_formula
def lennard_jones(r2, p):
    """p = cutoff², 4 ε, σ², energy at the cutoff to take off."""
    inverse = 1.0 / r2
    s2 = p[2] * inverse
    s6 = s2 * s2 * s2
    repulsion = p[1] * s6 * s6
    attraction = p[1] * s6
    return repulsion - attraction - p[3], (12.0 * repulsion - 6.0 * attraction) * inverse


def make_lennard_jones(
    pairs: Mapping[tuple[int, int], tuple[float, float]], n_types: int, cutoff: float, shift: bool, name: str
) -> PairPotential:
    """From (ε eV, σ Å) of each unordered pair of types."""
    table = np.empty((n_types, n_types, 4))
    for (a, b), (epsilon, sigma) in pairs.items():
        s6 = (sigma / cutoff) ** 6
        at_cutoff = 4 * epsilon * (s6 * s6 - s6) if shift else 0.0
        table[a, b] = table[b, a] = cutoff**2, 4 * epsilon, sigma**2, at_cutoff
    return PairPotential(name, lennard_jones, table)


def load(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> PairPotential:
    """``lj`` by numbers, by built-in species with a mixing rule, or from a TOML table.

    Args:
        argument: a TOML file (see ``_read_table``), or None.
        options: epsilon (eV), sigma (Å), cutoff (Å), shift, mixing.
        numbers: atomic numbers of the structure's types.

    Raises:
        InputError: an option is unknown, missing or out of range.
        UnknownSpecies: a species has no parameters.
    """
    known = {"epsilon", "sigma", "cutoff", "shift", "mixing"}
    for key in options:
        if key not in known:
            raise InputError(f"lj has no option {key!r}; it takes {', '.join(sorted(known))}.")
    table: dict[str, Any] = _read_table(Path(argument)) if argument else {}
    symbols = symbols_of(numbers)
    shift = _truth("shift", options.get("shift", table.get("shift", False)))
    rule = str(options.get("mixing", table.get("mixing", "lorentz-berthelot"))).lower()
    if rule not in MIXING_RULES:
        raise InputError(f"lj: mixing rule {rule!r} is unknown; there are {', '.join(MIXING_RULES)}.")
    species = table.get("species", {}) if argument else NOBLE_GASES
    if "epsilon" in options or "sigma" in options:
        species = _by_numbers(options, argument, symbols)
    missing = [z for z, s in zip(numbers, symbols, strict=True) if s not in species]
    if missing:
        raise UnknownSpecies("lj", numbers=missing, known=list(species))
    own = [species[s] for s in symbols]
    given = options.get("cutoff", table.get("cutoff"))
    cutoff = CUTOFF_IN_SIGMA * max(sigma for _, sigma in own)
    cutoff = cutoff if given is None else _positive("cutoff", given)
    pairs = {
        (a, b): own[a] if a == b else MIXING_RULES[rule](own[a], own[b])
        for a in range(len(numbers))
        for b in range(a, len(numbers))
    }
    for key, value in table.get("pairs", {}).items():
        if all(s in symbols for s in key):
            a, b = sorted(symbols.index(s) for s in key)
            pairs[a, b] = value
    return make_lennard_jones(pairs, len(numbers), cutoff, shift, f"Lennard-Jones, cutoff {cutoff:g} Å")


def _by_numbers(
    options: Mapping[str, str], argument: str | None, symbols: tuple[str, ...]
) -> dict[str, tuple[float, float]]:
    if argument or "epsilon" not in options or "sigma" not in options:
        raise InputError("lj by numbers takes both epsilon= (eV) and sigma= (Å), and no file.")
    if len(symbols) > 1:
        raise InputError(
            f"lj with one epsilon and sigma covers one species; the structure has {', '.join(symbols)}. "
            "Give a table: lj:FILE.toml with a [species.X] section for each."
        )
    return {
        symbols[0]: (
            _positive("epsilon", options["epsilon"], zero=True),
            _positive("sigma", options["sigma"]),
        )
    }


def _read_table(path: Path) -> dict[str, Any]:
    """``cutoff``, ``shift``, ``mixing``, ``[species.Ar] epsilon, sigma``, ``[pairs.Ar-Kr] epsilon, sigma``."""
    try:
        raw = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"the Lennard-Jones table {path} can't be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the Lennard-Jones table {path} is not TOML: {error}.") from error
    unknown = set(raw) - {"cutoff", "shift", "mixing", "species", "pairs"}
    if unknown:
        raise InputError(
            f"{path} has unknown keys {', '.join(sorted(unknown))}; a table has cutoff, shift, mixing, "
            "[species.X] and [pairs.X-Y]."
        )
    table: dict[str, Any] = {key: raw[key] for key in ("cutoff", "shift", "mixing") if key in raw}
    table["species"] = {s: _entry(path, f"species.{s}", v) for s, v in _section(path, raw, "species").items()}
    table["pairs"] = {}
    for key, value in _section(path, raw, "pairs").items():
        pair = tuple(key.split("-"))
        if len(pair) != 2:
            raise InputError(f"{path}: [pairs.{key}] must name two species, as in [pairs.Ar-Kr].")
        table["pairs"][pair] = _entry(path, f"pairs.{key}", value)
    return table


def _section(path: Path, raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = raw.get(name, {})
    if not isinstance(section, dict):
        raise InputError(f"{path}: {name} must be sections, as in [{name}.Ar].")
    return section


def _entry(path: Path, where: str, value: Any) -> tuple[float, float]:
    if not isinstance(value, dict) or set(value) != {"epsilon", "sigma"}:
        raise InputError(f"{path}: [{where}] must hold epsilon (eV) and sigma (Å), nothing else.")
    return (
        _positive(f"{path}: {where}.epsilon", value["epsilon"], zero=True),
        _positive(f"{path}: {where}.sigma", value["sigma"]),
    )


def _positive(name: str, value: Any, zero: bool = False) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise InputError(f"lj: {name} must be a {'number not below 0' if zero else 'positive number'}, not {value!r}.")
    return number


def _truth(name: str, value: Any) -> bool:
    words = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
    if str(value).lower() not in words:
        raise InputError(f"lj: {name} must be true or false, not {value!r}.")
    return words[str(value).lower()]
