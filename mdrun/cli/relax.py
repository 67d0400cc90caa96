"""``mdrun relax``: options in, exit code out."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mdrun.cli.job import run_job
from mdrun.cli.simulate import EXECUTION, OUTPUT, _option, simulate
from mdrun.run.relax_settings import RelaxSettings

if TYPE_CHECKING:
    from mdrun.report.relaxing import RelaxReporter
    from mdrun.run.relax_job import RelaxJob

RELAXATION = "Relaxation"


def _as_simulate(name: str) -> Any:
    """The declaration of an option that ``simulate`` has, word for word."""
    return inspect.signature(simulate).parameters[name].default


def relax(
    structure: Path = _as_simulate("structure"),
    format: str = _as_simulate("format"),  # noqa: A002
    index: int = _as_simulate("index"),
    replicate: tuple[int, int, int] = _as_simulate("replicate"),
    species: str = _as_simulate("species"),
    freeze: str = _as_simulate("freeze"),
    model: str = _as_simulate("model"),
    trust_model: bool = _as_simulate("trust_model"),
    optimizer: str = _option("lbfgs or fire.", RELAXATION, show_default=RelaxSettings.optimizer),
    fmax: float = _option(
        "Largest force that an atom may be left with, eV/Å.", RELAXATION, show_default=str(RelaxSettings.fmax)
    ),
    steps: int = _option("The most, each an evaluation of the forces.", RELAXATION, show_default="1000"),
    cell: str = _option(
        "What the cell may do: none; isotropic: grow or shrink alike along its periodic axes; shape: strain at "
        "constant volume; full: any strain without rotation.",
        RELAXATION,
        show_default=RelaxSettings.cell,
    ),
    cell_mask: str = _option(
        "Components of strain that may change, as in xx,yy,xy; beside --cell full or shape.",
        RELAXATION,
        show_default="all",
    ),
    pressure: float = _option(
        "That the cell relaxes to, GPa; beside --cell full or isotropic.",
        RELAXATION,
        show_default=str(RelaxSettings.pressure),
    ),
    stress_max: float = _option(
        "Largest component of stress, less the pressure, that the cell may be left with, GPa.",
        RELAXATION,
        show_default=str(RelaxSettings.stress_max),
    ),
    out: Path = _as_simulate("out"),
    overwrite: bool = _as_simulate("overwrite"),
    log_every: int = _option(
        "Steps between rows of thermo.csv and ranks.csv; 0 never.", OUTPUT, show_default=str(RelaxSettings.log_every)
    ),
    trajectory_every: int = _option(
        "Steps between frames of the trajectory, beside the last; 0 the last alone.",
        OUTPUT,
        show_default=str(RelaxSettings.trajectory_every),
    ),
    trajectory: list[str] = _as_simulate("trajectory"),
    trajectory_atoms: str = _as_simulate("trajectory_atoms"),
    trajectory_precision: str = _as_simulate("trajectory_precision"),
    wrap: bool = _as_simulate("wrap"),
    skin: float = _as_simulate("skin"),
    device: str = _as_simulate("device"),
    backend: str = _as_simulate("backend"),
    precision: str = _as_simulate("precision"),
    strategy: str = _as_simulate("strategy"),
    compile: bool = _as_simulate("compile"),  # noqa: A002
    threads: int = _as_simulate("threads"),
    max_hours: float = _as_simulate("max_hours"),
    comm_timeout: float = _as_simulate("comm_timeout"),
    config: Path = _as_simulate("config"),
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks.", rich_help_panel=EXECUTION),
) -> None:
    """Relax the positions of STRUCTURE, alone or with its cell, to a minimum of its energy; on several ranks too."""
    given = {name: value for name, value in locals().items() if value is not None and name not in ("config", "debug")}
    raise typer.Exit(run_job(given, config, debug, RelaxSettings, _load))


def _load() -> tuple[type[RelaxJob], type[RelaxReporter]]:
    from mdrun.report.relaxing import RelaxReporter
    from mdrun.run.relax_job import RelaxJob

    return RelaxJob, RelaxReporter
