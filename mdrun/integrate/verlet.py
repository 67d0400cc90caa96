"""Velocity Verlet and Langevin dynamics as products of exact half steps.

Forces of fixed components are never applied: their momenta are zero and stay so, and their positions keep their bits.
"""

from __future__ import annotations

import math

import torch
from numba import njit, prange
from torch import Tensor

from mdrun import units
from mdrun.clock import timed
from mdrun.noise import normals
from mdrun.philox import STREAM_LANGEVIN
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


class VelocityVerlet:
    """NVE: exp(t/2 B) exp(t A) exp(t/2 B), A the drift and B the kick.

    W. C. Swope, H. C. Andersen, P. H. Berens, K. R. Wilson, J. Chem. Phys. 76 (1982) 637, doi 10.1063/1.442716.
    """

    ensemble = "nve"
    conserves_momentum = True

    def __init__(self, timestep: float) -> None:
        self.timestep = timestep

    @timed("integration")
    def before_forces(self, state: State, forces: Tensor, step: int) -> None:
        kick(state, forces, self.timestep / 2)
        drift(state, self.timestep)

    @timed("integration")
    def after_forces(self, state: State, forces: Tensor) -> None:
        kick(state, forces, self.timestep / 2)

    def describe(self) -> str:
        return f"NVE, velocity Verlet, {self.timestep / units.FS:g} fs"


class Langevin:
    """NVT: exp(t/2 B) exp(t/2 A) exp(t O) exp(t/2 A) exp(t/2 B), known as BAOAB.

    O is the exact Ornstein-Uhlenbeck step p ← c p + sqrt((1 - c²) m k T) ξ with c = exp(-γ t).
    B. Leimkuhler and C. Matthews, Appl. Math. Res. Express (2013) 34, doi 10.1093/amrx/abs010.

    ξ is keyed on seed, step and atom id: it is the same whichever rank owns the atom.
    """

    ensemble = "nvt"
    conserves_momentum = False

    def __init__(self, timestep: float, temperature_K: float, friction: float, seed: int) -> None:
        """``friction`` γ in units of 1/time as ``timestep`` is of time."""
        self.timestep = timestep
        self.temperature_K = temperature_K
        self.friction = friction
        self.seed = seed

    @timed("integration")
    def before_forces(self, state: State, forces: Tensor, step: int) -> None:
        kick(state, forces, self.timestep / 2)
        drift(state, self.timestep / 2)
        self._exchange_heat(state, step)
        drift(state, self.timestep / 2)

    @timed("integration")
    def after_forces(self, state: State, forces: Tensor) -> None:
        kick(state, forces, self.timestep / 2)

    def _exchange_heat(self, state: State, step: int) -> None:
        c = math.exp(-self.friction * self.timestep)
        noise = normals(self.seed, STREAM_LANGEVIN, step, state.ids)
        width = torch.sqrt((1 - c * c) * units.KB * self.temperature_K * state.masses)
        state.momenta.mul_(c).add_(noise * width[:, None] * state.mobile)

    def describe(self) -> str:
        return (
            f"NVT, Langevin (BAOAB), {self.timestep / units.FS:g} fs, {self.temperature_K:g} K, "
            f"friction {self.friction * units.PS:g} /ps, seed {self.seed}"
        )
