"""Velocity Verlet as a product of exact half steps.

Forces of fixed components are never applied: their momenta are zero and stay so, and their positions keep their bits.
"""

from __future__ import annotations

from typing import Protocol

import torch
from numba import njit, prange
from torch import Tensor

from mdrun import units
from mdrun.clock import timed
from mdrun.integrate.kept import Remembers
from mdrun.potentials.base import Forces
from mdrun.state import State


def kick(state: State, forces: Tensor, time: float) -> None:
    """p += t F, in place."""
    state.momenta.add_(forces if state.is_free else forces * state.mobile, alpha=time)


def drift(state: State, time: float) -> None:
    """r += t p / m, in place."""
    if state.positions.is_cpu:  # torch spreads the masses over the axes at a fifth of the speed
        _drift(state.positions.numpy(), state.momenta.numpy(), state.masses.numpy(), time)
    else:
        state.positions.addcdiv_(state.momenta, state.masses[:, None], value=time)


@njit(parallel=True, cache=True)
def _drift(positions, momenta, masses, time):
    for i in prange(len(positions)):
        rate = time / masses[i]
        for d in range(3):
            positions[i, d] += rate * momenta[i, d]


class Motion(Protocol):
    """How atoms move between kicks: freely, or with bonds of fixed length.

    Attributes:
        n_constraints: bonds held, in the whole system.
    """

    n_constraints: int

    def drift(self, state: State, time: float) -> None:
        """Move the atoms for a time, in place; momenta change only as constraint forces change them."""
        ...

    def project(self, state: State) -> None:
        """Take off the momenta what the constraints forbid, after kicks and noise."""
        ...

    def virial(self, state: State, forces: Tensor) -> Tensor:
        """(3, 3) eV, this rank's share of Σ r_ij ⊗ f_ij of the constraint forces; a collective where there are any."""
        ...

    def molecules(self, state: State) -> Tensor:
        """(n_owned,) for each atom the id that stands for it and for those that it is tied to."""
        ...


class Free:
    """Nothing is tied to anything."""

    n_constraints = 0

    def drift(self, state: State, time: float) -> None:
        drift(state, time)

    def project(self, state: State) -> None:
        pass

    def virial(self, state: State, forces: Tensor) -> Tensor:
        return torch.zeros((3, 3), dtype=torch.float64)

    def molecules(self, state: State) -> Tensor:
        return state.ids


FREE = Free()


class VelocityVerlet(Remembers):
    """NVE: exp(t/2 B) exp(t A) exp(t/2 B), A the drift and B the kick.

    W. C. Swope, H. C. Andersen, P. H. Berens, K. R. Wilson, J. Chem. Phys. 76 (1982) 637, doi 10.1063/1.442716.
    """

    ensemble = "nve"
    conserves_momentum = True
    needs_virial = False
    pressure = None
    heat = 0.0

    def __init__(self, timestep: float, motion: Motion = FREE) -> None:
        self.timestep = timestep
        self.motion = motion

    @timed("integration")
    def before_forces(self, state: State, forces: Forces, step: int) -> None:
        kick(state, forces.forces, self.timestep / 2)
        self.motion.drift(state, self.timestep)

    @timed("integration")
    def after_forces(self, state: State, forces: Forces) -> None:
        kick(state, forces.forces, self.timestep / 2)
        self.motion.project(state)

    def describe(self) -> str:
        return f"NVE, velocity Verlet, {self.timestep / units.FS:g} fs"
