"""How a cell may move: which strains a barostat may apply, and what a strain does to cell and atoms.

Strains are symmetric, so that the cell never turns. Positions are scaled about the origin.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from mdrun import cell as geometry
from mdrun.errors import InputError, SimulationError
from mdrun.state import State

AXES = "xyz"
ALIGNED = 1e-6  # of a unit vector that sticks out of the space that the cell fills, at most
SPARSEST = 1e9  # Å³ for each atom: a millionth of a bar at room temperature
FASTEST = 0.02  # strain in one step beyond which a barostat has lost hold


@dataclass(frozen=True)
class CellMotion:
    """The strains that are allowed: combinations of ``basis`` (k, 3, 3), symmetric and orthonormal.

    Attributes:
        name: as the user asked for them.
    """

    name: str
    basis: np.ndarray

    def __len__(self) -> int:
        return len(self.basis)

    def project(self, matrix: np.ndarray) -> np.ndarray:
        """The part (3, 3) of a symmetric matrix that is allowed."""
        return self.combine(self.basis.reshape(len(self), 9) @ matrix.ravel())

    def combine(self, amounts: np.ndarray) -> np.ndarray:
        """The strain (3, 3) of so much (k,) of each in the basis."""
        return (amounts @ self.basis.reshape(len(self), 9)).reshape(3, 3)


def cell_motion(box: str, couple: str | None, cell: Tensor, pbc: Sequence[bool]) -> CellMotion:
    """What ``--box`` and ``--couple`` ask for.

    Args:
        box: ``iso``, ``triclinic``, or the Cartesian axes that move, each by itself, as in ``xyz`` or ``z``.
        couple: two of these axes that keep their ratio, or None.
        cell: (3, 3) Å; open axes are never scaled.

    Raises:
        InputError: the cell can't move so.
    """
    filled = geometry.filled_space(cell, pbc)
    name = box if couple is None else f"{box}, {couple} coupled"
    if not any(pbc):
        raise InputError("a barostat needs a periodic axis: nothing bounds this system. Use --ensemble nvt.")
    if box == "iso":
        return CellMotion(name, filled[None] / np.linalg.norm(filled))
    if box == "triclinic":
        if not all(pbc):
            raise InputError("--box triclinic needs three periodic axes. Name those that may move, as in --box xy.")
        return CellMotion(name, geometry.unit_strains(itertools.combinations_with_replacement(range(3), 2)))
    for axis in box:
        direction = np.eye(3)[AXES.index(axis)]
        if np.abs(filled @ direction - direction).max() > ALIGNED:
            raise InputError(
                f"--box {box}: the structure is not periodic along {axis}, and open axes are never scaled. Leave it "
                "out, or turn the structure so that its periodic axes span it."
            )
    together = couple or ""
    groups = [together] * bool(together) + [axis for axis in box if axis not in together]
    basis = [np.diag([float(axis in group) for axis in AXES]) / np.sqrt(len(group)) for group in groups]
    return CellMotion(name, np.array(basis))


def exponential(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``geometry.exponential`` of what a barostat does to cell and atoms in a step.

    Raises:
        SimulationError: it is too large for a step.
    """
    if not np.abs(matrix).max() < 1:  # so for NaN too
        raise _lost_hold()
    return geometry.exponential(matrix)


def strain_cell(state: State, stretch: np.ndarray) -> None:
    """Move the cell's periodic vectors by ``stretch`` (3, 3), symmetric: h ← h @ stretch.

    A cell that has tilted far is given the shortest vectors of its lattice: halo and list then stay small.

    Raises:
        SimulationError: it moves so much at once that the barostat has lost hold.
    """
    if not np.abs(stretch - np.eye(3)).max() <= FASTEST:  # so for NaN too
        raise _lost_hold()
    cell = state.cell.numpy().copy()
    for axis in range(3):
        if state.pbc[axis]:
            cell[axis] = cell[axis] @ stretch
    state.cell = torch.from_numpy(cell)
    if all(state.pbc) and geometry.volume(state.cell, state.pbc) > SPARSEST * state.n_total:
        raise SimulationError(
            f"the box has grown to more than {SPARSEST:g} Å³ for each atom: nothing holds these atoms together under "
            "the pressure asked for. Raise --pressure, or lower --temperature."
        )
    if geometry.is_tilted(state.cell, state.pbc):
        state.change_lattice_vectors(geometry.reduced(state.cell, state.pbc))


def _lost_hold() -> SimulationError:
    return SimulationError(
        f"the barostat moves the cell by more than {FASTEST:.0%} in a step. Lengthen --barostat-time, bring the "
        "structure nearer to the pressure first, or lower --timestep."
    )


def move_affinely(
    rows: Tensor, stretch: np.ndarray, state: State, source: Tensor | None = None, gain: np.ndarray | None = None,
    weights: Tensor | None = None,
) -> None:  # fmt: skip
    """rows ← rows @ stretch + weights · source @ gain, in place, for the components that may move.

    Args:
        rows, source: (n, 3).
        stretch, gain: (3, 3) symmetric.
        weights: (n,); 1 by default.
    """
    if rows.is_cpu:
        nothing = np.empty((0, 3))
        _move_affinely(
            rows.numpy(), stretch, state.mobile.numpy(), nothing if source is None else source.numpy(),
            stretch if gain is None else gain, nothing[:, 0] if weights is None else weights.numpy(),
        )  # fmt: skip
        return
    moved = rows @ torch.from_numpy(stretch).to(rows)
    if source is not None:
        weighted = source if weights is None else source * weights[:, None]
        moved += weighted @ torch.from_numpy(gain).to(rows)
    rows.copy_(moved if state.is_free else torch.where(state.mobile, moved, rows))


@njit(parallel=True, cache=True)
def _move_affinely(rows, stretch, mobile, source, gain, weights):
    for i in prange(len(rows)):
        x, y, z = rows[i, 0], rows[i, 1], rows[i, 2]
        weight = weights[i] if len(weights) else 1.0
        for d in range(3):
            value = x * stretch[0, d] + y * stretch[1, d] + z * stretch[2, d]
            if len(source):
                value += weight * (source[i, 0] * gain[0, d] + source[i, 1] * gain[1, d] + source[i, 2] * gain[2, d])
            if mobile[i, d]:
                rows[i, d] = value
