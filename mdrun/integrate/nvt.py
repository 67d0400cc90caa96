"""Velocity Verlet in contact with a bath.

Noise is keyed on seed, step and atom id: it is the same whichever rank owns the atom.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mdrun import units
from mdrun.clock import timed
from mdrun.comm import Comm
from mdrun.integrate.kept import Remembers
from mdrun.integrate.momentum import measure_flow
from mdrun.integrate.thermostats import Ramp, Thermostat, as_ramp
from mdrun.integrate.verlet import FREE, Motion, kick
from mdrun.noise import normals
from mdrun.philox import STREAM_COLLIDED, STREAM_COLLISIONS, STREAM_LANGEVIN
from mdrun.potentials.base import Forces
from mdrun.state import State


class Langevin(Remembers):
    """NVT: exp(t/2 B) exp(t/2 A) exp(t O) exp(t/2 A) exp(t/2 B), known as BAOAB.

    O is the exact Ornstein-Uhlenbeck step p ← c p + sqrt((1 - c²) m k T) ξ with c = exp(-γ t).
    B. Leimkuhler and C. Matthews, Appl. Math. Res. Express (2013) 34, doi 10.1093/amrx/abs010.
    """

    ensemble = "nvt"
    conserves_momentum = False
    needs_virial = False
    pressure = None
    summed_over_ranks = ("_heat",)

    def __init__(
        self, timestep: float, temperature: Ramp | float, friction: float, seed: int, motion: Motion = FREE
    ) -> None:
        """``friction`` γ in units of 1/time as ``timestep`` is of time."""
        self.timestep = timestep
        self.temperature = as_ramp(temperature)
        self.friction = friction
        self.seed = seed
        self.motion = motion
        self._heat: Tensor | float = 0.0

    @property
    def heat(self) -> float:
        return float(self._heat)

    @timed("integration")
    def before_forces(self, state: State, forces: Forces, step: int) -> None:
        kick(state, forces.forces, self.timestep / 2)
        self.motion.drift(state, self.timestep / 2)
        self.motion.project(state)
        self._exchange_heat(state, step)
        self.motion.drift(state, self.timestep / 2)

    @timed("integration")
    def after_forces(self, state: State, forces: Forces) -> None:
        kick(state, forces.forces, self.timestep / 2)
        self.motion.project(state)

    def _exchange_heat(self, state: State, step: int) -> None:
        c = math.exp(-self.friction * self.timestep)
        noise = normals(self.seed, STREAM_LANGEVIN, step, state.ids)
        width = torch.sqrt((1 - c * c) * units.KB * self.temperature(step) * state.masses)
        before = state.kinetic_energy()
        state.momenta.mul_(c).add_(noise * width[:, None] * state.mobile)
        self.motion.project(state)
        self._heat = self._heat + before - state.kinetic_energy()

    def describe(self) -> str:
        return (
            f"NVT, Langevin (BAOAB), {self.timestep / units.FS:g} fs, {self.temperature}, "
            f"friction {self.friction * units.PS:g} /ps, seed {self.seed}"
        )


class ScaledVerlet(Remembers):
    """NVT: a thermostat scales all momenta over half a step before and after one of velocity Verlet."""

    ensemble = "nvt"
    conserves_momentum = True
    needs_virial = False
    pressure = None
    parts = ("thermostat",)

    def __init__(
        self, timestep: float, thermostat: Thermostat, n_dof: int, comm: Comm, motion: Motion = FREE,
        spares_drift: bool = False,
    ) -> None:  # fmt: skip
        """``spares_drift``: momenta are scaled as seen from the centre of mass, which drifts on as it did."""
        self.timestep = timestep
        self.thermostat = thermostat
        self.motion = motion
        self._spares_drift = spares_drift
        self._n_dof, self._comm, self._half_step = n_dof, comm, 0

    @property
    def heat(self) -> float:
        return self.thermostat.heat if self._comm.rank == 0 else 0.0

    @timed("integration")
    def before_forces(self, state: State, forces: Forces, step: int) -> None:
        self._half_step = 2 * step
        self._scale(state)
        kick(state, forces.forces, self.timestep / 2)
        self.motion.drift(state, self.timestep)

    @timed("integration")
    def after_forces(self, state: State, forces: Forces) -> None:
        kick(state, forces.forces, self.timestep / 2)
        self.motion.project(state)
        self._half_step += 1
        self._scale(state)

    def _scale(self, state: State) -> None:
        if not self._spares_drift:
            kinetic = float(self._comm.all_sum(state.kinetic_energy()))
            state.momenta.mul_(self.thermostat.factor(kinetic, self._n_dof, self.timestep / 2, self._half_step))
            return
        flow = measure_flow(state, self._comm)
        thermal = flow.kinetic - flow.kinetic_of_drift
        scale = self.thermostat.factor(thermal, self._n_dof, self.timestep / 2, self._half_step)
        velocity = flow.velocity.to(state.momenta)
        state.momenta.mul_(scale).add_(state.masses[:, None] * velocity, alpha=1 - scale)

    def describe(self) -> str:
        return f"NVT, {self.thermostat.describe()}, {self.timestep / units.FS:g} fs"


class Andersen(Remembers):
    """NVT: velocity Verlet, after each step of which an atom meets the bath with probability 1 - exp(-ν t).

    Its momentum is then drawn anew; molecules of fixed bonds meet it as one, so that what is left of the noise by their
    constraints is Maxwell's. H. C. Andersen, J. Chem. Phys. 72 (1980) 2384, doi 10.1063/1.439486.
    """

    ensemble = "nvt"
    conserves_momentum = False
    needs_virial = False
    pressure = None
    summed_over_ranks = ("_heat",)

    def __init__(
        self, timestep: float, temperature: Ramp | float, rate: float, seed: int, motion: Motion = FREE
    ) -> None:
        """``rate`` ν of one atom's collisions in units of 1/time as ``timestep`` is of time."""
        self.timestep = timestep
        self.temperature = as_ramp(temperature)
        self.rate, self.seed, self.motion = rate, seed, motion
        self._heat: Tensor | float = 0.0
        self._step = 0

    @property
    def heat(self) -> float:
        return float(self._heat)

    @timed("integration")
    def before_forces(self, state: State, forces: Forces, step: int) -> None:
        self._step = step
        kick(state, forces.forces, self.timestep / 2)
        self.motion.drift(state, self.timestep)

    @timed("integration")
    def after_forces(self, state: State, forces: Forces) -> None:
        kick(state, forces.forces, self.timestep / 2)
        self.motion.project(state)
        probability = torch.tensor(-math.expm1(-self.rate * self.timestep), dtype=torch.float64)
        rare = float(torch.special.ndtri(probability))  # a normal number is below it with that probability
        meets = normals(self.seed, STREAM_COLLISIONS, self._step, self.motion.molecules(state))[:, :1] < rare
        noise = normals(self.seed, STREAM_COLLIDED, self._step, state.ids)
        width = torch.sqrt(units.KB * self.temperature(self._step) * state.masses)
        before = state.kinetic_energy()
        state.momenta.copy_(torch.where(meets & state.mobile, noise * width[:, None], state.momenta))
        self.motion.project(state)
        self._heat = self._heat + before - state.kinetic_energy()

    def describe(self) -> str:
        return (
            f"NVT, Andersen, {self.timestep / units.FS:g} fs, {self.temperature}, "
            f"{self.rate * units.PS:g} collisions /ps, seed {self.seed}"
        )
