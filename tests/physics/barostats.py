"""Barostats by name, for the proofs about them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from ase import Atoms

from mdrun.comm import Comm
from mdrun.integrate.base import Integrator
from mdrun.integrate.cell_motion import CellMotion, cell_motion, exponential, move_affinely, strain_cell
from mdrun.integrate.mtk import MTK
from mdrun.integrate.nvt import Langevin, ScaledVerlet
from mdrun.integrate.rescaling import CellRescaling
from mdrun.integrate.thermostats import Berendsen, Bussi, NoseHooverChain, Ramp
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.base import Forces
from mdrun.state import State
from tests.physics.systems import FS, PS


def motion_of(atoms: Atoms, box: str = "iso", couple: str | None = None) -> CellMotion:
    return cell_motion(box, couple, torch.from_numpy(np.array(atoms.cell.array)), atoms.pbc.tolist())


def barostat(
    name: str, atoms: Atoms, kelvin: float, pressure: float | np.ndarray, timestep: float = 2 * FS, box: str = "iso",
    couple: str | None = None, period: float = 500 * FS, compressibility: float = 10.0, n_dof: int | None = None,
    comm: Comm | None = None, seed: int = 3,
) -> Integrator:  # fmt: skip
    """``pressure`` eV/Å³, a number or (3, 3); ``compressibility`` Å³/eV; three degrees of freedom are gone."""
    comm = comm or Comm()
    motion = motion_of(atoms, box, couple)
    wanted = pressure * np.eye(3) if np.ndim(pressure) == 0 else np.asarray(pressure)
    n = 3 * len(atoms) - 3 if n_dof is None else n_dof
    ramp = Ramp(kelvin, kelvin)
    makers: dict[str, Callable[[], Integrator]] = {
        "mtk": lambda: MTK(timestep, motion, wanted, period, n, comm, NoseHooverChain(kelvin, 100 * FS), ramp),
        "mtk and bussi": lambda: MTK(timestep, motion, wanted, period, n, comm, Bussi(kelvin, 100 * FS, seed), ramp),
        "nph": lambda: MTK(timestep, motion, wanted, period, n, comm),
        "stochastic": lambda: CellRescaling(
            ScaledVerlet(timestep, Bussi(kelvin, 100 * FS, seed), n, comm),
            motion, wanted, period, compressibility, comm, ramp, seed,
        ),
        "stochastic and langevin": lambda: CellRescaling(
            Langevin(timestep, kelvin, 10 / PS, seed), motion, wanted, period, compressibility, comm, ramp, seed
        ),
        "berendsen": lambda: CellRescaling(
            ScaledVerlet(timestep, Berendsen(kelvin, 100 * FS), n, comm), motion, wanted, period, compressibility, comm
        ),
    }  # fmt: skip
    return makers[name]()


BAROSTATS = ("mtk", "mtk and bussi", "nph", "stochastic", "stochastic and langevin", "berendsen")
SAMPLING = ("mtk", "mtk and bussi", "stochastic", "stochastic and langevin")


class Deforming:
    """Velocity Verlet in a cell that is strained by force: at each step by the logarithm ``rate(step)`` (3, 3)."""

    ensemble, conserves_momentum, needs_virial, pressure, heat = "nve", True, False, None, 0.0

    def __init__(self, timestep: float, rate: Callable[[int], np.ndarray]) -> None:
        self.timestep, self.rate = timestep, rate
        self._verlet = VelocityVerlet(timestep)

    def before_forces(self, state: State, forces: Forces, step: int) -> None:
        self._verlet.before_forces(state, forces, step)
        stretch, _ = exponential(self.rate(step))
        move_affinely(state.positions, stretch, state)
        strain_cell(state, stretch)

    def after_forces(self, state: State, forces: Forces) -> None:
        self._verlet.after_forces(state, forces)

    def describe(self) -> str:
        return "strained by force"


def squeezed_and_released(n_steps: int, smallest: float) -> Callable[[int], np.ndarray]:
    """To ``smallest`` of the volume within half of the steps, and back."""
    step_of = np.log(smallest) / 3 / (n_steps // 2)
    return lambda step: np.eye(3) * (step_of if step < n_steps // 2 else -step_of)
