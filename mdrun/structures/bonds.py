"""Which bonds keep their length: those that the file's constraints name, and those asked for by elements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import torch

from mdrun.cell import completed
from mdrun.errors import InputError
from mdrun.integrate.bonds import Bonds, make_bonds
from mdrun.structures.selection import atomic_number

if TYPE_CHECKING:
    from ase import Atoms

    from mdrun.structures.frame import Place

REACH = 1.2  # times the sum of covalent radii


def bonds_of_file(atoms: Atoms, place: Place) -> Bonds:
    """Of ASE's FixBondLengths, at the lengths that they have in the file, between nearest images.

    Raises:
        InputError: a bond of an atom that is not there, or with itself.
    """
    from ase.constraints import FixBondLengths

    given = [np.asarray(c.pairs, np.int64).reshape(-1, 2) for c in atoms.constraints if isinstance(c, FixBondLengths)]
    pairs = np.concatenate([np.empty((0, 2), np.int64), *given])
    outside = ((pairs < 0) | (pairs >= len(atoms))).any(axis=1)
    for a, b in pairs[outside][:1]:
        raise InputError(f"{place} fixes the length of bond {a}-{b}, but its atoms are 0 to {len(atoms) - 1}.")
    for a, _ in pairs[pairs[:, 0] == pairs[:, 1]][:1]:
        raise InputError(f"{place} fixes the length of a bond of atom {a} with itself.")
    return _at_nearest_images(atoms, pairs)


def bonds_of_kinds(atoms: Atoms, text: str, place: Place) -> Bonds:
    """Of elements: ``H`` is every bond that hydrogen has, ``O-H`` those of oxygen with hydrogen; commas join.

    A bond is a pair no longer than 1.2 times the sum of ASE's covalent radii (B. Cordero et al., Dalton Trans. 2008,
    2832, doi 10.1039/b801115j).

    Raises:
        InputError: the text is not understood, or there is no such bond.
    """
    from ase.data import chemical_symbols, covalent_radii
    from ase.neighborlist import neighbor_list

    given = f"--constrain-bonds '{text}'"
    present = np.unique(atoms.numbers)
    reaches: dict[tuple[str, str], float] = {}
    for word in (part.strip() for part in text.split(",")):
        match = re.fullmatch(r"([A-Z][a-z]?)(?:\s*-\s*([A-Z][a-z]?))?", word)
        if match is None:
            raise InputError(f"{given}: '{word}' is not understood. It takes elements (H) or pairs of them (O-H).")
        one = atomic_number(match[1], atoms, given)
        others = [atomic_number(match[2], atoms, given)] if match[2] else present
        for other in others:
            reach = REACH * (covalent_radii[one] + covalent_radii[other])
            reaches[chemical_symbols[one], chemical_symbols[other]] = reach
    i, j, shifts = neighbor_list("ijS", atoms, reaches)
    once = i < j
    for atom in i[i == j][:1]:
        raise InputError(f"{given}: atom {atom} in {place.clause} would be bound to its own image. Check the cell.")
    if not once.any():
        raise InputError(f"{given}: there is no such bond in {place} (pairs within {REACH} of their covalent radii).")
    pairs, shifts = np.column_stack([i, j])[once], shifts[once]
    return make_bonds(pairs, shifts, _lengths(atoms, pairs, shifts))


def merged(one: Bonds, other: Bonds) -> Bonds:
    pairs, shifts = np.concatenate([one.pairs, other.pairs]), np.concatenate([one.shifts, other.shifts])
    return make_bonds(pairs, shifts, np.concatenate([one.lengths, other.lengths]))


def _at_nearest_images(atoms: Atoms, pairs: np.ndarray) -> Bonds:
    from ase.geometry import find_mic

    if len(pairs) == 0:
        return make_bonds(pairs, np.empty((0, 3)), np.empty(0))
    apart = atoms.positions[pairs[:, 0]] - atoms.positions[pairs[:, 1]]
    nearest, _ = find_mic(apart, atoms.cell, atoms.pbc)
    cell = completed(torch.tensor(atoms.cell.array), atoms.pbc.tolist()).numpy()
    shifts = np.rint((apart - nearest) @ np.linalg.inv(cell)).astype(np.int64) * atoms.pbc
    return make_bonds(pairs, shifts, _lengths(atoms, pairs, shifts))


def _lengths(atoms: Atoms, pairs: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    apart = atoms.positions[pairs[:, 0]] - atoms.positions[pairs[:, 1]] - shifts @ atoms.cell.array
    return np.linalg.norm(apart, axis=1)
