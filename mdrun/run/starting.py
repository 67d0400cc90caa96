"""What the atoms start with: velocities that constraints allow, and the degrees of freedom that temperature counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from mdrun.comm import Comm
from mdrun.errors import InputError
from mdrun.integrate.bonds import Bonds
from mdrun.integrate.constraints import independent_bonds, projected
from mdrun.integrate.momentum import measure_flow, measure_rotation, rotation_axes, stop
from mdrun.integrate.velocities import DegreesOfFreedom, draw_momenta, is_at_rest
from mdrun.run import ensemble_options as options
from mdrun.run.ensembles import conserves_momentum, refuse_bonds_under_pressure
from mdrun.run.settings import Settings
from mdrun.state import State
from mdrun.structures import Structure

SLIGHT = 1e-6  # of the kinetic energy: less than this is not told


@dataclass(frozen=True)
class Start:
    """Attributes:
    velocities: where they come from, in words.
    spares_drift: the centre of mass moves, and a thermostat is to leave that alone.
    """

    bonds: Bonds
    freedom: DegreesOfFreedom
    velocities: str
    spares_drift: bool
    notes: tuple[str, ...]


def give_velocities(state: State, structure: Structure, settings: Settings) -> Start:
    """Fill in the momenta of all atoms, on one rank, in the order of their ids.

    Raises:
        InputError: constraints that contradict each other or what is asked for.
    """
    every = settings.zero_momentum_every
    is_free = bool(state.mobile.all())
    if every and not is_free:
        raise InputError(
            "--zero-momentum-every does not go with fixed atoms: they take up momentum, so that the rest has none of "
            "its own to keep. Leave the option out."
        )
    refuse_bonds_under_pressure(settings, len(structure.bonds))
    bonds = independent_bonds(structure.bonds, state)
    comm, notes = Comm(), []
    axes = rotation_axes(state.cell, state.pbc) if every else np.empty((0, 3))
    n_rotations = measure_rotation(state, axes, measure_flow(state, comm), comm).n_free
    keeps_momentum = conserves_momentum(settings)
    # Noise brings momentum back at once: nothing is left of it only where it is taken off at every step.
    keeps_stopped = every > 0 and (keeps_momentum or every == 1) and state.n_total > 1

    def allowed(momenta: torch.Tensor) -> torch.Tensor:
        state.momenta = projected(momenta, state, bonds)
        if every and state.n_total > 1:
            stop(state, axes, comm)
        return state.momenta

    def freedom(momentum_is_zero: bool) -> DegreesOfFreedom:
        return DegreesOfFreedom(state.mobile, momentum_is_zero, n_rotations if keeps_stopped else 0, len(bonds))

    if settings.init_temperature is not None:
        assert settings.seed is not None
        free = is_free and state.n_total > 1
        n_dof = freedom(free and (keeps_momentum or keeps_stopped)).count
        state.momenta = draw_momenta(
            state.masses, state.mobile, settings.init_temperature, settings.seed, keeps_momentum, allowed, n_dof
        )
        source = f"drawn at {settings.init_temperature:g} K, seed {settings.seed}"
        if structure.has_velocities:
            source += ", in place of the file's"
    elif structure.has_velocities:
        given = torch.from_numpy(np.array(structure.atoms.get_momenta(), dtype=np.float64)) * state.mobile
        state.momenta = given
        before = float(state.kinetic_energy())
        state.momenta = allowed(given)
        lost = before - float(state.kinetic_energy())
        source = "from the file"
        if lost > SLIGHT * before:
            what = " and ".join((["bonds of fixed length"] if len(bonds) else []) + (["the whole"] if every else []))
            notes.append(f"{lost:.4g} of {before:.4g} eV of the file's kinetic energy were motion of {what}: taken off")
    else:
        source = "none in the file: at rest (--init-temperature draws them)"
    at_rest = state.n_total > 1 and (every > 0 or is_at_rest(state.momenta))
    found = freedom(at_rest and (keeps_momentum or keeps_stopped))
    drifts = keeps_momentum and is_free and state.n_total > 1 and not at_rest
    spares_drift = drifts and options.barostat_of(settings) is None and options.has_thermostat(settings)
    if spares_drift:
        found = freedom(True)
        notes.append(f"the whole drifts ({_drift(state)}), which the thermostat spares and no temperature counts")
    elif drifts and options.has_barostat(settings):
        notes.append(f"the whole drifts ({_drift(state)}), which counts as heat: --zero-momentum-every stops it")
    return Start(bonds, found, source, spares_drift, tuple(notes))


def _drift(state: State) -> str:
    flow = measure_flow(state, Comm())
    return f"{flow.kinetic_of_drift:.4g} of {flow.kinetic:.4g} eV"
