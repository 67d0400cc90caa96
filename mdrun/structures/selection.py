"""Atoms chosen by words: ``0-53,60``, ``Cu``, ``z<5 and x>=10``, or several of these."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mdrun.errors import InputError

if TYPE_CHECKING:
    from ase import Atoms

COMPARISONS: dict[str, Callable] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_ATOMS = re.compile(r"([0-9]{1,15})(?:\s*-\s*([0-9]{1,15}))?")
_SYMBOL = re.compile(r"[A-Z][a-z]?")
_PLACE = re.compile(r"([xyz])\s*(<=|>=|<|>)\s*(\S+)")
_WANTED = "atoms by number (0-53,60), elements (Cu), places in Å (z<5), alternatives joined by commas or 'or', "
_WANTED += "conditions that must all hold by 'and'"


def select(text: str, atoms: Atoms, option: str) -> np.ndarray:
    """(n,) whether each atom is chosen.

    Args:
        text: alternatives separated by ``,`` or ``or``; each is one condition, or several joined by ``and``.
        atoms: numbers are rows, from 0; places are positions as they stand, unwrapped, in Å.
        option: the flag that the text was given with.

    Raises:
        InputError: the text is not understood, names what the structure does not have, or chooses no atom.
    """
    chosen = np.zeros(len(atoms), dtype=bool)
    for alternative in re.split(r",|\bor\b", text):
        holds = np.ones(len(atoms), dtype=bool)
        for condition in re.split(r"\band\b", alternative):
            holds &= _where(condition.strip(), atoms, f"{option} '{text}'")
        chosen |= holds
    if not chosen.any():
        raise InputError(f"{option} '{text}' chooses no atom of the {len(atoms)} there are.")
    return chosen


def _where(condition: str, atoms: Atoms, given: str) -> np.ndarray:
    rows = np.arange(len(atoms))
    if match := _ATOMS.fullmatch(condition):
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise InputError(f"{given}: the range {condition} goes backwards.")
        if last >= len(atoms):
            raise InputError(f"{given}: there is no atom {last}; they are numbered 0 to {len(atoms) - 1}.")
        return (rows >= first) & (rows <= last)
    if _SYMBOL.fullmatch(condition):
        return atoms.numbers == atomic_number(condition, atoms, given)
    if match := _PLACE.fullmatch(condition):
        try:
            value = float(match[3])
        except ValueError:
            value = np.nan
        if np.isfinite(value):
            return np.asarray(COMPARISONS[match[2]](atoms.positions[:, "xyz".index(match[1])], value))
    shown = f"'{condition}' is not understood" if condition else "a condition is missing"
    raise InputError(f"{given}: {shown}. It takes {_WANTED}.")


def atomic_number(symbol: str, atoms: Atoms, given: str) -> int:
    """Of an element that the structure has.

    Raises:
        InputError: it has none of it, or there is no such element.
    """
    from ase.data import atomic_numbers

    number = atomic_numbers.get(symbol, 0)
    if number == 0 or not (atoms.numbers == number).any():
        held = ", ".join(sorted(set(atoms.get_chemical_symbols())))
        why = "is no element" if number == 0 else "is not in the structure"
        raise InputError(f"{given}: {symbol} {why}, which has {held}.")
    return int(number)
