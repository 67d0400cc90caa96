"""What ``validate`` found: a line for each check as it comes where lines are grepped, a table on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from mdrun.report.console import make_console, make_table
from mdrun.run.ensemble_options import barostat_of, thermostat_of
from mdrun.run.setup import Shared
from mdrun.validate.verdict import FAIL, PASS, SKIPPED, WARN, Check, overall

COLOURS = {PASS: "green", WARN: "yellow", FAIL: "bold red", SKIPPED: "dim"}


class Verdicts:
    """Tells the user of the checks. Called on rank 0 alone."""

    def __init__(self, rank: int = 0, console: Console | None = None) -> None:
        """Made on every rank, whose number it does not need."""
        self.console = console or make_console()
        self._status: Status | None = None
        self._unshown: list[Check] = []

    def started(self, shared: Shared, notes: list[str], n_ranks: int, n_threads: int) -> None:
        settings = shared.settings
        baths = (thermostat_of(settings), barostat_of(settings))
        ensemble = ", ".join([settings.ensemble, *filter(None, baths)])
        bath = f", {float(settings.temperature):g} K" if settings.temperature is not None else ""
        self._say(f"structure: {settings.structure}: {shared.n_atoms} atoms, {shared.formula}")
        self._say(f"velocities: {shared.velocities}")
        self._say(f"model: {shared.model}, {settings.backend} on {settings.device}, in {settings.precision} precision")
        self._say(f"ensemble: {ensemble}{bath}, {settings.timestep:g} fs, skin {settings.skin:g} Å, seed {shared.seed}")
        self._say(f"decomposition: {n_ranks} rank{'s' * (n_ranks > 1)} of {n_threads} thread{'s' * (n_threads > 1)}")
        for note in notes:
            self._say(f"note: {note}")

    def _say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def checking(self, name: str) -> None:
        """On a terminal, what goes on."""
        if not self.console.is_terminal:
            return
        if self._status is None:
            self._status = self.console.status(name)
            self._status.start()
        self._status.update(f"{name} ...")

    def checked(self, check: Check) -> None:
        """Elsewhere, a line that grep finds by ``^check`` and by the verdict."""
        if self.console.is_terminal:
            self._unshown.append(check)
        else:
            self._say(f"check {check.name}: {check.verdict}{_measured(check)}: {check.meaning}")
            self.console.file.flush()

    def finished(self, checks: Sequence[Check], path: Path) -> None:
        """What it all comes to."""
        self.stop()
        tally = Counter(check.verdict for check in checks)
        counted = ", ".join(f"{n} {verdict}" for verdict, n in tally.items())
        self._say(f"verdict: {overall(checks)} ({counted}); {path} has the numbers")

    def stop(self) -> None:
        """Leave the terminal as it was, but for a table of the checks that came to their end."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._unshown:
            self.console.print(self._table(self._unshown))
            self._unshown = []

    def _table(self, checks: Sequence[Check]) -> Table:
        table = make_table(self.console)
        for column in ("check", "verdict", "measured", "limit"):
            table.add_column(column, no_wrap=True)
        table.add_column("what it means", overflow="fold")
        for c in checks:
            cells = (
                c.name,
                Text(c.verdict, style=COLOURS[c.verdict]),
                f"{_number(c.value)} {c.unit}",
                _number(c.limit),
            )
            table.add_row(*cells, Text(c.meaning))
        return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _measured(check: Check) -> str:
    if check.value is None:
        return ""
    limit = f" (limit {_number(check.limit)})" if check.limit is not None else ""
    return f", {_number(check.value)} {check.unit}{limit}"
