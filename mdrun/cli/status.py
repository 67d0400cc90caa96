"""``mdrun status``: how a run is doing, from its directory alone."""

from __future__ import annotations

import sys
from pathlib import Path

import typer


def status(
    directory: Path = typer.Argument(..., metavar="RUNDIR", help="Directory of a run.", show_default=False),
) -> None:
    """Show how the run in RUNDIR is doing: state, step, speed, when it will end, how to go on where it stopped."""
    from mdrun.errors import InputError
    from mdrun.report.console import forgive_glyphs, make_console
    from mdrun.report.status import show_status
    from mdrun.run.status import read_status

    forgive_glyphs()
    try:
        show_status(make_console(), read_status(directory))
    except InputError as mistake:
        print(f"mdrun: {mistake}", file=sys.stderr, flush=True)
        raise typer.Exit(mistake.exit_code) from None
