"""What the step loop asks of an integrator."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from mdrun.state import State


class Integrator(Protocol):
    """Moves the atoms from step to step around one force evaluation.

    Attributes:
        ensemble: "nve" or "nvt".
        timestep: ASE's Å·sqrt(amu/eV).
        conserves_momentum: whether the total momentum of free atoms is a constant.
        heat: eV, this rank's share of what a bath holds: with it the total energy is conserved.
    """

    ensemble: str
    timestep: float
    conserves_momentum: bool

    @property
    def heat(self) -> float: ...

    def before_forces(self, state: State, forces: Tensor, step: int) -> None:
        """From the momenta, positions and forces (n_owned, 3) of ``step`` to the positions of ``step + 1``."""
        ...

    def after_forces(self, state: State, forces: Tensor) -> None:
        """The rest of the step, with the forces at the new positions."""
        ...

    def describe(self) -> str:
        """One line with the parameters and their units."""
        ...
