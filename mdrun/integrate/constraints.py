"""Bonds of fixed length on any number of ranks.

A molecule is solved by every rank that owns one of its atoms: those that several ranks share send each other the rows
of its atoms first, and all do the same arithmetic on the same numbers, so that nothing depends on where borders lie.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mdrun.comm import Comm
from mdrun.errors import InputError, SimulationError
from mdrun.integrate import rattle
from mdrun.integrate.bonds import Bonds
from mdrun.integrate.verlet import drift
from mdrun.state import State

MOST_BONDS = 300  # of one molecule: the work goes with their cube
INDEPENDENT = 1e-8


@dataclass
class _Rows:
    """What this rank solves between two rebuilds. Its buffer has its own bonded atoms first, then those of others.

    Attributes:
        molecules: (n_owned,) lowest id of each atom's molecule; its own where it has no bond.
        rows: (n_own,) of the state.
        ids: (n_buffer,).
        is_shared: some rank, not this one perhaps, shares a molecule.
        send: (n_sent,) rows of the buffer, by receiver.
        starts, bonds, lengths: of molecules that have an atom here, in rows of the buffer; as ``rattle`` takes them.
        shifts: (n_bonds, 3) of ``Bonds``, as floating-point numbers.
        weights: (n_buffer, 3) 1/m of components that move.
        counts: (m,) 1 for molecules whose first atom is here, else 0: sums over ranks count each once.
    """

    molecules: Tensor
    rows: Tensor
    ids: np.ndarray
    is_shared: bool
    send: Tensor
    send_sizes: list[int]
    recv_sizes: list[int]
    starts: np.ndarray
    bonds: np.ndarray
    lengths: np.ndarray
    shifts: np.ndarray
    weights: np.ndarray
    counts: np.ndarray


class Constrained:
    """A motion that keeps bonds at their lengths, in the manner of RATTLE: a drift ends at the lengths, and projected
    momenta stretch none.

    With a Langevin thermostat this is g-BAOAB: B. Leimkuhler, C. Matthews, Proc. R. Soc. A 472 (2016) 20160138, doi
    10.1098/rspa.2016.0138.
    """

    def __init__(self, bonds: Bonds, comm: Comm) -> None:
        """``bonds`` of the whole system, the same on every rank."""
        self._bonds, self._comm = bonds, comm
        self.n_constraints = len(bonds)
        self._atoms = np.unique(bonds.pairs)
        # of each bonded atom: its molecule's number, 0 to n_molecules - 1
        self._first = bonds.molecules[bonds.starts[:-1]]  # lowest id of each molecule
        numbers = np.searchsorted(self._first, bonds.molecules)
        self._molecule = np.empty(len(self._atoms), np.int64)
        for end in (0, 1):
            self._molecule[np.searchsorted(self._atoms, bonds.pairs[:, end])] = numbers
        self._sizes = np.bincount(self._molecule, minlength=bonds.n_molecules)
        _compile()
        self._here: _Rows | None = None
        self._of: Tensor | None = None  # the ids that ``_here`` was made for

    def drift(self, state: State, time: float) -> None:
        """
        Raises:
            SimulationError: a molecule can't be brought back to its lengths.
        """
        here = self._rows(state)
        positions, momenta = self._gathered(here, state.positions, state.momenta)
        off = rattle.aim(
            here.starts, here.bonds, here.lengths, here.shifts @ state.cell.numpy(), here.weights,
            positions, momenta, time,
        )  # fmt: skip
        self._refuse_lost(here, off)
        self._scatter(here, momenta, state.momenta)
        drift(state, time)

    def project(self, state: State) -> None:
        here = self._rows(state)
        positions, momenta = self._gathered(here, state.positions, state.momenta)
        rattle.project(here.starts, here.bonds, here.shifts @ state.cell.numpy(), here.weights, positions, momenta)
        self._scatter(here, momenta, state.momenta)

    def virial(self, state: State, forces: Tensor) -> Tensor:
        here = self._rows(state)
        arrays = self._gathered(here, state.positions, state.momenta, forces)
        virials = rattle.constraint_virials(
            here.starts, here.bonds, here.shifts @ state.cell.numpy(), here.weights, *arrays
        )
        return torch.from_numpy((virials * here.counts[:, None, None]).sum(axis=0))

    def molecules(self, state: State) -> Tensor:
        return self._rows(state).molecules

    def _find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n,) where each id stands among the bonded atoms, and whether it is one."""
        where = np.searchsorted(self._atoms, ids).clip(max=len(self._atoms) - 1)
        return where, self._atoms[where] == ids

    def _rows(self, state: State) -> _Rows:
        """As they are since the last rebuild, which every rank does at the same step."""
        if self._here is None or self._of is not state.ids:
            self._of, self._here = state.ids, self._plan(state)
        return self._here

    def _plan(self, state: State) -> _Rows:
        """A collective."""
        ids = state.ids.cpu().numpy()
        where, is_bonded = self._find(ids)
        names = np.where(is_bonded, self._first[self._molecule[where]], ids)
        rows = np.flatnonzero(is_bonded)
        rows = rows[np.argsort(where[rows])]
        own = where[rows]  # of the bonded atoms, ascending
        molecule = self._molecule[own]
        n_here = np.bincount(molecule, minlength=len(self._sizes))
        is_shared = ((n_here > 0) & (n_here < self._sizes))[molecule]
        send, send_sizes, received, recv_sizes = self._plan_exchange(own, is_shared)

        buffer = np.concatenate([own, received])
        is_solved = (n_here > 0)[np.searchsorted(self._first, self._bonds.molecules)]
        chosen = np.flatnonzero(is_solved)
        row_of = np.full(len(self._atoms), -1)
        row_of[buffer] = np.arange(len(buffer))
        bonds = row_of[np.searchsorted(self._atoms, self._bonds.pairs[chosen])]
        assert (bonds >= 0).all(), "an atom of a molecule is on no rank"
        of_bond = self._bonds.molecules[chosen]
        starts = np.flatnonzero(np.diff(of_bond, prepend=-1, append=-1)) if len(chosen) else np.zeros(1, np.int64)
        is_first_here = row_of[np.searchsorted(self._atoms, of_bond[starts[:-1]])] < len(own)
        here = _Rows(
            molecules=torch.from_numpy(names).to(state.ids.device),
            rows=torch.from_numpy(rows).to(state.ids.device),
            ids=self._atoms[buffer],
            is_shared=bool(send_sizes),
            send=torch.from_numpy(send),
            send_sizes=send_sizes,
            recv_sizes=recv_sizes,
            starts=starts,
            bonds=bonds,
            lengths=self._bonds.lengths[chosen],
            shifts=self._bonds.shifts[chosen].astype(np.float64),
            weights=np.empty((0, 3)),
            counts=is_first_here.astype(np.float64),
        )
        (here.weights,) = self._gathered(here, state.mobile / state.masses[:, None])
        return here

    def _plan_exchange(
        self, own: np.ndarray, is_shared: np.ndarray
    ) -> tuple[np.ndarray, list[int], np.ndarray, list[int]]:
        """Rows of ``own`` to send, how many to each rank, the atoms to come, and how many from each; a collective.

        No sizes where all molecules are whole.
        """
        comm, nobody = self._comm, np.empty(0, np.int64)
        shared = own[is_shared]
        counts = comm.all_gather(torch.tensor(len(shared))).numpy()
        if not counts.any():
            return nobody, [], nobody, []
        padded = torch.zeros(int(counts.max()), dtype=torch.int64)
        padded[: len(shared)] = torch.from_numpy(shared)
        table = comm.all_gather(padded).numpy()
        of_rank = [table[r, :n] for r, n in enumerate(counts)]
        mine = self._molecule[shared]
        send, received = [], []
        for rank, atoms in enumerate(of_rank):
            theirs = self._molecule[atoms]
            is_other = rank != comm.rank
            send.append(np.flatnonzero(is_shared)[np.isin(mine, theirs)] if is_other else nobody)
            received.append(atoms[np.isin(theirs, mine)] if is_other else nobody)
        return np.concatenate(send), list(map(len, send)), np.concatenate(received), list(map(len, received))

    def _gathered(self, here: _Rows, *arrays: Tensor) -> list[np.ndarray]:
        """Rows of (n_owned, 3) arrays of all atoms that are solved here, (n_buffer, 3) each; a collective."""
        own = [values.index_select(0, here.rows).cpu() for values in arrays]
        if here.is_shared:
            sent = torch.cat([values.index_select(0, here.send) for values in own], dim=1)
            news = self._comm.exchange(sent, here.send_sizes, here.recv_sizes)
            own = [torch.cat(both) for both in zip(own, news.split(3, dim=1), strict=True)]
        return [values.numpy() for values in own]

    def _scatter(self, here: _Rows, values: np.ndarray, into: Tensor) -> None:
        into.index_copy_(0, here.rows, torch.from_numpy(values[: len(here.rows)]).to(into.device))

    def _refuse_lost(self, here: _Rows, off: np.ndarray) -> None:
        bad = np.flatnonzero(~(off < rattle.GOOD_ENOUGH))
        if not len(bad):
            return
        first, last = here.starts[bad[0]], here.starts[bad[0] + 1]
        atoms = np.unique(here.ids[here.bonds[first:last]])
        ids = ", ".join(map(str, atoms[:8]))
        a, b = here.ids[here.bonds[first]]
        raise SimulationError(
            f"the bonds of {len(bad)} molecule{'s' if len(bad) > 1 else ''} can't be held (atoms {ids}; the bond of "
            f"{a} and {b} is to be {here.lengths[first]:.4g} Å): their atoms turn too far in one "
            "step. Lower --timestep or relax the structure first.",
            ids=atoms,
        )


def _compile() -> None:
    """Before anybody counts the time."""
    starts, bonds, rows, lengths = np.zeros(1, np.int64), np.empty((0, 2), np.int64), np.empty((0, 3)), np.empty(0)
    rattle.aim(starts, bonds, lengths, rows, rows, rows, rows, 1.0)
    rattle.project(starts, bonds, rows, rows, rows, rows)
    rattle.constraint_virials(starts, bonds, rows, rows, rows, rows, rows)


def projected(momenta: Tensor, state: State, bonds: Bonds) -> Tensor:
    """Momenta (n, 3) of all atoms, in one process, less what would stretch a bond."""
    if not len(bonds):
        return momenta
    kept, state.momenta = state.momenta, momenta.clone()
    Constrained(bonds, Comm()).project(state)
    found, state.momenta = state.momenta, kept
    return found


def independent_bonds(bonds: Bonds, state: State) -> Bonds:
    """The bonds that hold anything: not those of two fixed atoms.

    Args:
        state: all atoms, in the order of their ids.

    Raises:
        InputError: bonds of a molecule follow from each other, or there are too many of them.
    """
    weights = (state.mobile / state.masses[:, None]).numpy()
    bonds = bonds.chosen(np.flatnonzero((weights[bonds.pairs] > 0).any(axis=(1, 2))))
    sizes = np.diff(bonds.starts)
    for m in np.flatnonzero(sizes > MOST_BONDS)[:1]:
        raise InputError(
            f"the molecule of atom {bonds.molecules[bonds.starts[m]]} has {sizes[m]} bonds of fixed length in a row; "
            f"{MOST_BONDS} are the most that are solved together. Fix fewer of them, such as --constrain-bonds H alone."
        )
    offsets = bonds.shifts @ state.cell.numpy()
    least = rattle.independence(bonds.starts, bonds.pairs, offsets, weights, state.positions.numpy())
    for m in np.flatnonzero(~(least > INDEPENDENT))[:1]:
        atoms = np.unique(bonds.pairs[bonds.starts[m] : bonds.starts[m + 1]])
        ids = ", ".join(map(str, atoms[:8])) + (", ..." if len(atoms) > 8 else "")
        raise InputError(
            f"the bonds of fixed length among atoms {ids} follow from each other (a straight or flat molecule with all "
            "its distances fixed, or more bonds than it has shapes), so they can't be solved. Leave some of them out."
        )
    return bonds
