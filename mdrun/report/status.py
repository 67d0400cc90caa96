"""What ``mdrun status`` shows."""

from __future__ import annotations

from rich.console import Console

from mdrun.report.console import clock_time, show_named
from mdrun.run.status import RunStatus, way_on


def show_status(console: Console, status: RunStatus) -> None:
    """A line for each thing that is known."""
    show_named(console, str(status.directory), status_rows(status))


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


def _size(status: RunStatus) -> str:
    ranks, threads = status.ranks or 1, status.threads or 1
    return f"{ranks} rank{'s' if ranks > 1 else ''} of {threads} thread{'s' if threads > 1 else ''}"
