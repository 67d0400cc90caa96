"""``mdrun resume``: a run goes on from its last checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mdrun.cli.job import run_job
from mdrun.cli.simulate import EXECUTION, OUTPUT, RUN, _load, _option
from mdrun.errors import InputError
from mdrun.run.directory import CHECKPOINT, CONFIG, PREVIOUS_CHECKPOINT, file_of_run, status_there
from mdrun.run.relax_settings import RelaxSettings
from mdrun.run.settings import Settings
from mdrun.run.status import way_on_from_relaxed

if TYPE_CHECKING:
    from mdrun.report.live import Reporter
    from mdrun.run.job import Job


def resume(
    directory: Path = typer.Argument(..., metavar="RUNDIR", help="The directory of a run of simulate."),
    steps: int = _option("How many in all, those made before included.", RUN, show_default="as asked for at first"),
    time: float = _option("How long in all, whatever the time step was before, ps; in place of --steps.", RUN),
    timestep: float = _option("fs; only with --allow-changes timestep.", RUN),
    temperature: str = _option("K; only with --allow-changes temperature.", RUN, metavar="K[:K]"),
    pressure: str = _option("GPa; only with --allow-changes pressure.", RUN, metavar="GPA[,GPA...]"),
    model: str = _option("Only with --allow-changes model.", RUN),
    precision: str = _option("Only with --allow-changes precision.", RUN),
    allow_changes: str = _option("Options, with commas, that may change.", RUN, metavar="NAMES"),
    max_temperature: float = _option("K at a row of thermo.csv, beyond which the run stops with exit code 3.", RUN),
    log_every: int = _option("Steps between rows of thermo.csv and ranks.csv; 0 never.", OUTPUT),
    trajectory_every: int = _option("Steps between frames; 0 never.", OUTPUT),
    checkpoint_every: str = _option("Steps, or time as in 15min, between checkpoints; 0 never.", OUTPUT),
    max_hours: float = _option("Stop in time to end within so many hours.", EXECUTION),
    device: str = _option("cpu, cuda or auto.", EXECUTION, show_default="as at first, where there is one"),
    backend: str = _option("numba, torch or auto.", EXECUTION, show_default="as at first, where there is one"),
    threads: int = _option("Per rank.", EXECUTION, show_default="as at first"),
    comm_timeout: float = _option("Longest wait for another rank, s.", EXECUTION),
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks.", rich_help_panel=EXECUTION),
) -> None:
    """Go on with the run in RUNDIR from its last checkpoint, on any number of ranks.

    On as many ranks and threads as before every number that follows is the same as if it had never stopped. Output
    files are cut back to the checkpoint. What is not given here stays as it was.
    """
    said = {name: value for name, value in locals().items() if value is not None and name not in ("directory", "debug")}
    given = {"device": "auto", "backend": "auto", "out": directory, "resume": True, **said}

    config = file_of_run(directory, CONFIG)

    def look() -> None:
        if not config.is_file():
            raise InputError(f"{directory} holds no run: it has no {CONFIG}.")
        if status_there(directory).get("command") == RelaxSettings.command:
            way_on = way_on_from_relaxed(directory) or f"mdrun relax --config {directory / CONFIG} --overwrite"
            raise InputError(f"{directory} holds a relaxation, which has no checkpoints. Go on with {way_on}.")
        if not any(file_of_run(directory, name).exists() for name in (CHECKPOINT, PREVIOUS_CHECKPOINT)):
            raise InputError(
                f"{directory} holds no checkpoint to go on from. Start its run again: mdrun simulate --config "
                f"{directory / CONFIG} --overwrite."
            )

    def load() -> tuple[Callable[..., Job], type[Reporter]]:
        job, reporter = _load()
        return partial(job, follows_file=False), reporter

    raise typer.Exit(run_job(given, config, debug, Settings, load, look))
