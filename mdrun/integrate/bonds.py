"""Bonds of fixed length: which atoms, across which periodic images, how long; the molecules that they make."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Bonds:
    """Held between atom a and the image of atom b that lies ``shift`` cells away: d = r_a - r_b - shift · cell.

    Rows are sorted by molecule, in the order of the molecules' lowest ids, so that whoever solves one does the same
    arithmetic.

    Attributes:
        pairs: (n, 2) int64 ids, a < b.
        shifts: (n, 3) int64 whole cell vectors, between unwrapped positions.
        lengths: (n,) Å.
        molecules: (n,) int64, the lowest id of the molecule that each bond is of.
    """

    pairs: np.ndarray
    shifts: np.ndarray
    lengths: np.ndarray
    molecules: np.ndarray

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def starts(self) -> np.ndarray:
        """(n_molecules + 1,) first bond of each molecule, and the number of bonds."""
        return np.flatnonzero(np.diff(self.molecules, prepend=-1, append=-1)) if len(self) else np.zeros(1, np.int64)

    @property
    def n_molecules(self) -> int:
        return len(self.starts) - 1

    def chosen(self, rows: np.ndarray) -> Bonds:
        """Those of the bonds, which may fall into other molecules."""
        return make_bonds(self.pairs[rows], self.shifts[rows], self.lengths[rows])


def make_bonds(pairs: np.ndarray, shifts: np.ndarray, lengths: np.ndarray) -> Bonds:
    """Sorted, each once whichever way round it was named."""
    pairs, shifts = np.asarray(pairs, np.int64).reshape(-1, 2), np.asarray(shifts, np.int64).reshape(-1, 3)
    lengths = np.asarray(lengths, np.float64)
    turned = pairs[:, 0] > pairs[:, 1]
    pairs, shifts = np.where(turned[:, None], pairs[:, ::-1], pairs), np.where(turned[:, None], -shifts, shifts)
    if len(pairs) == 0:
        return Bonds(pairs, shifts, lengths, np.empty(0, np.int64))
    _, first = np.unique(np.column_stack([pairs, shifts]), axis=0, return_index=True)
    pairs, shifts, lengths = pairs[first], shifts[first], lengths[first]
    ids, ends = np.unique(pairs, return_inverse=True)
    molecules = ids[_lowest_connected(ends.reshape(-1, 2), len(ids))[ends.reshape(-1, 2)[:, 0]]]
    order = np.argsort(molecules, kind="stable")
    return Bonds(pairs[order], shifts[order], lengths[order], molecules[order])


def no_bonds() -> Bonds:
    return make_bonds(np.empty((0, 2)), np.empty((0, 3)), np.empty(0))


def replicated(bonds: Bonds, n_atoms: int, copies: tuple[int, int, int]) -> Bonds:
    """The bonds of a cell repeated along its axes, atoms in ASE's order: copy after copy, the last axis first.

    Args:
        n_atoms: in the cell that is repeated.
    """
    size = np.array(copies)
    corners = np.stack(np.meshgrid(*map(np.arange, copies), indexing="ij"), -1).reshape(-1, 1, 3)
    target = corners + bonds.shifts
    strides = np.array([size[1] * size[2], size[2], 1])
    first = (corners @ strides) * n_atoms + bonds.pairs[:, 0]
    second = (target % size @ strides) * n_atoms + bonds.pairs[:, 1]
    pairs = np.stack([first, second], axis=-1).reshape(-1, 2)
    return make_bonds(pairs, (target // size).reshape(-1, 3), np.tile(bonds.lengths, len(corners)))


def _lowest_connected(ends: np.ndarray, n: int) -> np.ndarray:
    """(n,) lowest node that each of ``n`` nodes is connected with, by edges (m, 2)."""
    lowest = np.arange(n)
    while True:
        low = lowest[ends].min(axis=1)
        found = lowest.copy()
        for column in (0, 1):
            np.minimum.at(found, ends[:, column], low)
            np.minimum.at(found, lowest[ends[:, column]], low)
        found = found[found]
        if np.array_equal(found, lowest):
            return lowest
        lowest = found
