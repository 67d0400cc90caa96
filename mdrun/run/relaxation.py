"""Relaxation: the step loop with a search in the integrator's place, until nothing pulls any more."""

from __future__ import annotations

from mdrun import units
from mdrun.clock import timed
from mdrun.optimize.fire import Fire
from mdrun.optimize.landscape import Landscape, Point, Search
from mdrun.optimize.lbfgs import LBFGS
from mdrun.potentials.base import Forces
from mdrun.run.relax_settings import RelaxSettings
from mdrun.run.simulation import Observer, Simulation, run
from mdrun.state import State

SEARCHES = {"lbfgs": LBFGS, "fire": Fire}


class Relaxation:
    """An integrator that moves atoms at rest to the next point of a search.

    Attributes:
        point: where the atoms are, once the observer has looked.
        fmax: eV/Å, and ``stress_max``, eV/Å³: what may be left of the forces and of the cell's stress.
    """

    ensemble = "relax"
    timestep = 0.0
    conserves_momentum = True
    needs_virial = True
    pressure = None
    heat = 0.0

    def __init__(self, landscape: Landscape, search: Search, fmax: float, stress_max: float) -> None:
        self.landscape, self.search = landscape, search
        self.fmax, self.stress_max = fmax, stress_max
        self.point: Point | None = None

    @property
    def observer(self) -> Observer:
        """Looks first of all, at every step: others ask for ``point``."""
        return Observer(1, self._look)

    @timed("integration")
    def _look(self, sim: Simulation) -> None:
        self.point = self.landscape.survey(sim.state, sim.forces)

    @property
    def is_converged(self) -> bool:
        return self.point is not None and self.point.fmax <= self.fmax and self.point.stress <= self.stress_max

    @timed("integration")
    def before_forces(self, state: State, forces: Forces, step: int) -> None:
        assert self.point is not None
        self.landscape.move(state, self.search.step(state, self.point))

    def after_forces(self, state: State, forces: Forces) -> None:
        """Nothing has momentum."""

    def describe(self) -> str:
        goal = f"forces to {self.fmax:g} eV/Å"
        if self.landscape.straining is not None:
            goal += f", stress to {self.stress_max / units.GPA:g} GPa"
        return f"{self.search.describe()}, {goal}"


def make_relaxation(settings: RelaxSettings, landscape: Landscape) -> Relaxation:
    """The search that the settings ask for."""
    search = SEARCHES[settings.optimizer](landscape)
    return Relaxation(landscape, search, settings.fmax, settings.stress_max * units.GPA)


def relax(sim: Simulation, relaxation: Relaxation, most_steps: int) -> bool:
    """Walk downhill until converged; whether it is, after at most so many steps. ``start`` comes before."""
    while not (relaxation.is_converged or sim.stopping) and sim.step < most_steps:
        run(sim, 1)
    return relaxation.is_converged
