"""The command line. Nothing heavy is imported before a command needs it: ``--help`` answers at once."""

from __future__ import annotations

import contextlib
import os
import sys

import typer

from mdrun import __version__
from mdrun.cli.convert import convert
from mdrun.cli.init import init
from mdrun.cli.models import models
from mdrun.cli.relax import relax
from mdrun.cli.resume import resume
from mdrun.cli.simulate import simulate
from mdrun.cli.status import status
from mdrun.cli.validate import validate
from mdrun.launch import launch_environment

app = typer.Typer(
    name="mdrun",
    help="Molecular dynamics from the shell, the same trajectory on any number of ranks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(simulate)
app.command()(resume)
app.command()(relax)
app.command()(validate)
app.command()(models)
app.command()(status)
app.command()(init)
app.command()(convert)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"mdrun {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    """Molecular dynamics from the shell, the same trajectory on any number of ranks."""


def program() -> None:
    """The whole life of a process: the entry point of ``mdrun`` and ``python -m mdrun``.

    The interpreter is not taken down: with torch and Numba in it that takes a second, and on several ranks the
    communication library's threads may outlive it and abort it, which a launcher would take for a failure of the run.
    What is registered with ``atexit`` is not called.
    """
    try:
        main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if code and not isinstance(leaving.code, int):  # words, as Python itself takes them
            print(leaving.code, file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):  # nobody reads any more, or the disk is full
                stream.flush()
        os._exit(code)


def main() -> None:
    """Run the command that the arguments name, and leave by ``SystemExit``."""
    if launch_environment(os.environ).get("RANK", "0") == "0":
        sys.exit(app())
    try:
        sys.exit(app(standalone_mode=False))
    except Exception as mistake:  # in the options, where every rank meets the same one: rank 0 tells of it
        if not hasattr(mistake, "exit_code"):
            raise
        sys.exit(mistake.exit_code)
