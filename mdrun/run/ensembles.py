"""From settings to the integrator of an ensemble."""

from __future__ import annotations

from mdrun import units
from mdrun.comm import Comm
from mdrun.integrate.base import Integrator
from mdrun.integrate.nvt import Andersen, Langevin, ScaledVerlet
from mdrun.integrate.thermostats import Berendsen, Bussi, NoseHooverChain, Ramp, Thermostat
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.run.settings import Settings

KICKS_ATOMS = ("langevin", "andersen")  # thermostats that give single atoms momentum


def conserves_momentum(settings: Settings) -> bool:
    """Whether the ensemble keeps the total momentum of free atoms."""
    return settings.ensemble == "nve" or settings.thermostat not in KICKS_ATOMS


def make_integrator(settings: Settings, n_dof: int, comm: Comm) -> Integrator:
    """The integrator of an ensemble."""
    timestep, seed = settings.timestep * units.FS, settings.seed or 0
    if settings.ensemble == "nve":
        return VelocityVerlet(timestep)
    assert settings.temperatures is not None
    temperature = Ramp(*settings.temperatures, settings.n_steps)
    if settings.thermostat == "langevin":
        return Langevin(timestep, temperature, settings.friction / units.PS, seed)
    if settings.thermostat == "andersen":
        return Andersen(timestep, temperature, settings.friction / units.PS, seed)
    period = settings.thermostat_time * units.FS
    thermostat: Thermostat
    if settings.thermostat == "nose-hoover":
        thermostat = NoseHooverChain(temperature, period)
    elif settings.thermostat == "bussi":
        thermostat = Bussi(temperature, period, seed)
    else:
        thermostat = Berendsen(temperature, period)
    return ScaledVerlet(timestep, thermostat, n_dof, comm)


def warnings(settings: Settings) -> list[str]:
    """What the user should know of the ensemble asked for."""
    if settings.ensemble == "nvt" and settings.thermostat == "berendsen":
        return ["Berendsen's thermostat samples no ensemble (fluctuations are wrong): bussi does, as gently"]
    return []
