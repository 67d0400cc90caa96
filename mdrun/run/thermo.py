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
from mdrun.run.simulation import Simulation
from mdrun.state import temperature

COLUMNS = (
    "step", "time_ps", "temperature_K", "potential_eV", "kinetic_eV", "total_eV", "pressure_GPa", "volume_A3",
    "conserved_eV",
)  # fmt: skip


@dataclass(frozen=True)
class Thermo:
    """One moment of the whole system, the same on every rank.

    Attributes:
        pressure_GPa, volume_A3, stress: NaN where an axis is open, since no volume bounds the matter.
        pressure_GPa: with the kinetic part and the forces that hold bonds.
        stress: (3, 3) eV/Å³, static (no kinetic part), tensile positive, as ASE has it: the model's alone.
        heat_eV: what the thermostat took since the run began.
        conserved_eV: total energy and the thermostat's: constant but for the error of the time step.
    """

    step: int
    time_ps: float
    temperature_K: float
    potential_eV: float
    kinetic_eV: float
    pressure_GPa: float
    volume_A3: float
    stress: Tensor
    heat_eV: float = 0.0

    @property
    def conserved_eV(self) -> float:
        return self.total_eV + self.heat_eV

    @property
    def total_eV(self) -> float:
        return self.potential_eV + self.kinetic_eV

    def row(self) -> list[str]:
        """The numbers of ``COLUMNS``, to the last digit."""
        return [repr(getattr(self, column)) for column in COLUMNS]


def measure(sim: Simulation, comm: Comm) -> Thermo:
    """Sum over ranks; a collective.

    Pressure: P = (2 K + tr W) / 3 V, with W = Σ r_ij ⊗ f_ij of the model's and the constraints' forces.
    """
    assert sim.forces.energy is not None
    virial = sim.forces.virial
    local = torch.zeros(13, dtype=torch.float64)
    local[0] = sim.forces.energy
    local[1] = sim.state.kinetic_energy()
    local[2] = sim.integrator.heat
    local[3:12] = torch.full((9,), math.nan) if virial is None else virial.flatten()
    if sim.motion.n_constraints:
        local[12] = sim.motion.virial(sim.state, sim.forces.forces).trace()
    potential, kinetic, heat, *rest, held = comm.all_sum(local).tolist()
    drift = measure_flow(sim.state, comm).kinetic_of_drift if sim.spares_drift else 0.0
    total_virial = torch.tensor(rest, dtype=torch.float64).reshape(3, 3)
    volume = geometry.volume(sim.state.cell, sim.state.pbc)
    return Thermo(
        step=sim.step,
        time_ps=sim.step * sim.integrator.timestep / units.PS,
        temperature_K=temperature(kinetic - drift, sim.n_dof),
        potential_eV=potential,
        kinetic_eV=kinetic,
        pressure_GPa=(2 * kinetic + float(total_virial.trace()) + held) / (3 * volume) / units.GPA,
        volume_A3=volume,
        stress=-total_virial / volume,
        heat_eV=heat,
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
        self, path: Path | None, thermometer: Thermometer, more: Mapping[str, Callable[[], float]] | None = None
    ) -> None:
        """``path`` is None on ranks that don't write; ``more`` columns, with what to ask for their values."""
        self._more = more or {}
        self._file: TextIO | None = None
        self._thermometer = thermometer
        if path is not None:
            self._file = path.open("w", newline="")
            self._writer = csv.writer(self._file, lineterminator="\n")
            self._writer.writerow([*COLUMNS, *self._more])

    def __call__(self, sim: Simulation) -> None:
        thermo = self._thermometer(sim)
        if self._file is not None:
            self._writer.writerow([*thermo.row(), *(repr(value()) for value in self._more.values())])
            self._file.flush()
