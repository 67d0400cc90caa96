"""Constant pressure by rescaling the cell a little at each step, around whatever integrator moves the atoms."""

from __future__ import annotations

import math

import numpy as np

from mdrun import cell as geometry
from mdrun import units
from mdrun.clock import timed
from mdrun.comm import Comm
from mdrun.integrate.base import Integrator
from mdrun.integrate.cell_motion import CellMotion, exponential, move_affinely, strain_cell
from mdrun.integrate.kept import Remembers
from mdrun.integrate.pressure import Tensors, in_gpa, measure_tensors, virial_that_follows
from mdrun.integrate.thermostats import Ramp
from mdrun.philox import STREAM_CELL
from mdrun.potentials.base import Forces
from mdrun.state import State


class CellRescaling(Remembers):
    """NPT: first-order barostats; each step strains the cell by dε = -β / 3 τ (P - P_int) dt and a noise.

    With a temperature it is stochastic cell rescaling: the noise is sqrt(2 β k T dt / 3 V τ) for each allowed
    strain, and momenta are scaled inversely to positions. For one volume this is M. Bernetti and G. Bussi, J. Chem.
    Phys. 153 (2020) 114107, doi 10.1063/5.0020514, eq. 5; for several strains V. Del Tatto et al., Appl. Sci. 12
    (2022) 1139, doi 10.3390/app12031139. In logarithmic strain, and noise taken at the step's start, the volume's own
    drift terms cancel.

    Without, it is weak coupling, which samples no ensemble: H. J. C. Berendsen et al., J. Chem. Phys. 81 (1984) 3684,
    doi 10.1063/1.448118; momenta stay.
    """

    ensemble = "npt"
    needs_virial = True
    same_on_ranks = ("_pushes",)
    summed_over_ranks = ("_virial", "_gift")
    parts = ("_inner",)

    def __init__(
        self, inner: Integrator, motion: CellMotion, pressure: np.ndarray, period: float, compressibility: float,
        comm: Comm, temperature: Ramp | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        """
        Args:
            pressure: (3, 3) eV/Å³ to hold.
            period: τ in the timestep's unit.
            compressibility: β, Å³/eV; only β / τ matters.
            temperature: of the noise, None for weak coupling.
        """
        self.timestep = inner.timestep
        self.conserves_momentum = inner.conserves_momentum
        self._inner, self._motion, self._wanted = inner, motion, pressure
        self._period, self._pace = period, compressibility / period
        self._comm, self._temperature, self._seed = comm, temperature, seed
        self._tensors: Tensors | None = None  # at the end of the last step
        self._strain = np.zeros((3, 3))
        self._virial = np.zeros((3, 3))  # this rank's, at that moment
        self._gift = 0.0  # to this rank's atoms, eV

    @property
    def _pushes(self) -> np.ndarray:
        """(2, 3, 3) the tensors at the end of the last step, NaN before the first."""
        t = self._tensors
        return np.full((2, 3, 3), math.nan) if t is None else np.stack([t.kinetic, t.virial])

    @_pushes.setter
    def _pushes(self, values: np.ndarray) -> None:
        self._tensors = Tensors(*values)

    @property
    def pressure(self) -> float:
        return float(np.trace(self._wanted)) / 3

    @property
    def heat(self) -> float:
        return self._inner.heat - self._gift

    @timed("integration")
    def before_forces(self, state: State, forces: Forces, step: int) -> None:
        tensors = self._tensors or self._learn(state, forces)
        self._inner.before_forces(state, forces, step)
        self._strain = self._next_strain(tensors, geometry.volume(state.cell, state.pbc), step)
        stretch, _ = exponential(self._strain)
        move_affinely(state.positions, stretch, state)
        if self._temperature is not None:
            before = state.kinetic_energy()
            slowing, _ = exponential(-self._strain)
            move_affinely(state.momenta, slowing, state)
            self._gift += float(state.kinetic_energy() - before)
        strain_cell(state, stretch)

    @timed("integration")
    def after_forces(self, state: State, forces: Forces) -> None:
        self._inner.after_forces(state, forces)
        before = self._virial
        self._learn(state, forces)
        # What the strain did to the potential energy: between its ends, as good as the step is small.
        self._gift -= float(((before + self._virial) / 2 * self._strain).sum())

    def _learn(self, state: State, forces: Forces) -> Tensors:
        """What the end of a step leaves to the next one."""
        self._tensors = measure_tensors(state, forces, self._comm)
        self._virial = virial_that_follows(state, forces).numpy()
        return self._tensors

    def _next_strain(self, tensors: Tensors, volume: float, step: int) -> np.ndarray:
        pace = self._pace * self.timestep / 3
        strain = -pace * (self._wanted - tensors.force_on_strain / volume)
        if self._temperature is not None:
            noise = np.random.default_rng([self._seed, STREAM_CELL, step]).standard_normal(len(self._motion))
            width = math.sqrt(2 * pace * units.KB * self._temperature(step) / volume)
            return self._motion.project(strain) + self._motion.combine(width * noise)
        return self._motion.project(strain)

    def describe(self) -> str:
        kind = "Berendsen's barostat" if self._temperature is None else "stochastic cell rescaling"
        _, _, bath = self._inner.describe().partition(", ")
        return (
            f"NPT, {kind} ({self._motion.name}), {in_gpa(self._wanted)}, time constant {self._period / units.FS:g} fs "
            f"at {self._pace * self._period * units.GPA:g} /GPa, {bath}"
        )
