"""What ``mdrun status`` shows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from mdrun.report.console import clock_time, make_table, show_named
from mdrun.run.history import Ending, Start
from mdrun.run.status import RunStatus, way_on

SHOWN = 5  # starts
BRIEF = 60  # letters


def show_status(console: Console, status: RunStatus) -> None:
    """A line for each thing that is known."""
    show_named(console, str(status.directory), status_rows(status))
    if status.history:
        show_starts(console, status.history)


def show_starts(console: Console, history: Sequence[Start]) -> None:
    """The last few, oldest first: where each began, with what, what it changed, and how the one before it ended."""
    title = f"the last {SHOWN} of {len(history)} starts" if len(history) > SHOWN else "starts"
    table = make_table(console, title)
    table.add_column("at", no_wrap=True)
    table.add_column("from step", justify="right")
    for name in ("process", "the one before", "changes"):
        table.add_column(name)
    for start in history[-SHOWN:]:
        process = f"{start.host}, {_size(start)}, {start.backend} on {start.device}, mdrun {start.mdrun}"
        ending = "" if start.before is None else _ending(start.before)
        words = (start.at, str(start.step), process, ending, "; ".join(_brief(text) for text in start.changes))
        table.add_row(*(Text(word) for word in words))
    console.print(table)


def _ending(ending: Ending) -> str:
    step = "" if ending.step is None else f" at step {ending.step}"
    code = "" if ending.exit_code is None else f", exit code {ending.exit_code}"
    reason = "" if ending.reason is None else f": {_brief(ending.reason)}"
    return f"{ending.state}{step}{code}{reason}"


def _brief(text: str) -> str:
    """What fits into a column; ``status.json`` has the whole."""
    return text if len(text) <= BRIEF else text[: BRIEF - 1] + "…"


def status_rows(status: RunStatus) -> list[tuple[str, str]]:
    """A name and a line for each."""
    rows = [("state", status.state), ("step", _step(status))]
    if status.reason is not None:
        rows.append(("reason", status.reason))
    if status.exit_code is not None:
        rows.append(("exit code", str(status.exit_code)))
    if status.steps_per_second:
        atoms = f", {status.steps_per_second * status.n_atoms:.3g} atom-steps/s" if status.n_atoms else ""
        rows.append(("speed", f"{status.steps_per_second:.1f} steps/s{atoms}"))
    if status.state == "running" and status.seconds_left is not None:
        rows.append(("left", f"{clock_time(status.seconds_left)}, until {status.estimated_end}"))
    kept = status.checkpoint_step
    rows.append(("checkpoint", "none" if kept is None else f"step {kept}"))
    if status.pid is not None:
        rows.append(("process", f"{status.pid} on {status.host}, {_size(status)}"))
    if status.state in ("running", "silent"):
        rows.append(("last word", f"{clock_time(status.silent_s)} ago"))
    going_on = way_on(status)
    return rows if going_on is None else [*rows, ("to go on", going_on)]


def _step(status: RunStatus) -> str:
    time = f", {status.time_ps:.10g} ps" if status.time_ps else ""  # a relaxation takes none
    if not status.n_steps:
        return f"{status.step}{time}"
    return f"{status.step} of {status.n_steps} ({status.step / status.n_steps:.1%}){time}"


def _size(status: RunStatus | Start) -> str:
    ranks, threads = status.ranks or 1, status.threads or 1
    return f"{ranks} rank{'s' if ranks > 1 else ''} of {threads} thread{'s' if threads > 1 else ''}"
