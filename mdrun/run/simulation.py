"""The step loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mdrun.clock import CLOCK, timed
from mdrun.domain import Domain
from mdrun.errors import MdrunError, SimulationError
from mdrun.exchanges import EXCHANGES
from mdrun.integrate.base import Integrator
from mdrun.integrate.verlet import FREE, Motion
from mdrun.potentials.base import Forces
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
    forces: Forces = field(init=False)


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


def run(sim: Simulation, n_steps: int) -> None:
    """Advance by ``n_steps``.

    Raises:
        SimulationError: the system became unphysical; the text names the last good step.
    """
    with naming_the_step(sim):
        for _ in range(n_steps):
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
            last = (
                f"The last good step is {sim.step - 1}."
                if sim.step > 0
                else "No step was made: the input or its options are at fault."
            )
            told: MdrunError = SimulationError(f"step {sim.step}: {error} {last}")
        elif isinstance(error, MdrunError):
            told = error
        else:
            told = MdrunError(f"step {sim.step}: {type(error).__name__}: {error}")
        told.last_good_step = max(sim.step - 1, 0)
        raise told from (error if told is not error else error.__cause__)
