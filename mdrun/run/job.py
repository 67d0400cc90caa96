"""The whole job of ``simulate``: read, set up, run, write down what happened."""

from __future__ import annotations

import platform
import time
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from mdrun import __version__
from mdrun.comm import Comm
from mdrun.errors import EXIT_INPUT, EXIT_OK
from mdrun.integrate.base import Integrator
from mdrun.integrate.constraints import Constrained
from mdrun.integrate.verlet import FREE, Motion
from mdrun.potentials.registry import compile_terms, load_model, with_absolute_paths
from mdrun.run.averages import Averages, Rows
from mdrun.run.checkpoint import CheckpointFile
from mdrun.run.devices import open_backend
from mdrun.run.directory import CHECKPOINT, CONFIG, RANKS, THERMO, TRAJECTORY, RunDirectory
from mdrun.run.ensembles import make_integrator
from mdrun.run.ranks import (
    Balance,
    ExchangeFigures,
    RankFigures,
    RanksFile,
    balance,
    exchanges_of_all,
    figures_of_all,
    peak_memory_bytes,
)
from mdrun.run.settings import Settings, write_config
from mdrun.run.setup import Shared, empty_state, make_domain, read_input, rest_torch, set_threads
from mdrun.run.simulation import Observer, Simulation, run, start
from mdrun.run.thermo import Thermo, ThermoFile, Thermometer
from mdrun.run.trajectory import TrajectoryFile
from mdrun.scope import Scope
from mdrun.state import State
from mdrun.strategies.choice import choose_strategy
from mdrun.structures import Structure


@dataclass(frozen=True)
class Outcome:
    """A run that came to its end."""

    shared: Shared
    ranks: list[RankFigures]
    balance: Balance
    first: Thermo
    last: Thermo
    n_steps: int
    loop_seconds: float
    reason: str = "all steps done"
    exit_code: int = EXIT_OK
    averages: Averages | None = None
    exchanges: tuple[ExchangeFigures, ...] = ()

    @property
    def steps_per_second(self) -> float:
        return self.n_steps / self.loop_seconds if self.loop_seconds > 0 else 0.0


class Listener(Protocol):
    """Who tells the user; called on rank 0 alone, but for the observers, which every rank gets."""

    def started(self, shared: Shared, sim: Simulation, directory: Path, n_threads: int) -> None: ...

    def observers(self, thermometer: Thermometer, log_every: int) -> list[Observer]: ...

    def finished(self, outcome: Outcome) -> None: ...


class Job:
    """One run. ``directory`` and ``sim`` are there once they exist, for whoever has to write down an early end."""

    looks_late: bool | None = None  # what the backend does by default

    def __init__(self, settings: Settings, comm: Comm, listener: Listener) -> None:
        self.settings = settings
        self.comm = comm
        self.listener = listener
        self.directory: RunDirectory | None = None
        self.sim: Simulation | None = None
        self.rows: Rows | None = None  # of what is averaged, where averages have a meaning
        self.n_atoms = 0
        self.n_threads = 0
        self._loop_began: float | None = None
        self._told_at = 0.0

    def execute(self) -> Outcome:
        """Run to the end. What is raised on one rank must end all: see ``mdrun.run.ending``.

        Raises:
            InputError: before any work, the user's input is wrong.
            SimulationError: the system became unphysical.
        """
        comm, is_writer = self.comm, self.comm.rank == 0
        self.n_threads = set_threads(self.settings.threads)
        shared, state, template = None, None, None
        if is_writer:
            shared, state, structure = self._read()
            template = structure.atoms
            self.settings = settings = shared.settings
            inputs = [Path(settings.structure)]
            self.directory = RunDirectory(settings.directory, inputs, settings.overwrite)
            kept = replace(settings, model=with_absolute_paths(shared.model))
            write_config(kept, self.directory.path / CONFIG)
        shared = comm.broadcast(shared)
        state = state or empty_state(shared)
        self.n_atoms = shared.n_atoms
        self._write_status("running")

        backend = open_backend(shared.settings, self.looks_late)
        state.move_to(backend.device)
        model = load_model(shared.model, shared.numbers, shared.precision, backend.name)
        if shared.settings.compile:
            compile_terms(model, backend.device.type)
        rest_torch(model, backend)
        domain = make_domain(shared.settings, model.cutoff, comm, backend)
        strategy = choose_strategy(shared.settings.strategy, model)
        with Scope(model, domain, shared.n_atoms, strategy) as scope:
            motion = Constrained(shared.bonds, comm) if len(shared.bonds) else FREE
            integrator = self._integrator(shared, state, motion)
            sim = Simulation(state, domain, scope, integrator, shared.n_dof, motion, shared.spares_drift)
            self.sim = sim
            thermometer = Thermometer(comm)
            sim.observers = self._observers(shared.settings, template, thermometer)
            start(sim)
            first = thermometer(sim)
            if is_writer:
                self.listener.started(shared, sim, shared.settings.directory, self.n_threads)
            outcome = self._loop(sim, shared, thermometer, first)
        if is_writer:
            self.listener.finished(outcome)
            self._write_status("stopped" if outcome.exit_code else "finished", outcome=outcome)
            assert self.directory is not None
            self.directory.release()
        return outcome

    def _read(self) -> tuple[Shared, State, Structure]:
        return read_input(self.settings)

    def _integrator(self, shared: Shared, state: State, motion: Motion) -> Integrator:
        return make_integrator(shared.settings, shared.n_dof, self.comm, state, motion, shared.spares_drift)

    def _file(self, name: str) -> Path | None:
        """In the run directory; None on ranks that don't write."""
        return self.directory.path / name if self.directory is not None else None

    def _observers(self, settings: Settings, template: Any, thermometer: Thermometer) -> list[Observer]:
        file = self._file
        frames = TrajectoryFile(file(TRAJECTORY), template, self.comm, thermometer)
        checkpoint = CheckpointFile(file(CHECKPOINT), settings, self.comm)
        ends = (settings.checkpoint_every, settings.n_steps)
        self.rows = Rows(thermometer)
        return [
            Observer(settings.log_every, ThermoFile(file(THERMO), thermometer)),
            Observer(settings.log_every, self.rows),
            Observer(settings.trajectory_every, frames),
            Observer(settings.log_every, RanksFile(file(RANKS)), needs_totals=False),
            *([Observer(every, checkpoint, needs_totals=False) for every in ends] if settings.checkpoint_every else []),
            Observer(settings.log_every, self._tell_monitors, needs_totals=False),
            *self.listener.observers(thermometer, settings.log_every),
        ]

    def _loop(self, sim: Simulation, shared: Shared, thermometer: Thermometer, first: Thermo) -> Outcome:
        self._loop_began = time.perf_counter()
        reason, exit_code = self._advance(sim, shared.settings)
        seconds = time.perf_counter() - self._loop_began
        ranks = figures_of_all(sim)
        last = thermometer(sim)
        averages = self.rows.averages() if self.rows is not None else None
        return Outcome(
            shared, ranks, balance(ranks), first, last, sim.step, seconds, reason, exit_code, averages,
            tuple(exchanges_of_all(sim)),
        )  # fmt: skip

    def _advance(self, sim: Simulation, settings: Settings) -> tuple[str, int]:
        """All steps; why it ended, and with what exit code."""
        sim.observers = [*sim.observers, _at_the_end(settings.n_steps)]
        run(sim, settings.n_steps)
        return "all steps done", EXIT_OK

    def _tell_monitors(self, sim: Simulation) -> None:
        """Keep status.json near the present, at no more than one write a second."""
        now = time.perf_counter()
        if self._loop_began is not None and now - self._told_at > 1.0:
            self._told_at = now
            self._write_status("running")

    def _write_status(
        self,
        state: str,
        exit_code: int | None = None,
        reason: str | None = None,
        last_good_step: int | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        if self.directory is None:
            return
        step = self.sim.step if self.sim is not None else 0
        step = step if last_good_step is None else last_good_step
        began = self._loop_began
        seconds = outcome.loop_seconds if outcome else (time.perf_counter() - began if began else 0.0)
        figures = outcome.ranks if outcome else []
        self.directory.write_status(
            {
                "state": state,
                "step": step,
                "exit_code": outcome.exit_code if outcome else exit_code,
                "reason": outcome.reason if outcome else reason,
                "n_atoms": self.n_atoms,
                "ranks": self.comm.size,
                "threads": self.n_threads,
                "device": self.settings.device,
                "backend": self.settings.backend,
                "loop_seconds": seconds,
                "atom_steps_per_second": self.n_atoms * step / seconds if seconds > 0 else 0.0,
                "peak_memory_bytes": sum(r.peak_memory_bytes for r in figures) or peak_memory_bytes(),
                "balance": asdict(outcome.balance) if outcome else None,
                "rank_figures": [asdict(r) for r in figures],
                "exchanges": [asdict(e) for e in outcome.exchanges] if outcome else [],
                "averages": averages_in_words(outcome.averages) if outcome and outcome.averages else None,
                "versions": versions(),
            }
        )

    def failed(self, reason: str, exit_code: int, last_good_step: int | None) -> None:
        """Write down that the run ended early, where there is a directory to write to; leave none of a run that the
        input forbade before its first step."""
        if self.directory is None:
            return
        if exit_code == EXIT_INPUT and (self.sim is None or self.sim.step == 0):
            self.directory.discard()
        else:
            self._write_status("failed", exit_code, reason, last_good_step)
        self.directory.release()


def _at_the_end(n_steps: int) -> Observer:
    """Nobody to tell, but it makes the last step's energy known: the summary shows it."""
    return Observer(max(n_steps, 1), lambda sim: None)


def averages_in_words(averages: Averages) -> dict[str, dict[str, float | None]]:
    """By the names of ``thermo.csv``'s columns."""
    return {a.name: {"mean": a.mean, "error": a.error, "n_effective": a.n_effective} for a in averages.averages}


def versions() -> dict[str, str]:
    """Of mdrun and of what it computes with."""
    packages = {name: version(name) for name in ("torch", "numpy", "numba", "ase")}
    return {"mdrun": __version__, "python": platform.python_version(), **packages}
