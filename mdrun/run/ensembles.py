"""From settings to the integrator of an ensemble."""

from __future__ import annotations

import numpy as np

from mdrun import units
from mdrun.comm import Comm
from mdrun.errors import InputError
from mdrun.integrate.base import Integrator
from mdrun.integrate.cell_motion import CellMotion, cell_motion
from mdrun.integrate.mtk import MTK
from mdrun.integrate.nvt import Andersen, Langevin, ScaledVerlet
from mdrun.integrate.rescaling import CellRescaling
from mdrun.integrate.thermostats import Berendsen, Bussi, NoseHooverChain, Ramp, Thermostat
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.run import ensemble_options as options
from mdrun.run.settings import Settings
from mdrun.state import State


def conserves_momentum(settings: Settings) -> bool:
    """Whether the ensemble keeps the total momentum of free atoms."""
    return options.thermostat_of(settings) not in options.KICKING


def make_integrator(settings: Settings, n_dof: int, comm: Comm, state: State) -> Integrator:
    """The integrator of an ensemble.

    Args:
        state: its cell and periodic axes say how a barostat may move it.

    Raises:
        InputError: the cell can't move as asked for.
    """
    timestep, barostat = settings.timestep * units.FS, options.barostat_of(settings)
    if barostat is None:
        return _at_constant_volume(settings, n_dof, comm)
    motion, pressure = motion_of_cell(settings, n_dof, state), pressure_tensor(settings)
    period = (settings.barostat_time or options.BAROSTAT_TIME) * units.FS
    temperature = _ramp(settings)
    if barostat == "mtk":
        thermostat = _scaling_thermostat(settings) if settings.ensemble == "npt" else None
        return MTK(timestep, motion, pressure, period, n_dof, comm, thermostat, temperature)
    compressibility = (settings.compressibility or options.COMPRESSIBILITY) / units.GPA
    inner = _at_constant_volume(settings, n_dof, comm)
    noise = temperature if barostat == "stochastic" else None
    return CellRescaling(inner, motion, pressure, period, compressibility, comm, noise, settings.seed or 0)


def motion_of_cell(settings: Settings, n_dof: int, state: State) -> CellMotion:
    """How the barostat may move the cell.

    Raises:
        InputError: this cell can't move so.
    """
    if n_dof == 0:
        raise InputError("a barostat needs atoms that move, and all of them are fixed.")
    motion = cell_motion(options.box_of(settings), settings.couple, state.cell, state.pbc)
    if not all(state.pbc):
        if pressure_tensor(settings).any():
            raise InputError("--pressure must be 0 where an axis is open: a pressure needs a volume.")
        if (barostat := options.barostat_of(settings)) in options.RESCALING:
            raise InputError(f"--barostat {barostat} needs three periodic axes. Use mtk.")
    return motion


def _at_constant_volume(settings: Settings, n_dof: int, comm: Comm) -> Integrator:
    timestep, seed, thermostat = settings.timestep * units.FS, settings.seed or 0, options.thermostat_of(settings)
    temperature = _ramp(settings)
    if temperature is None:
        return VelocityVerlet(timestep)
    if thermostat in options.SCALING:
        return ScaledVerlet(timestep, _scaling_thermostat(settings), n_dof, comm)
    friction = (options.FRICTION if settings.friction is None else settings.friction) / units.PS
    kind = Langevin if thermostat == "langevin" else Andersen
    return kind(timestep, temperature, friction, seed)


def _scaling_thermostat(settings: Settings) -> Thermostat:
    temperature, seed = _ramp(settings), settings.seed or 0
    assert temperature is not None
    period = (settings.thermostat_time or options.THERMOSTAT_TIME) * units.FS
    kind = options.thermostat_of(settings)
    if kind == "nose-hoover":
        return NoseHooverChain(temperature, period)
    return Bussi(temperature, period, seed) if kind == "bussi" else Berendsen(temperature, period)


def _ramp(settings: Settings) -> Ramp | None:
    if not options.has_thermostat(settings):
        return None
    assert settings.temperatures is not None
    return Ramp(*settings.temperatures, settings.n_steps)


def pressure_tensor(settings: Settings) -> np.ndarray:
    """(3, 3) eV/Å³, what the barostat holds."""
    assert settings.pressures is not None
    xx, yy, zz, yz, xz, xy = settings.pressures
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) * units.GPA


def warnings(settings: Settings, is_still: bool) -> list[str]:
    """What the user should know of the ensemble asked for; ``is_still``: every atom starts at rest."""
    notes = []
    if is_still and (thermostat := options.thermostat_of(settings)) in options.SCALING:
        notes.append(f"{thermostat} scales velocities, and all atoms start at rest: --init-temperature gives them some")
    if options.thermostat_of(settings) == "berendsen":
        notes.append("Berendsen's thermostat samples no ensemble (fluctuations are wrong): bussi does, as gently")
    if options.barostat_of(settings) == "berendsen":
        notes.append("Berendsen's barostat samples no ensemble (fluctuations are wrong): stochastic does, as gently")
    return notes
