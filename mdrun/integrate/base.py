"""What the step loop asks of an integrator."""

from __future__ import annotations

from typing import Protocol

from mdrun.potentials.base import Forces
from mdrun.state import State


class Integrator(Protocol):
    """Moves the atoms from step to step around one force evaluation.

    Attributes:
        ensemble: "nve", "nvt", "npt" or "nph".
        timestep: ASE's Å·sqrt(amu/eV).
        conserves_momentum: whether the total momentum of free atoms is a constant.
        needs_virial: whether it reads the virial at each step.
        pressure: eV/Å³, what a barostat holds, the mean of three; None where there is none.
        heat: eV, this rank's share of what the baths hold: with it the total energy is conserved.
    """

    timestep: float
    conserves_momentum: bool
    needs_virial: bool

    @property
    def ensemble(self) -> str: ...

    @property
    def pressure(self) -> float | None: ...

    @property
    def heat(self) -> float: ...

    def before_forces(self, state: State, forces: Forces, step: int) -> None:
        """From the momenta, positions and forces of ``step`` to the positions of ``step + 1``."""
        ...

    def after_forces(self, state: State, forces: Forces) -> None:
        """The rest of the step, with the forces at the new positions."""
        ...

    def describe(self) -> str:
        """One line with the parameters and their units."""
        ...
