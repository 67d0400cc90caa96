"""The whole job of ``relax``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from mdrun import units
from mdrun.comm import Comm
from mdrun.errors import EXIT_OK, EXIT_STOPPED, InputError
from mdrun.integrate.verlet import Motion
from mdrun.optimize.landscape import Landscape, Point
from mdrun.optimize.straining import Straining, make_straining
from mdrun.run.directory import RELAXED
from mdrun.run.job import Job, Listener
from mdrun.run.relax_settings import RelaxSettings
from mdrun.run.relaxation import Relaxation, make_relaxation, relax
from mdrun.run.settings import Settings
from mdrun.run.setup import Shared
from mdrun.run.simulation import Observer, Simulation
from mdrun.run.thermo import Thermometer
from mdrun.run.trajectory import TrajectoryFile
from mdrun.state import State
from mdrun.structures import Structure


class RelaxJob(Job):
    """One relaxation."""

    looks_late = False  # a step may strain the cell farther than a list can wait, and each is decided upon

    takes_averages = False
    goes_on = False

    def __init__(self, settings: RelaxSettings, comm: Comm, listener: Listener) -> None:
        super().__init__(settings, comm, listener)
        self._straining: Straining | None = None

    def _read(self) -> tuple[Shared, State, Structure]:
        shared, state, structure = super()._read()
        assert isinstance(shared.settings, RelaxSettings)
        state.momenta = torch.zeros_like(state.momenta)
        notes = shared.notes
        if structure.has_velocities:
            notes = (*notes, "the file's velocities are left out: what is relaxed is at rest")
        if not bool(state.mobile.any()):
            raise InputError(f"every atom of {shared.settings.structure} is fixed: there is nothing to relax.")
        if len(shared.bonds):
            raise InputError(
                f"{shared.settings.structure} fixes the lengths of {len(shared.bonds)} bonds, which relax can't hold. "
                "Remove that constraint from the file."
            )
        self._straining = straining_of(shared, state)
        return replace(shared, velocities="none", notes=notes), state, structure

    def _integrator(self, shared: Shared, state: State, motion: Motion) -> Relaxation:
        assert isinstance(shared.settings, RelaxSettings)
        straining = self.comm.broadcast(self._straining)  # the same to the last bit
        self._relaxation = make_relaxation(shared.settings, Landscape(self.comm, straining))
        return self._relaxation

    def _observers(self, settings: Settings, template: Any, thermometer: Thermometer) -> list[Observer]:
        relaxation = self._relaxation
        self._template, self._thermometer = template, thermometer

        def point() -> Point:
            assert relaxation.point is not None
            return relaxation.point

        columns = {
            "enthalpy_eV": lambda: point().enthalpy,
            "fmax_eV_A": lambda: point().fmax,
            "cell_stress_GPa": lambda: point().stress / units.GPA,
        }
        return [
            *self._on_guard(settings),
            relaxation.observer,
            *self._open_outputs(settings, template, thermometer, columns).observers(),
            *self.listener.observers(thermometer, settings.log_every),
        ]

    def _advance(self, sim: Simulation, settings: Settings) -> tuple[str, int]:
        is_done = relax(sim, self._relaxation, settings.n_steps)
        every = settings.trajectory_every
        if not (every and sim.step % every == 0):
            assert self._outputs is not None
            self._outputs.frames(sim)
        directory = self.directory.path if self.directory is not None else None
        last = TrajectoryFile(directory, self._template, self.comm, self._thermometer, (RELAXED,))
        last(sim)
        last.flush()
        last.close()
        state = how_far(self._relaxation)
        self._pulse.clear()
        if is_done:
            return f"converged: {state}", EXIT_OK
        if sim.stopping and sim.step < settings.n_steps:
            return f"stopped after {sim.step} steps by {sim.stopping}: {state}", EXIT_STOPPED
        return f"not converged after {sim.step} steps: {state}", EXIT_STOPPED


def straining_of(shared: Shared, state: State) -> Straining | None:
    """What the cell may do, from all atoms on one rank; None where it stays.

    Raises:
        InputError: the structure does not allow what was asked for.
    """
    settings = shared.settings
    assert isinstance(settings, RelaxSettings)
    if settings.cell == "none":
        return None
    if shared.n_fixed:
        which = torch.nonzero(~state.mobile.all(dim=1)).flatten()[:8].tolist()
        raise InputError(
            f"--cell {settings.cell} moves every atom with the cell, and {shared.n_fixed} of {settings.structure} "
            f"{'are' if shared.n_fixed > 1 else 'is'} fixed ({', '.join(map(str, which))}"
            f"{', ...' if shared.n_fixed > len(which) else ''}), which never move. Release them, or relax positions "
            "alone (--cell none)."
        )
    if settings.pressure != 0 and not all(state.pbc):
        raise InputError(
            f"--pressure {settings.pressure:g}: no volume bounds the matter of {settings.structure}, whose cell is "
            f"open along {' '.join(a for a, p in zip('abc', state.pbc, strict=True) if not p)}."
        )
    return make_straining(state, settings.cell, settings.strains, settings.pressure * units.GPA)


def how_far(relaxation: Relaxation) -> str:
    """What pulls still, in words."""
    assert relaxation.point is not None
    words = f"largest force {relaxation.point.fmax:.3g} eV/Å"
    if relaxation.landscape.straining is not None:
        words += f", stress left to the cell {relaxation.point.stress / units.GPA:.3g} GPa"
    return words
