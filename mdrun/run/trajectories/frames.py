"""What one frame of a trajectory holds, whatever format it goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mdrun.cell import completed

if TYPE_CHECKING:
    from ase import Atoms

# Columns that are of each frame; all others are the same in every one.
MOVING = ("positions", "momenta", "forces", "move_mask")


@dataclass(frozen=True)
class Frame:
    """A moment of the chosen atoms, in the order of the input.

    Attributes:
        step: -1 where the source does not tell.
        time_ps: NaN where the source does not tell.
        cell: (3, 3) row vectors, Å; zero where there is none.
        ids: (n,) index in the input.
        numbers: (n,) atomic numbers.
        columns: (n,) or (n, k) by ASE's names: ``positions`` Å, ``momenta`` sqrt(amu·eV), ``forces`` eV/Å,
            ``move_mask`` (T moves), ``masses`` amu, ``initial_charges`` e, and whatever else the source had.
        info: of the whole frame; ``energy`` eV and ``stress`` eV/Å³ (3, 3), tensile positive, where they are known.
    """

    step: int
    time_ps: float
    cell: np.ndarray
    pbc: tuple[bool, bool, bool]
    ids: np.ndarray
    numbers: np.ndarray
    columns: Mapping[str, np.ndarray]
    info: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.numbers)

    def masses(self) -> np.ndarray:
        """(n,) amu: its own, else those of the elements."""
        from ase.data import atomic_masses

        return np.asarray(self.columns.get("masses", atomic_masses[self.numbers]), dtype=float)

    def velocities(self) -> np.ndarray | None:
        """(n, 3) in Å·sqrt(eV/amu)/Å, ASE's; None where no momenta are known."""
        momenta = self.columns.get("momenta")
        return None if momenta is None else momenta / self.masses()[:, None]

    def atoms(self) -> Atoms:
        """The frame as ASE has it, with energy, forces and stress in a calculator."""
        from ase import Atoms
        from ase.calculators.singlepoint import SinglePointCalculator
        from ase.constraints import FixAtoms, FixCartesian
        from ase.stress import full_3x3_to_voigt_6_stress

        info = {name: value for name, value in self.info.items() if name not in ("energy", "stress")}
        atoms = Atoms(
            numbers=self.numbers, positions=self.columns["positions"], cell=self.cell, pbc=self.pbc, info=info
        )
        for name, values in self.columns.items():
            if name not in ("positions", "forces", "move_mask"):
                atoms.set_array(name, values)
        mask = self.columns.get("move_mask")
        if mask is not None:
            mobile = np.broadcast_to(mask.reshape(len(self), -1), (len(self), 3))
            whole = np.flatnonzero(~mobile.any(axis=1))
            constraints: list = [FixAtoms(whole)] if len(whole) else []
            partly = mobile.any(axis=1) & ~mobile.all(axis=1)
            for kind in np.unique(mobile[partly], axis=0):
                rows = np.flatnonzero(partly & (mobile == kind).all(axis=1))
                constraints.append(FixCartesian(rows, mask=~kind))
            atoms.set_constraint(constraints)
        results: dict[str, Any] = {name: self.info[name] for name in ("energy",) if name in self.info}
        if "stress" in self.info:
            results["stress"] = full_3x3_to_voigt_6_stress(np.asarray(self.info["stress"]))
        if "forces" in self.columns:
            results["forces"] = self.columns["forces"]
        if results:
            atoms.calc = SinglePointCalculator(atoms, **results)
        return atoms


class Writer(Protocol):
    """A trajectory file that grows at its end."""

    def write(self, frame: Frame) -> None: ...

    def flush(self) -> None:
        """Wait until everything written is on the disk."""

    def position(self) -> int:
        """Where the file ends after what has been written: what ``at`` takes when it is opened again."""

    def close(self) -> None: ...


def wrapped(positions: np.ndarray, cell: np.ndarray, pbc: tuple[bool, bool, bool]) -> np.ndarray:
    """(n, 3) Å with every atom moved by whole cell vectors of periodic axes to fractional coordinates in [0, 1)."""
    import torch

    vectors = completed(torch.tensor(cell), pbc).numpy()
    turns = np.floor(positions @ np.linalg.inv(vectors)) * np.array(pbc)
    return positions - turns @ vectors


def move_mask(mobile: np.ndarray) -> dict[str, np.ndarray]:
    """The column that ASE makes constraints of: a flag for each atom where these will do, else for each component."""
    if mobile.all():
        return {}
    return {"move_mask": mobile[:, 0] if (mobile == mobile[:, :1]).all() else mobile}
