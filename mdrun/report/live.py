"""Progress while it runs: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from mdrun import units
from mdrun.report.console import clock_time, make_console
from mdrun.report.summary import show_end, show_start, stopped_words
from mdrun.run.outcome import Outcome
from mdrun.run.setup import Shared
from mdrun.run.simulation import Observer, Simulation
from mdrun.run.thermo import Thermo, Thermometer

LINE_EVERY_S = 10.0  # between plain lines; a log file never looks dead
BAR_EVERY_S = 0.1
WORDS_WIDTH = 76  # what the line needs beside the bar


class Pace:
    """Steps a second since the loop began, and what follows from it."""

    def __init__(self, n_steps: int, timestep_fs: float, first_step: int) -> None:
        self.n_steps = n_steps
        self._first_step = first_step
        self.timestep_fs = timestep_fs
        self.began = time.perf_counter()

    def describe(self, step: int) -> str:
        n_made = step - self._first_step
        if n_made == 0:
            return "starting"
        rate = n_made / max(time.perf_counter() - self.began, 1e-9)
        left = (self.n_steps - step) / rate
        return f"{units.ns_per_day(self.timestep_fs, rate):.3g} ns/day, {rate:.0f} steps/s, {clock_time(left)} left"


class Reporter:
    """Tells the user of a run on this rank; silent on all ranks but 0, whose observers must still take part."""

    def __init__(self, rank: int, console: Console | None = None) -> None:
        self.console = console or make_console()
        self._speaks = rank == 0
        self._pace: Pace | None = None
        self._progress: Progress | None = None
        self._first: Thermo | None = None
        self._last: Thermo | None = None
        self._said_at = 0.0
        self._n_atoms = 1

    def started(self, shared: Shared, sim: Simulation, directory: Path, n_threads: int) -> None:
        self._introduce(shared, sim, directory, n_threads)
        settings = shared.settings
        self._pace = Pace(shared.n_steps, settings.timestep, sim.step)
        self._n_atoms = shared.n_atoms
        if self.console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                BarColumn(bar_width=min(max(self.console.width - WORDS_WIDTH, 4), 40)),
                _Words(),
                console=self.console,
                transient=True,
            )
            self._progress.start()
            self._progress.add_task("steps", total=shared.n_steps, words="")

    def _introduce(self, shared: Shared, sim: Simulation, directory: Path, n_threads: int) -> None:
        show_start(self.console, shared, sim, directory, n_threads)

    def observers(self, thermometer: Thermometer, log_every: int) -> list[Observer]:
        """What to look at: temperature and energy with every log row, the clock at every step."""

        def learn(sim: Simulation) -> None:
            self._last = thermometer(sim)
            self._first = self._first or self._last

        # Measuring is a collective: every rank takes part, one shows it.
        shows = [Observer(1, self._show, needs_totals=False)] if self._speaks else []
        return [Observer(log_every, learn), *shows]

    def _show(self, sim: Simulation) -> None:
        if self._pace is None:
            return
        now = time.perf_counter()
        if now - self._said_at < (LINE_EVERY_S if self._progress is None else BAR_EVERY_S):
            return
        self._said_at = now
        words = self._words(sim)
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=sim.step, words=words)
        else:
            self.console.print(f"step {sim.step} of {self._pace.n_steps}: {words}", markup=False)
            self.console.file.flush()

    def _words(self, sim: Simulation) -> str:
        """How fast it goes, and how it goes."""
        assert self._pace is not None
        return f"{self._pace.describe(sim.step)}{self._state_words()}"

    def _state_words(self) -> str:
        if self._last is None or self._first is None:
            return ""
        drift = (self._last.conserved_eV - self._first.conserved_eV) / self._n_atoms
        return f", {self._last.temperature_K:.0f} K, drift {drift:+.0e} eV/atom"

    def finished(self, outcome: Outcome) -> None:
        self.stop()
        self._conclude(outcome)

    def _conclude(self, outcome: Outcome) -> None:
        show_end(self.console, outcome)
        if outcome.is_stopped:
            self.console.file.flush()
            print(f"mdrun: {stopped_words(outcome)}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Take the bar away; the terminal is as it was."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class _Words(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(task.fields["words"], no_wrap=True, overflow="ellipsis")
