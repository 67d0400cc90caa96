"""Energy as a function of positions and cell, seen by a search that runs on all ranks alike.

Positions are those in the unstrained cell, and the cell's own coordinates come after them: a vector of the search is
(n_owned, 3) rows on each rank, and (k,) numbers that every rank holds. Whatever a search decides on is a number that
was summed or compared over ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from mdrun import cell as geometry
from mdrun.comm import Comm
from mdrun.errors import InputError
from mdrun.optimize.straining import Straining, exponential
from mdrun.potentials.base import Forces
from mdrun.state import State

STRAIN_AS_LENGTH = 4.0  # Å that an atom moves for a strain of one, where steps are limited


class Vector(NamedTuple):
    """A direction or a gradient: ``rows`` (n_owned, 3) of this rank's atoms, ``cell`` (k,)."""

    rows: Tensor
    cell: Tensor

    def scaled(self, factor: float) -> Vector:
        return Vector(self.rows * factor, self.cell * factor)


@dataclass(frozen=True)
class Vectors:
    """Several: ``rows`` (n_owned, v, 3), ``cell`` (v, k)."""

    rows: Tensor
    cell: Tensor

    @classmethod
    def of(cls, *vectors: Vector) -> Vectors:
        return cls(torch.stack([v.rows for v in vectors], dim=1), torch.stack([v.cell for v in vectors]))

    def __getitem__(self, number: int) -> Vector:
        return Vector(self.rows[:, number], self.cell[number])

    def put(self, number: int, vector: Vector) -> None:
        """Write over one of them."""
        self.rows[:, number], self.cell[number] = vector

    def first(self, n: int) -> Vectors:
        return Vectors(self.rows[:, :n], self.cell[:n])

    def combined(self, coefficients: np.ndarray) -> Vector:
        """Σ_v coefficients_v · vector_v."""
        c = torch.from_numpy(coefficients)
        spread = torch.kron(c[:, None], torch.eye(3, dtype=c.dtype)).to(self.rows)  # one product, rows as they lie
        return Vector(self.rows.flatten(1) @ spread, (c[:, None] * self.cell).sum(dim=0))


@dataclass(frozen=True)
class Point:
    """What a search knows of where it stands; numbers are of the whole system, the same on every rank.

    Attributes:
        enthalpy: eV, E + P V; the energy where no pressure acts.
        gradient: eV/Å, of the enthalpy; zero for fixed components.
        fmax: eV/Å, the largest force on an atom, fixed components left out.
        stress: eV/Å³, the largest that is left to the strains that the cell may make; 0 where it makes none.
    """

    enthalpy: float
    gradient: Vector
    fmax: float
    stress: float


class Search(Protocol):
    """A way downhill. What it keeps of each atom it puts into the state's ``carried``."""

    def step(self, state: State, point: Point) -> Vector:
        """From a point to the next, in Å; the enthalpy there is known when it is asked again."""
        ...

    def describe(self) -> str:
        """Its name and what it remembers."""
        ...


class Landscape:
    """The enthalpy H = E + P V as a function of all positions and of the strains that the cell may make."""

    def __init__(self, comm: Comm, straining: Straining | None = None) -> None:
        self.comm = comm
        self.straining = straining

    @property
    def n_strains(self) -> int:
        return 0 if self.straining is None else len(self.straining.basis)

    def survey(self, state: State, forces: Forces) -> Point:
        """Enthalpy and gradient where the atoms are; two collectives.

        Raises:
            InputError: the cell is to relax, and the model gives no virial.
        """
        free = forces.forces if state.is_free else forces.forces * state.mobile
        fmax2 = free.square().sum(dim=1).amax() if len(free) else free.new_zeros(())
        cell, stress, sums = self._cell_gradient(state, forces)
        worst = self.comm.all_max(torch.tensor([float(fmax2), stress], dtype=torch.float64))
        return Point(float(sums[0]), self._referred(free, cell), math.sqrt(float(worst[0])), float(worst[1]))

    def _cell_gradient(self, state: State, forces: Forces) -> tuple[Tensor, float, Tensor]:
        """dH/dc (k,), the stress that is left, and H at the head of the sums over ranks."""
        assert forces.energy is not None
        local = torch.zeros(10, dtype=torch.float64)
        local[0] = forces.energy
        if self.straining is None:
            return torch.zeros(0, dtype=torch.float64), 0.0, self.comm.all_sum(local)
        volume = self.straining.volume(state)
        if self.comm.rank == 0:  # the work of the pressure is counted once
            local[0] += self.straining.pressure * volume
        local[1:] = math.nan if forces.virial is None else forces.virial.flatten()
        sums = self.comm.all_sum(local)
        if not bool(torch.isfinite(sums).all()):
            raise InputError("--cell needs the virial, which this model does not give: relax positions alone.")
        gradient = self.straining.gradient(sums[1:].reshape(3, 3), volume)
        return gradient, self.straining.stress(gradient, volume), sums

    def _referred(self, free: Tensor, cell: Tensor) -> Vector:
        """The gradient by positions in the unstrained cell: -f U, U symmetric."""
        if self.straining is not None:
            free = geometry.mapped(free, exponential(self.straining.strain))
        return Vector(-free, cell)

    def move(self, state: State, step: Vector) -> None:
        """Move the atoms, and the cell with all that is in it."""
        if self.straining is None:
            state.positions = state.positions + step.rows
        else:
            stretch = self.straining.move(state, step.cell)
            state.positions = state.positions + geometry.mapped(step.rows, stretch)

    def inner_products(self, vectors: Vectors, *others: Vectors) -> np.ndarray:
        """(w, v) of all others, one after another, with each of the vectors; summed over ranks in one collective."""
        local = torch.cat([_products_of_rows(w.rows, vectors.rows) for w in others]).cpu()
        if self.comm.rank == 0:  # what every rank holds is counted once
            local += torch.cat([w.cell for w in others]) @ vectors.cell.T
        return self.comm.all_sum(local).numpy()

    def shortened(self, step: Vector, longest: float) -> tuple[Vector, float]:
        """The step and by what it was multiplied, so that no atom moves by more than ``longest`` (Å).

        The cell's strain counts as a length. A collective.
        """
        rows = float(step.rows.square().sum(dim=1).amax()) ** 0.5 if len(step.rows) else 0.0
        cell = 0.0 if self.straining is None else float(step.cell.norm()) / self.straining.length * STRAIN_AS_LENGTH
        stride = float(self.comm.all_max(torch.tensor(max(rows, cell), dtype=torch.float64)))
        factor = longest / stride if stride > longest else 1.0
        return step.scaled(factor), factor


def _products_of_rows(some: Tensor, others: Tensor) -> Tensor:
    """(v, w) Σ_n,i some_nvi others_nwi, by one product of matrices as they lie in memory."""
    v, w = some.shape[1], others.shape[1]
    blocks = some.flatten(1).T @ others.flatten(1)
    return blocks.view(v, 3, w, 3).diagonal(dim1=1, dim2=3).sum(dim=2)
