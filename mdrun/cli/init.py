"""``mdrun init``: a configuration to fill in, made from what the flags' help says."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import typer

from mdrun.cli.relax import relax
from mdrun.cli.simulate import simulate
from mdrun.run.relax_settings import RelaxSettings
from mdrun.run.settings import Settings

COMMANDS: dict[str, tuple[Callable[..., None], type[Settings]]] = {
    "simulate": (simulate, Settings),
    "relax": (relax, RelaxSettings),
}
# Values to start from, for options that are not given by default.
EXAMPLES: dict[str, Any] = {
    "structure": "structure.xyz", "format": "extxyz", "index": -1, "species": "Ar,O", "freeze": "0-53",
    "constrain_bonds": "H", "model": "lj", "thermostat": "langevin", "temperature": 300.0, "thermostat_time": 100.0,
    "friction": 1.0, "barostat": "mtk", "pressure": 0.0, "barostat_time": 1000.0, "compressibility": 0.5, "box": "iso",
    "couple": "xy", "init_temperature": 300.0, "steps": 1000, "time": 1.0, "seed": 1, "out": "structure.run",
    "precision": "double", "threads": 1, "ramp_steps": 1000, "max_temperature": 2000.0, "max_hours": 24.0,
    "allow_changes": "timestep", "trajectory_atoms": "O", "trajectory_precision": "8,float64",
    "cell_mask": "xx,yy,zz",
}  # fmt: skip


def init(
    file: Path = typer.Argument(Path("mdrun.toml"), help="The file to write; one that is there is left alone."),
    command: str = typer.Option("simulate", help="Whose options: " + " or ".join(COMMANDS) + "."),
) -> None:
    """Write a configuration with every option, its help and its default, all commented out, to fill in."""
    if command not in COMMANDS:
        _refuse(f"--command {command}: it takes one of {', '.join(COMMANDS)}.")
    text = template(command)
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        _refuse(f"{file} is there already and is not written over. Name another file, or remove it.")
    except OSError as error:
        _refuse(f"{file} can't be written: {error.strerror}.")
    typer.echo(f"wrote {file}: mdrun {command} --config {file}")


def _refuse(message: str) -> None:
    typer.echo(f"mdrun: {message}", err=True)
    raise typer.Exit(2)


def template(command: str) -> str:
    """The text of a configuration, options grouped as in the command's help."""
    import tomli_w

    function, kind = COMMANDS[command]
    defaults = {f.name: f.default for f in fields(kind)}
    panels: dict[str, list[str]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in kind.options():
            continue
        flag, default = parameter.default, defaults[name]
        value = EXAMPLES[name] if default in (None, MISSING) else default
        line = tomli_w.dumps({name: list(value) if isinstance(value, tuple) else value}, multiline_strings=False)
        said = f"{flag.help} Default: {flag.show_default}." if isinstance(flag.show_default, str) else flag.help
        text = textwrap.wrap(said, 108, initial_indent="## ", subsequent_indent="## ")
        panel = flag.rich_help_panel or "Structure"
        panels.setdefault(panel, []).append("\n".join([*text, "# " + " ".join(line.split())]))
    head = f"## Options of mdrun {command}; remove the # before those to set. Flags win over this file.\n"
    return head + "".join(f"\n## ---- {panel} ----\n" + "\n".join(rows) + "\n" for panel, rows in panels.items())
