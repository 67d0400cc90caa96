"""From settings to the integrator of an ensemble."""

from __future__ import annotations

import numpy as np

from mdrun import units
from mdrun.comm import Comm
from mdrun.errors import InputError
from mdrun.integrate.base import Integrator
from mdrun.integrate.cell_motion import CellMotion, cell_motion
from mdrun.integrate.momentum import Stopping, rotation_axes
from mdrun.integrate.mtk import MTK
from mdrun.integrate.nvt import Andersen, Langevin, ScaledVerlet
from mdrun.integrate.rescaling import CellRescaling
from mdrun.integrate.thermostats import Berendsen, Bussi, NoseHooverChain, Ramp, Thermostat
from mdrun.integrate.verlet import FREE, Motion, VelocityVerlet
from mdrun.run import ensemble_options as options
from mdrun.run.settings import Settings
from mdrun.state import State


def conserves_momentum(settings: Settings) -> bool:
    """Whether the ensemble keeps the total momentum of free atoms."""
    return options.thermostat_of(settings) not in options.KICKING


def refuse_bonds_under_pressure(settings: Settings, n_bonds: int) -> None:
    """
    Raises:
        InputError: bonds are to keep their length while a barostat would strain them with the cell.
    """
    if n_bonds and options.has_barostat(settings):
        raise InputError(
            f"--ensemble {settings.ensemble} does not go with bonds of fixed length, of which there are {n_bonds}: the "
            "barostats strain them with the cell. Use --ensemble nvt or nve, or free the bonds."
        )


def make_integrator(
    settings: Settings, n_dof: int, comm: Comm, state: State, motion: Motion = FREE, spares_drift: bool = False
) -> Integrator:
    """The integrator of an ensemble.

    Args:
        state: its cell and periodic axes say how a barostat may move it, and what of its rotation is conserved.
        motion: free, or with bonds of fixed length.
        spares_drift: the thermostat leaves the motion of the centre of mass alone.

    Raises:
        InputError: the cell can't move as asked for.
    """
    timestep, barostat = settings.timestep * units.FS, options.barostat_of(settings)
    if barostat is None:
        return _at_constant_volume(settings, n_dof, comm, state, motion, spares_drift)
    strains, pressure = motion_of_cell(settings, n_dof, state), pressure_tensor(settings)
    period = (settings.barostat_time or options.BAROSTAT_TIME) * units.FS
    temperature = _ramp(settings)
    if barostat == "mtk":
        thermostat = _scaling_thermostat(settings) if settings.ensemble == "npt" else None
        mtk = MTK(timestep, strains, pressure, period, n_dof, comm, thermostat, temperature)
        return _stopping(mtk, settings, comm, state)
    compressibility = (settings.compressibility or options.COMPRESSIBILITY) / units.GPA
    inner = _at_constant_volume(settings, n_dof, comm, state)
    noise = temperature if barostat == "stochastic" else None
    return CellRescaling(inner, strains, pressure, period, compressibility, comm, noise, settings.seed or 0)


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


def _stopping(inner: Integrator, settings: Settings, comm: Comm, state: State) -> Integrator:
    """With the motion of the whole taken off at intervals, where that was asked for and there is more than one atom."""
    every = settings.zero_momentum_every
    if every == 0 or state.n_total == 1:
        return inner
    return Stopping(inner, every, rotation_axes(state.cell, state.pbc), comm)


def _at_constant_volume(
    settings: Settings, n_dof: int, comm: Comm, state: State, motion: Motion = FREE, spares_drift: bool = False
) -> Integrator:
    timestep, seed, thermostat = settings.timestep * units.FS, settings.seed or 0, options.thermostat_of(settings)
    temperature = _ramp(settings)
    integrator: Integrator
    if temperature is None:
        integrator = VelocityVerlet(timestep, motion)
    elif thermostat in options.SCALING:
        integrator = ScaledVerlet(timestep, _scaling_thermostat(settings), n_dof, comm, motion, spares_drift)
    else:
        friction = (options.FRICTION if settings.friction is None else settings.friction) / units.PS
        kind = Langevin if thermostat == "langevin" else Andersen
        integrator = kind(timestep, temperature, friction, seed, motion)
    return _stopping(integrator, settings, comm, state)


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
    return Ramp(*settings.temperatures, settings.ramp_steps or settings.n_steps)


def pressure_tensor(settings: Settings) -> np.ndarray:
    """(3, 3) eV/Å³, what the barostat holds."""
    assert settings.pressures is not None
    tensor = np.empty((3, 3))
    for value, (a, b) in zip(settings.pressures, units.VOIGT.values(), strict=True):
        tensor[a, b] = tensor[b, a] = value * units.GPA
    return tensor


def warnings(settings: Settings, state: State) -> list[str]:
    """What the user should know of the ensemble asked for, and of how these atoms, all of them, go with it."""
    notes = []
    n_fixed = int((~state.mobile).any(dim=1).sum())
    if not bool(state.mobile.any()):
        notes.append("every atom is fixed: nothing will move")
    elif n_fixed and options.has_barostat(settings):
        notes.append(
            f"{n_fixed} fixed atoms do not follow the cell: what the barostat holds leaves out the forces on them, "
            "while the pressure that is shown counts them"
        )
    is_still = bool(state.mobile.any()) and not bool(state.momenta.any())
    if is_still and (thermostat := options.thermostat_of(settings)) in options.SCALING:
        notes.append(f"{thermostat} scales velocities, and all atoms start at rest: --init-temperature gives them some")
    if options.thermostat_of(settings) == "berendsen":
        notes.append("Berendsen's thermostat samples no ensemble (fluctuations are wrong): bussi does, as gently")
    if options.barostat_of(settings) == "berendsen":
        notes.append("Berendsen's barostat samples no ensemble (fluctuations are wrong): stochastic does, as gently")
    return notes
