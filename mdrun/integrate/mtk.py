"""Constant pressure by an extended system: the barostat of Martyna, Tobias and Klein."""

from __future__ import annotations

import math

import numpy as np

from mdrun import cell as geometry
from mdrun import units
from mdrun.clock import timed
from mdrun.comm import Comm
from mdrun.integrate.cell_motion import CellMotion, exponential, move_affinely, strain_cell
from mdrun.integrate.kept import Remembers
from mdrun.integrate.pressure import Tensors, in_gpa, measure_tensors
from mdrun.integrate.thermostats import NoseHooverChain, Ramp, Thermostat
from mdrun.potentials.base import Forces
from mdrun.state import State

BATH_MASS = 9.0  # of the first thermostat of the cell's own chain, in k T τ²
AT_REST = 300.0  # K: sets the cell's inertia where neither a bath nor the atoms have a temperature


class MTK(Remembers):
    """NPT and NPH: velocity Verlet in a cell whose strain rate ε̇ (3, 3), symmetric, has an inertia W.

    W dε̇/dt = V (P_int - P) + 2 K / n_dof, allowed strains only; atoms follow the cell and are slowed by it, but
    for fixed components, and thermostats act on atoms and on the cell. W = (n_dof + 3) / 3 k T τ².
    G. J. Martyna, D. J. Tobias, M. L. Klein, J. Chem. Phys. 101 (1994) 4177, doi 10.1063/1.467468; the order of the
    operators, second order in the step, is G. J. Martyna et al., Mol. Phys. 87 (1996) 1117, doi
    10.1080/00268979600100761.

    The pressure that is held is the true (Cauchy) stress of the cell as it stands. Where its components differ no
    enthalpy exists; the work against them is then summed along the way.
    """

    conserves_momentum = True
    needs_virial = True
    same_on_ranks = ("rate", "_inertia", "_work")
    parts = ("_thermostat", "_cell_bath")

    def __init__(
        self, timestep: float, motion: CellMotion, pressure: np.ndarray, period: float, n_dof: int, comm: Comm,
        thermostat: Thermostat | None = None, temperature: Ramp | None = None,
    ) -> None:  # fmt: skip
        """NPH without a thermostat, else both it and ``temperature`` are given.

        Args:
            pressure: (3, 3) eV/Å³ to hold.
            period: τ in the timestep's unit.
        """
        self.timestep = timestep
        self.rate = np.zeros((3, 3))
        self._motion, self._wanted, self._period = motion, pressure, period
        self._n_dof, self._comm = n_dof, comm
        self._thermostat, self._temperature = thermostat, temperature
        self._cell_bath = NoseHooverChain(temperature, period, first_mass=BATH_MASS) if temperature else None
        self._inertia = 0.0 if temperature is None else self._inertia_at(temperature.mean)
        self._work = 0.0  # done against the pressure
        self._half_step = 0

    @property
    def ensemble(self) -> str:
        return "nph" if self._thermostat is None else "npt"

    @property
    def pressure(self) -> float:
        return float(np.trace(self._wanted)) / 3

    @property
    def heat(self) -> float:
        if self._comm.rank != 0:
            return 0.0
        baths = [bath.heat for bath in (self._thermostat, self._cell_bath) if bath is not None]
        return sum(baths) + self._cell_energy + self._work

    @property
    def _cell_energy(self) -> float:
        return self._inertia * float((self.rate**2).sum()) / 2

    def _inertia_at(self, kelvin: float) -> float:
        return (self._n_dof + 3) / 3 * units.KB * (kelvin or AT_REST) * self._period**2

    @timed("integration")
    def before_forces(self, state: State, forces: Forces, step: int) -> None:
        self._half_step = 2 * step
        tensors = measure_tensors(state, forces, self._comm)
        if self._inertia == 0:
            self._inertia = self._inertia_at(2 * tensors.kinetic_energy / (self._n_dof * units.KB))
        self._cool_cell()
        self._cool_atoms(state, tensors)
        self._push_cell(state, tensors)
        self._kick(state, forces)
        self._drift(state)

    @timed("integration")
    def after_forces(self, state: State, forces: Forces) -> None:
        self._kick(state, forces)
        tensors = measure_tensors(state, forces, self._comm)
        self._half_step += 1
        self._push_cell(state, tensors)
        self._cool_atoms(state, tensors)
        self._cool_cell()

    def _cool_cell(self) -> None:
        if self._cell_bath is not None:
            self.rate *= self._cell_bath.factor(
                self._cell_energy, len(self._motion), self.timestep / 2, self._half_step
            )

    def _cool_atoms(self, state: State, tensors: Tensors) -> None:
        if self._thermostat is not None:
            scale = self._thermostat.factor(tensors.kinetic_energy, self._n_dof, self.timestep / 2, self._half_step)
            state.momenta.mul_(scale)
            tensors.kinetic *= scale**2

    def _push_cell(self, state: State, tensors: Tensors) -> None:
        volume = self._volume(state)
        force = tensors.force_on_strain - volume * self._wanted
        force += 2 * tensors.kinetic_energy / self._n_dof * np.eye(3)
        self.rate += self.timestep / 2 / self._inertia * self._motion.project(force)

    def _volume(self, state: State) -> float:
        """Å³; 0 where an axis is open: the pressure held is zero then, and needs none."""
        volume = geometry.volume(state.cell, state.pbc)
        return 0.0 if math.isnan(volume) else volume

    def _kick(self, state: State, forces: Forces) -> None:
        time = self.timestep / 2
        slowing = self.rate + np.trace(self.rate) / self._n_dof * np.eye(3)
        stretch, gain = exponential(-time * slowing)
        move_affinely(state.momenta, stretch, state, forces.forces, time * gain)

    def _drift(self, state: State) -> None:
        time = self.timestep
        stretch, gain = exponential(time * self.rate)
        move_affinely(state.positions, stretch, state, state.momenta, time * gain, 1 / state.masses)
        before = self._volume(state)
        strain_cell(state, stretch)
        after = self._volume(state)
        deviation = self._wanted - self.pressure * np.eye(3)
        middle = math.sqrt(before * after)
        self._work += self.pressure * (after - before) + middle * time * float((deviation * self.rate).sum())

    def describe(self) -> str:
        bath = f", {self._thermostat.describe()}" if self._thermostat is not None else ""
        return (
            f"{self.ensemble.upper()}, Martyna-Tobias-Klein ({self._motion.name}), {self.timestep / units.FS:g} fs, "
            f"{in_gpa(self._wanted)}, period {self._period / units.FS:g} fs{bath}"
        )
