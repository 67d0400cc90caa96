"""The whole job of ``simulate``: read, set up, run, write down what happened."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from mdrun.comm import Comm
from mdrun.errors import EXIT_INPUT, EXIT_OK, EXIT_STOPPED, EXIT_UNPHYSICAL
from mdrun.integrate.base import Integrator
from mdrun.integrate.constraints import Constrained
from mdrun.integrate.verlet import FREE, Motion
from mdrun.run.averages import Rows
from mdrun.run.blowup import LastGood, Limit, share_of, write_neighborhood
from mdrun.run.changes import as_it_was, origin_of, other_baths, refuse_changes, settings_of, to_be_kept
from mdrun.run.checkpoint import Checkpoint, CheckpointFile, put_back, put_damaged_away
from mdrun.run.devices import as_before, open_backend
from mdrun.run.directory import (
    BLOWUP,
    CHECKPOINT,
    CONFIG,
    STOP,
    RunDirectory,
    amend_status,
    claims_the_word,
    config_there,
    status_there,
    writing,
)
from mdrun.run.ending import Witness
from mdrun.run.ensembles import make_integrator
from mdrun.run.history import Start, ending_of, other_means, starts_before, this_start, with_start
from mdrun.run.outcome import Outcome
from mdrun.run.outputs import Columns, Outputs
from mdrun.run.own_structure import keep_structure, own_structure
from mdrun.run.progress import Progress
from mdrun.run.pulse import Pulse
from mdrun.run.ranks import balance, exchanges_of_all, figures_of_all, notes_of_wide_halo
from mdrun.run.resume import Past, empty_then, find_past, take_up
from mdrun.run.settings import Settings, write_config
from mdrun.run.setup import Shared, empty_state, make_domain, make_model, prepare_process, read_input, set_threads
from mdrun.run.signals import Signals
from mdrun.run.simulation import Observer, Simulation, as_then, go_on, run, start
from mdrun.run.status import RUNNING
from mdrun.run.thermo import Thermo, Thermometer, notes_of_pressure
from mdrun.scope import Scope
from mdrun.state import State
from mdrun.strategies.choice import choose_strategy
from mdrun.structures import Structure


class Listener(Protocol):
    """Who tells the user; called on rank 0 alone, but for the observers, which every rank gets."""

    def started(self, shared: Shared, sim: Simulation, directory: Path, n_threads: int) -> None: ...

    def observers(self, thermometer: Thermometer, log_every: int) -> list[Observer]: ...

    def finished(self, outcome: Outcome) -> None: ...


class Job(Witness):
    """One run. ``directory`` and ``sim`` are there once they exist, for whoever has to write down an early end."""

    looks_late: bool | None = None  # what the backend does by default
    takes_averages = True
    goes_on = True  # some day, from its directory

    def __init__(self, settings: Settings, comm: Comm, listener: Listener, follows_file: bool = True) -> None:
        """
        Args:
            follows_file: where it goes on, the structure's file must be of the same structure still.
        """
        self.settings = settings
        self.comm = comm
        self.listener = listener
        self.follows_file = follows_file
        self.directory: RunDirectory | None = None
        self.sim: Simulation | None = None
        self.signals = Signals(comm.rank)  # inert; whoever runs the process puts its own here
        self._outputs: Outputs | None = None
        self.rows: Rows | None = None  # of what is averaged, where averages have a meaning
        self._atoms: Structure | None = None  # on the rank that writes
        self.progress = Progress(comm.size)
        self._inputs: Mapping[str, str] = {}  # what was in the files that the model names
        self._changes: list[str] = []  # to what a run that goes on was, in words

    def execute(self) -> Outcome:
        """Run to the end. What is raised on one rank must end all: see ``mdrun.run.ending``.

        Raises:
            InputError: before any work, the user's input is wrong.
            SimulationError: the system became unphysical.
        """
        comm, is_writer = self.comm, self.comm.rank == 0
        self.progress.n_threads = set_threads(self.settings.threads)
        shared, state, template, checkpoint, past = None, None, None, None, None
        if is_writer:
            past = self._past()
            shared, state, structure = self._read()
            template = structure.atoms
            self._atoms = structure
            if past is not None:
                shared = self._take_up(past, shared, state)
                checkpoint = past.checkpoint.without_atoms()
            self.settings = settings = shared.settings
            if self.directory is None:
                inputs, may_replace = [Path(settings.structure)], settings.overwrite or settings.resume
                self.directory = RunDirectory(settings.directory, inputs, may_replace, settings.trajectory)
            self.progress.history = history = self._history(self.directory, past)
            if past is not None:
                differing = other_means(history[-1], past.checkpoint.history)
                shared = replace(shared, notes=(*shared.notes, *differing))
            self.directory.take_over()
            if past is None:
                self._write_config()
                if self.goes_on:
                    notes = keep_structure(self.directory.path, structure, settings)
                    shared = replace(shared, notes=(*shared.notes, *notes))
        shared, checkpoint, self.progress.run_id = comm.broadcast((shared, checkpoint, uuid.uuid4().hex))
        self.settings = shared.settings
        if state is None:
            state = empty_state(shared)
            if checkpoint is not None:
                empty_then(state)
        self.progress.n_atoms, self.progress.n_steps = shared.n_atoms, shared.n_steps
        self._inputs = shared.inputs
        if checkpoint is not None:
            self.progress.first_step = self.progress.kept_step = checkpoint.step
        self._write_status(RUNNING)

        backend = open_backend(shared.settings, self.looks_late)
        state.move_to(backend.device)
        model = make_model(shared.settings, shared.numbers, backend)
        prepare_process(model, backend)
        domain = make_domain(shared.settings, model.cutoff, comm, backend)
        strategy = choose_strategy(shared.settings.strategy, model)
        with Scope(model, domain, shared.n_atoms, strategy) as scope:
            motion = Constrained(shared.bonds, comm) if len(shared.bonds) else FREE
            integrator = self._integrator(shared, state, motion)
            sim = Simulation(
                state, domain, scope, integrator, shared.n_dof, motion, shared.spares_drift, origin=shared.origin
            )
            self.sim = sim
            thermometer = Thermometer(comm)
            self._pulse = self._pulse_of(shared.settings)
            self._places = checkpoint.outputs if checkpoint is not None else None
            self.rows = Rows(thermometer) if self.takes_averages else None

            def watch() -> None:
                looks = self._observers(shared.settings, template, thermometer)
                settle = Observer(1, lambda sim: self._settle(sim.step, past), False)
                sim.observers = [settle, *looks, Observer(1, self._pulse, False)]

            first = self._begin(sim, checkpoint, thermometer, watch)
            of_ranks = [*notes_of_wide_halo(sim, shared.n_atoms), *notes_of_pressure(first, comm.size)]
            told = replace(shared, notes=(*shared.notes, *of_ranks))
            if is_writer:
                self.listener.started(told, sim, shared.settings.directory, self.progress.n_threads)
            outcome = self._loop(sim, shared, thermometer, first)
            self._settle(self.progress.first_step + 1, past)
        if is_writer:
            self.listener.finished(outcome)
            self._write_status("stopped" if outcome.is_stopped else "finished", outcome=outcome)
            assert self.directory is not None
            self.directory.release()
        return outcome

    def _settle(self, step: int, past: Past | None) -> None:
        """The run has begun once a step is done: until then it may be refused, and what it replaces comes back."""
        if self.directory is None or self.directory.has_begun or step == self.progress.first_step:
            return
        self.directory.begin()
        if past is not None and self.sim is not None and self.sim.step > self.progress.first_step:
            self._write_config()
            if past.reads_file and self._atoms is not None:
                keep_structure(self.directory.path, self._atoms, self.settings)
        if past is not None and past.is_fallback:
            put_damaged_away(self.directory.path / CHECKPOINT)

    def _write_config(self) -> None:
        """At once for a new run; for one that goes on once it has: killed before, it is to be the run that it was."""
        assert self.directory is not None
        with writing(self.directory.path / CONFIG):
            write_config(to_be_kept(self.settings), self.directory.path / CONFIG)

    def _past(self) -> Past | None:
        """The run to go on with, where that was asked for and there is one; its directory is this run's from now on."""
        past = find_past(self.settings) if self.settings.resume else None
        if past is not None:
            self.directory = past.directory
            then = settings_of(past.checkpoint.settings)
            path = past.directory.path
            settings = as_it_was(self.settings, past.checkpoint, config_there(path))
            settings, elsewhere = as_before(settings, then.device, then.backend)
            self.settings = settings
            changes = refuse_changes(settings, past.checkpoint, settings.allowed_changes)
            self._changes = [*past.notes[: past.is_fallback], *changes]
            self._atoms, others = own_structure(path, settings, past.checkpoint, self.follows_file)
            notes = (*past.notes, *elsewhere, *changes, *others)
            past = replace(past, notes=notes, reads_file=self._atoms is None)
        return past

    def _read(self) -> tuple[Shared, State, Structure]:
        return read_input(self.settings, self._atoms)

    def _take_up(self, past: Past, shared: Shared, state: State) -> Shared:
        """The atoms as the checkpoint has them; what to tell of it goes to the notes."""
        assert self._atoms is not None
        settings = shared.settings
        changes = take_up(state, past.checkpoint, self._atoms.path, settings.allowed_changes, settings.trajectory)
        self._changes += changes
        origin = origin_of(settings, past.checkpoint)
        return replace(shared, velocities="from the checkpoint", notes=(*past.notes, *changes), origin=origin)

    def _history(self, directory: RunDirectory, past: Past | None) -> tuple[Start, ...]:
        """All starts of the run in a directory, this one included."""
        then = status_there(directory.path) if self.settings.resume else {}
        step, kept = (past.checkpoint.step, past.checkpoint.history) if past is not None else (0, ())
        before = ending_of(then, RUNNING) if then or past is not None else None
        start = this_start(self.settings, step, self.comm.size, self.progress.n_threads, self._changes, before)
        return with_start(starts_before(then, kept), start)

    def _begin(
        self, sim: Simulation, checkpoint: Checkpoint | None, thermometer: Thermometer, watch: Callable[[], None]
    ) -> Thermo:
        """The first step's forces, or those of the step that the run goes on from; what is measured there.

        Args:
            watch: gives the simulation its observers.
        """
        if checkpoint is None:
            watch()
            start(sim)
            return thermometer(sim)
        assert self.rows is not None
        sim.step = checkpoint.step
        go_on(sim, checkpoint.arrays)
        put_back(checkpoint, sim, self.rows, with_baths=not other_baths(self.settings, checkpoint))
        first = thermometer(sim)
        watch()  # cuts the outputs back: until here the run may be refused
        as_then(sim)
        return first

    def _integrator(self, shared: Shared, state: State, motion: Motion) -> Integrator:
        return make_integrator(shared.settings, shared.n_dof, self.comm, state, motion, shared.spares_drift)

    def _file(self, name: str) -> Path | None:
        """In the run directory; None on ranks that don't write."""
        return self.directory.path / name if self.directory is not None else None

    def _pulse_of(self, settings: Settings) -> Pulse:
        seconds = settings.checkpoint_cadence.seconds
        stop, tell, has_changed = self._file(STOP), self._tell_monitors, bool(self._changes)
        # What changed is in no checkpoint before: killed, the run would be refused as not the one that was stopped.
        return Pulse(
            self.comm, self.signals, stop, settings.max_hours, self._keep, seconds, tell, owes_checkpoint=has_changed
        )

    def _open_outputs(
        self, settings: Settings, template: Any, thermometer: Thermometer, columns: Columns | None = None
    ) -> Outputs:
        directory = None if self.directory is None else self.directory.path
        self._outputs = Outputs(directory, settings, template, self.comm, thermometer, columns, self._places)
        return self._outputs

    def _observers(self, settings: Settings, template: Any, thermometer: Thermometer) -> list[Observer]:
        outputs = self._open_outputs(settings, template, thermometer)
        assert self.rows is not None
        path = self._file(CHECKPOINT)
        kept, history = to_be_kept(settings), self.progress.history
        self._checkpoint = CheckpointFile(path, kept, self._inputs, self.comm, outputs.positions, self.rows, history)
        often = settings.checkpoint_cadence
        ends = () if often.is_never else (often.steps, self.progress.n_steps)
        most = settings.max_temperature
        return [
            *self._on_guard(settings),
            *outputs.observers(),
            Observer(settings.log_every, self.rows),
            *([Observer(settings.log_every, Limit(most, thermometer, self.comm))] if most is not None else []),
            *(Observer(every, self._keep, needs_totals=False) for every in ends),
            *self.listener.observers(thermometer, settings.log_every),
        ]

    def _loop(self, sim: Simulation, shared: Shared, thermometer: Thermometer, first: Thermo) -> Outcome:
        self.progress.loop_began = time.perf_counter()
        reason, exit_code = self._advance(sim, shared.settings)
        assert self._outputs is not None
        self._outputs.finish()
        seconds = time.perf_counter() - self.progress.loop_began
        n_steps = sim.step - self.progress.first_step
        ranks, exchanges = figures_of_all(sim), tuple(exchanges_of_all(sim, n_steps))
        if sim.forces.energy is None:  # asked for by nobody; within the step it would have been another loop's
            sim.forces = sim.model(sim.domain, totals=True)
        last = thermometer(sim)
        averages = self.rows.averages() if self.rows is not None else None
        return Outcome(
            shared, ranks, balance(ranks), first, last, n_steps, seconds, reason, exit_code, averages, exchanges
        )

    def _advance(self, sim: Simulation, settings: Settings) -> tuple[str, int]:
        """All steps; why it ended, and with what exit code."""
        run(sim, self.progress.n_steps - sim.step)
        stopped = sim.stopping if sim.step < self.progress.n_steps else None
        if stopped:
            self._keep(sim)
        self._pulse.clear()
        return (stopped, EXIT_STOPPED) if stopped else ("all steps done", EXIT_OK)

    def _keep(self, sim: Simulation) -> None:
        """Write a checkpoint; called by all ranks."""
        self._checkpoint(sim)
        self.progress.kept_step = sim.step or None  # the input itself is none
        self.progress.told_at = 0.0
        self._tell_monitors(sim)

    def _on_guard(self, settings: Settings) -> list[Observer]:
        """Look whether the directory is there before anything is written to it."""

        def look(sim: Simulation) -> None:
            if self.directory is not None:
                self.directory.check_presence()

        return [Observer(every, look, needs_totals=False) for every in {settings.log_every, settings.trajectory_every}]

    def _tell_monitors(self, sim: Simulation) -> None:
        """Keep status.json near the present."""
        if self.progress.is_due():
            self._write_status(RUNNING)

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
        step = max(self.sim.step if self.sim is not None else 0, self.progress.first_step)
        step = step if last_good_step is None else last_good_step
        time_ps, ending = self._time_at(step), (reason, exit_code)
        self.directory.write_status(self.progress.status(self.settings, state, step, time_ps, ending, outcome))

    def _time_at(self, step: int) -> float:
        return 0.0 if self.sim is None else self.sim.origin.time_at(step, self.sim.integrator.timestep)

    def failed(self, reason: str, exit_code: int, last_good_step: int | None) -> None:
        """Write down that the run ended early, where there is a directory to write to; leave none of a run that the
        input forbade before its first step."""
        if self._outputs is not None:
            self._outputs.frames.close()
        if self.directory is None:
            return
        # A start that failed by itself is written down, but in no other run's place.
        leaves_word = exit_code != EXIT_INPUT and (exit_code == EXIT_UNPHYSICAL or not self.directory.holds_former)
        if not self.directory.has_begun and not leaves_word:
            self.directory.discard()
        else:
            self.directory.begin()
            self._write_status("failed", exit_code, reason, last_good_step)
        self.directory.release()

    def evidence(self, error: BaseException) -> str:
        around = getattr(error, "neighborhood", None)
        if around is None or self.sim is None:
            return ""
        path = self.settings.directory / BLOWUP
        is_first = write_neighborhood(around, self.sim, str(error), path)
        return f" {path} has what is around{'' if is_first else ' others that another rank found'}."

    def keep_share(self, error: BaseException) -> None:
        if self.sim is None or self.sim.step == 0:  # the input is what there is
            return
        share = share_of(self.sim, getattr(error, "state_is_whole", False))
        if share is not None:
            LastGood(self.settings.directory, self.progress.run_id).keep(share, self.comm.rank)

    def join_shares(self, n_ranks: int, last_good_step: int | None) -> str:
        if self._atoms is None or self.sim is None or self.sim.step == 0:
            return ""
        good = self.sim.step if last_good_step is None else last_good_step
        return LastGood(self.settings.directory, self.progress.run_id).join(
            n_ranks, self._atoms.atoms, self._atoms.mobile, good
        )

    def speaks(self) -> bool:
        return claims_the_word(self.settings.directory, self.progress.run_id)

    def stand_in(self, reason: str, exit_code: int, last_good_step: int | None) -> None:
        changes = {"state": "failed", "exit_code": exit_code, "reason": reason}
        if last_good_step is not None:
            changes["step"] = last_good_step
        amend_status(self.settings.directory, self.progress.run_id, changes)
