"""Energies, temperature and pressure of the whole system, and the file that keeps them."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor

from mdrun import cell as geometry
from mdrun import units
from mdrun.comm import Comm
from mdrun.integrate.momentum import measure_flow
from mdrun.integrate.pressure import no_virial
from mdrun.run.appending import open_text, written
from mdrun.run.directory import writing
from mdrun.run.simulation import Simulation
from mdrun.state import temperature

SCALARS = (
    "step", "time_ps", "temperature_K", "potential_eV", "kinetic_eV", "total_eV", "pressure_GPa", "volume_A3",
    "conserved_eV", "enthalpy_eV", "density_g_cm3",
)  # fmt: skip
TENSOR = tuple(f"p{name}_GPa" for name in units.VOIGT)
CELL = ("a_A", "b_A", "c_A", "alpha_deg", "beta_deg", "gamma_deg")
COLUMNS = (*SCALARS, *TENSOR, *CELL)


@dataclass(frozen=True)
class Thermo:
    """One moment of the whole system, the same on every rank.

    What a volume bounds (pressure, volume, density, stress) is NaN where an axis is open, as are the lengths and angles
    that an open axis has a part in.

    Attributes:
        pressure_tensor: the numbers of ``TENSOR``; with the kinetic part and the forces that hold bonds, positive where
            the system pushes outwards.
        cell_parameters: the numbers of ``CELL``, as ASE counts angles.
        stress: (3, 3) eV/Å³, static (no kinetic part), tensile positive, as ASE has it: the model's alone.
        heat_eV: what the thermostat took since the run began.
        target_GPa: the barostat's pressure, None without one.
        conserved_eV: total energy and the thermostat's: constant but for the error of the time step.
        enthalpy_eV: E + P V, P the barostat's pressure where there is one, else the measured.
    """

    step: int
    time_ps: float
    temperature_K: float
    potential_eV: float
    kinetic_eV: float
    volume_A3: float
    density_g_cm3: float
    pressure_tensor: tuple[float, ...]
    cell_parameters: tuple[float, ...]
    stress: Tensor
    heat_eV: float
    target_GPa: float | None

    @property
    def total_eV(self) -> float:
        return self.potential_eV + self.kinetic_eV

    @property
    def conserved_eV(self) -> float:
        return self.total_eV + self.heat_eV

    @property
    def pressure_GPa(self) -> float:
        return sum(self.pressure_tensor[:3]) / 3

    @property
    def enthalpy_eV(self) -> float:
        pressure = self.pressure_GPa if self.target_GPa is None else self.target_GPa
        return self.total_eV + pressure * units.GPA * self.volume_A3

    def numbers(self) -> list[float]:
        """Those of ``COLUMNS``."""
        return [*(getattr(self, name) for name in SCALARS), *self.pressure_tensor, *self.cell_parameters]


def notes_of_pressure(first: Thermo, n_ranks: int) -> list[str]:
    """What to tell where there would be one, and the model does not give it."""
    if not math.isfinite(first.volume_A3) or math.isfinite(first.pressure_GPa):
        return []
    return [f"{no_virial(n_ranks)}: no pressure in thermo.csv, no stress in frames"]


def measure(sim: Simulation, comm: Comm) -> Thermo:
    """Sum over ranks; a collective.

    Pressure: P = (Σ p⊗p/m + W) / V, with W = Σ r_ij ⊗ f_ij of the model's and the constraints' forces.
    """
    assert sim.forces.energy is not None
    state, virial = sim.state, sim.forces.virial
    local = torch.zeros(30, dtype=torch.float64)
    local[0] = sim.forces.energy
    local[1] = sim.integrator.heat
    local[2] = state.masses.sum()
    local[3:12] = state.kinetic_tensor().flatten()
    local[12:21] = torch.full((9,), math.nan) if virial is None else virial.flatten()
    if sim.motion.n_constraints:
        local[21:] = sim.motion.virial(state, sim.forces.forces).flatten()
    total = comm.all_sum(local)
    potential, heat, mass = total[:3].tolist()
    twice_kinetic, total_virial, held = total[3:].reshape(3, 3, 3)
    kinetic = float(twice_kinetic.trace()) / 2
    drift = measure_flow(state, comm).kinetic_of_drift if sim.spares_drift else 0.0
    volume = geometry.volume(state.cell, state.pbc)
    pressures = (twice_kinetic + total_virial + held) / volume / units.GPA
    target = sim.integrator.pressure
    return Thermo(
        step=sim.step,
        time_ps=sim.time_ps,
        temperature_K=temperature(kinetic - drift, sim.n_dof),
        potential_eV=potential,
        kinetic_eV=kinetic,
        volume_A3=volume,
        density_g_cm3=mass / volume / units.G_CM3,
        pressure_tensor=tuple(float(pressures[a, b] + pressures[b, a]) / 2 for a, b in units.VOIGT.values()),
        cell_parameters=tuple(geometry.lengths_and_angles(state.cell, state.pbc)),
        stress=-total_virial / volume,
        heat_eV=heat,
        target_GPa=None if target is None else target / units.GPA,
    )


class Thermometer:
    """Measures each step at most once, however many observers ask. All ranks ask alike."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._last: Thermo | None = None

    def __call__(self, sim: Simulation) -> Thermo:
        if self._last is None or self._last.step != sim.step:
            self._last = measure(sim, self._comm)
        return self._last


class ThermoFile:
    """``thermo.csv``, a row each time it looks."""

    def __init__(
        self, path: Path | None, thermometer: Thermometer, more: Mapping[str, Callable[[], float]] | None = None,
        at: int | None = None,
    ) -> None:  # fmt: skip
        """``path`` is None on ranks that don't write; ``more`` columns, with what to ask for their values.

        They take the place of those of the same name. ``at``: go on there, see ``open_text``.
        """
        self._more = more or {}
        self._file: TextIO | None = None
        self._thermometer = thermometer
        if path is not None:
            self._path = path
            with writing(path):
                self._file = open_text(path, at)
            self._writer = csv.writer(self._file, lineterminator="\n")
            if at is None:
                self._writer.writerow(dict.fromkeys([*COLUMNS, *self._more]))

    def position(self) -> int:
        """Bytes written, and safe; 0 on ranks that don't write."""
        return 0 if self._file is None else written(self._file)

    def __call__(self, sim: Simulation) -> None:
        thermo = self._thermometer(sim)
        if self._file is not None:
            numbers = dict(zip(COLUMNS, thermo.numbers(), strict=True))
            numbers |= {name: value() for name, value in self._more.items()}
            with writing(self._path, self._file):
                self._writer.writerow([repr(number) for number in numbers.values()])  # to the last digit
                self._file.flush()
