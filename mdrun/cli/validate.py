"""``mdrun validate``: the options that define a run in, a verdict for each check out."""

from __future__ import annotations

import functools
import inspect
import typing
from pathlib import Path
from typing import Any

import typer

from mdrun.cli.job import run_job
from mdrun.cli.simulate import simulate
from mdrun.validate.settings import ValidateSettings
from mdrun.validate.verdict import CHECKS, Plan, names_in

# Options of simulate that say how long it runs and what it writes. All others define the run that is checked.
NOT_OURS = (
    "steps", "time", "out", "overwrite", "log_every", "trajectory_every", "trajectory", "trajectory_atoms",
    "trajectory_precision", "wrap", "checkpoint_every", "max_hours", "config", "debug",
)  # fmt: skip
DEFAULT = Plan()


def validate(
    checks: str = typer.Option(",".join(CHECKS), help="Which, by name.", rich_help_panel="Checks"),
    samples: int = typer.Option(DEFAULT.n_samples, help="Atoms whose forces are compared.", rich_help_panel="Checks"),
    short_steps: int = typer.Option(
        DEFAULT.short_steps, help="Steps of the warm-up and of the checks energy and list.", rich_help_panel="Checks"
    ),
    long_steps: int = typer.Option(DEFAULT.long_steps, help="Steps of the check ensemble.", rich_help_panel="Checks"),
    out: Path = typer.Option(
        None, help="Directory of validate.json.", show_default="STRUCTURE.validate", rich_help_panel="Output"
    ),
    config: Path = typer.Option(
        None,
        help="TOML file with options of simulate, as a run directory keeps it; flags win.",
        rich_help_panel="Execution",
    ),
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks.", rich_help_panel="Execution"),
    **given: object,
) -> None:
    """Check that a run of STRUCTURE can be trusted, before it is long: forces, stress, ranks, energy, list, ensemble.

    Ends with 0 where every check passes, with 3 where one fails, with 2 where the input is wrong.
    """
    asked = {name: value for name, value in given.items() if value is not None}
    raise typer.Exit(_validate(asked, Plan(names_in(checks), samples, short_steps, long_steps), out, config, debug))


def _with_options_of(command: typing.Callable[..., None], less: typing.Collection[str]) -> None:
    """Give ``validate`` the parameters of a command in place of ``**given``: none of them is declared twice."""
    hints = typing.get_type_hints(command) | typing.get_type_hints(validate)
    borrowed = [p for name, p in inspect.signature(command).parameters.items() if name not in less]
    own = [p for p in inspect.signature(validate).parameters.values() if p.kind is not p.VAR_KEYWORD]
    parameters = [p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]) for p in (*borrowed, *own)]
    validate.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    validate.__annotations__ = {p.name: p.annotation for p in parameters}


_with_options_of(simulate, less=NOT_OURS)


def _validate(given: dict, plan: Plan, out: Path | None, config: Path | None, debug: bool) -> int:
    def load() -> tuple[Any, Any]:
        from mdrun.report.verdicts import Verdicts
        from mdrun.validate.job import Validation

        return functools.partial(Validation, plan=plan, out=out), Verdicts

    return run_job(given, config, debug, ValidateSettings, load, heeds_signals=False)
