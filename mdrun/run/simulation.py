"""The step loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from mdrun.clock import CLOCK, timed
from mdrun.domain import Domain
from mdrun.errors import MdrunError, SimulationError, out_of_memory
from mdrun.exchanges import EXCHANGES
from mdrun.integrate.base import Integrator
from mdrun.integrate.verlet import FREE, Motion
from mdrun.neighborhood import Neighborhood
from mdrun.potentials.base import Forces
from mdrun.run.origin import FROM_ZERO, Origin
from mdrun.scope import Scope
from mdrun.state import State


@dataclass
class Observer:
    """Something that looks at the simulation every so many steps, step 0 included; 0 means never.

    Attributes:
        look: called on every rank, so it may hold collectives.
        needs_totals: whether it reads energy or virial.
    """

    every: int
    look: Callable[[Simulation], None]
    needs_totals: bool = True

    def is_due(self, step: int) -> bool:
        return self.every > 0 and step % self.every == 0


@dataclass
class Simulation:
    """What moves, and what moves it.

    Attributes:
        n_dof: degrees of freedom that the temperature counts.
        motion: free, or with constraints, whose forces count in the pressure.
        spares_drift: the temperature is that of the motion about the centre of mass.
        forces: at the present positions, with energy and virial on the steps that an observer needs them.
        origin: what time the steps are at.
        counted_from: step from which on rebuilds, traffic and time are counted.
        stopping: why the loop ends before its last step, once an observer knows: on every rank at the same step.
    """

    state: State
    domain: Domain
    model: Scope
    integrator: Integrator
    n_dof: int
    motion: Motion = FREE
    spares_drift: bool = False
    observers: Sequence[Observer] = ()
    step: int = 0
    origin: Origin = FROM_ZERO
    counted_from: int = 0
    stopping: str | None = None
    forces: Forces = field(init=False)

    @property
    def time_ps(self) -> float:
        return self.origin.time_at(self.step, self.integrator.timestep)


def start(sim: Simulation) -> None:
    """Forces of step 0, and the first look; from then on time and traffic count.

    Raises:
        SimulationError: the input itself is unphysical.
    """
    with naming_the_step(sim):
        sim.domain.follow(sim.state)
        sim.model.warm_up(sim.domain)
        sim.forces = sim.model(sim.domain, totals=True)
        CLOCK.reset()
        EXCHANGES.reset()
        sim.domain.comm.bytes_sent = 0
        observe(sim)


def go_on(sim: Simulation, kept: Mapping[str, np.ndarray]) -> None:
    """Halo, list and forces, with totals, of a step that was made before, without a look: who looked then has it.

    Args:
        kept: ``cell``, and what ``Domain.restore`` takes. Step and observers are those of the run that goes on.

    Raises:
        SimulationError: as ``start`` does.
    """
    with naming_the_step(sim):
        sim.state.cell = torch.from_numpy(kept["cell"].copy())  # integrators were made with the one at the start
        sim.domain.restore(sim.state, kept)
        sim.model.warm_up(sim.domain)
        sim.forces = sim.model(sim.domain, totals=True)
        CLOCK.reset()
        sim.domain.comm.bytes_sent = 0


def as_then(sim: Simulation) -> None:
    """The forces from the loop that was run at this step: with and without totals they may differ in the last bit.

    From then on exchanges count, those of this process alone.
    """
    if not needs_totals(sim):
        with naming_the_step(sim):
            sim.forces = sim.model(sim.domain, totals=False)
    EXCHANGES.reset()


def run(sim: Simulation, n_steps: int) -> None:
    """Advance by ``n_steps``, or until an observer says why not.

    Raises:
        SimulationError: the system became unphysical; the text names the last good step.
    """
    with naming_the_step(sim):
        for _ in range(n_steps):
            if sim.stopping:
                break
            sim.integrator.before_forces(sim.state, sim.forces, sim.step)  # half kick, drift
            look_back(sim)
            sim.step += 1
            sim.domain.follow(sim.state)  # refresh the halo, or rebuild where atoms have moved too far
            sim.forces = sim.model(sim.domain, totals=needs_totals(sim))  # inside the activated context
            sim.integrator.after_forces(sim.state, sim.forces)  # half kick
            observe(sim)
        look_back(sim)


def look_back(sim: Simulation) -> None:
    """What a device found in the step that ends, read now that it has work again; nothing where it was read at once."""
    if sim.domain.backend.looks_late:
        sim.model.look_back()
        sim.domain.look_back(sim.state)


def needs_totals(sim: Simulation) -> bool:
    """Whether this step's energy or virial is needed, by whoever looks on or to move on."""
    return sim.integrator.needs_virial or is_watched(sim)


def is_watched(sim: Simulation) -> bool:
    """Whether somebody will read this step's energy or virial."""
    return any(observer.needs_totals and observer.is_due(sim.step) for observer in sim.observers)


@timed("output")
def observe(sim: Simulation) -> None:
    if is_watched(sim):
        look_back(sim)
    for observer in sim.observers:
        if observer.is_due(sim.step):
            observer.look(sim)


@contextmanager
def naming_the_step(sim: Simulation) -> Iterator[None]:
    """Add the step to whatever goes wrong inside."""
    try:
        yield
    except (Exception, SystemExit) as error:  # a model that would leave must not leave the other ranks waiting
        if isinstance(error, SimulationError):
            if error.state_is_whole:
                last = ""
            elif sim.step > 0:
                last = f" The last good step is {sim.step - 1}."
            else:
                last = " No step was made: the input or its options are at fault."
            around = _neighborhood(error, sim)
            told: MdrunError = SimulationError(f"step {sim.step}: {error}{last}", around)
            told.state_is_whole = error.state_is_whole
        elif isinstance(error, MdrunError):
            told = error
        else:
            what = out_of_memory(error) or f"{type(error).__name__}: {error}"
            told = MdrunError(f"step {sim.step}: {what}")
        # Where all ranks stopped together, the step itself is whole, though not as wished.
        told.last_good_step = sim.step if told.state_is_whole else max(sim.step - 1, 0)
        raise told from (error if told is not error else error.__cause__)


def _neighborhood(error: SimulationError, sim: Simulation) -> Neighborhood | None:
    """What lies around the atoms that an error is about, with the last forces where those of the step are not known."""
    around = error.neighborhood
    if not hasattr(sim, "forces"):  # those are the first, be it of a run that goes on
        return around
    if around is None and error.ids is not None:  # on the move to the next step: rows are as at this one's forces
        owned = sim.domain.ids[: sim.domain.n_owned].cpu().numpy()
        rows = np.flatnonzero(np.isin(owned, error.ids))
        return sim.domain.around(torch.from_numpy(rows), sim.forces.forces) if len(rows) else None
    if around is not None and np.isnan(around.forces).all():
        return around.with_old_forces(sim.forces.forces)
    return around
