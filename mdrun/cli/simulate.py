"""``mdrun simulate``: options in, exit code out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mdrun.cli.job import run_job
from mdrun.run import ensemble_options as options
from mdrun.run.settings import Settings

if TYPE_CHECKING:
    from mdrun.report.live import Reporter
    from mdrun.run.job import Job

RUN, OUTPUT, SYSTEM = "Dynamics", "Output", "Structure and model"
EXECUTION = "Execution"


def _option(help_text: str, panel: str, *names: str, **more):
    return typer.Option(None, *names, help=help_text, rich_help_panel=panel, **more)


def simulate(
    structure: Path = typer.Argument(None, help="A structure, in a format that ASE reads.", show_default=False),
    format: str = _option("ASE's name of the file's format, where its name does not tell.", SYSTEM),  # noqa: A002
    index: int = _option("Frame of a file with several; the last by default.", SYSTEM),
    replicate: tuple[int, int, int] = _option(
        "Repeat the cell along each axis.", SYSTEM, metavar="X Y Z", show_default="1 1 1"
    ),
    species: str = _option("Elements of a LAMMPS data file's types, as in Ar,O.", SYSTEM),
    model: str = _option(
        "lj, lj:epsilon=E,sigma=S,cutoff=C,shift=true, lj:FILE.toml, morse, buck, yukawa, zbl, dsf, table:FILE, "
        "eam:FILE, emt, sw, sw:FILE, tersoff, tersoff:FILE, mace:FILE, sevennet:NAME, chgnet, metatomic:FILE, "
        "ase:MODULE:CLASS, FILE.py:FUNCTION; sums with ' + '. See mdrun models. Chosen by the species where they allow "
        "it.",
        SYSTEM,
    ),
    trust_model: bool = _option(
        "Load the model's file though it is a pickle, which may run any code: for files whose maker you trust.",
        SYSTEM,
        "--trust-model",
    ),
    freeze: str = _option(
        "Atoms that never move: 0-53,60 (numbers from 0, copies of --replicate included), Cu, 'z<5 and x>=10' (Å, "
        "positions as in the file); commas join.",
        SYSTEM,
        metavar="SELECTION",
    ),
    constrain_bonds: str = _option(
        "Bonds that keep the length they start with: H (all of hydrogen's), or pairs of elements as in O-H,N-H; beside "
        "those that the file fixes.",
        SYSTEM,
        metavar="KINDS",
    ),
    ensemble: str = _option("nve, nvt, npt or nph.", RUN, show_default=Settings.ensemble),
    thermostat: str = _option(
        "langevin, nose-hoover, bussi, andersen or berendsen.",
        RUN,
        show_default="langevin; nose-hoover or bussi under pressure",
    ),
    temperature: str = _option("The thermostat's, K; 300:600 goes from one to the other.", RUN, metavar="K[:K]"),
    ramp_steps: int = _option(
        "How many steps a --temperature that goes from one to another takes.", RUN, show_default="all"
    ),
    thermostat_time: float = _option(
        "Time constant of nose-hoover, bussi and berendsen, fs.", RUN, show_default=str(options.THERMOSTAT_TIME)
    ),
    friction: float = _option(
        "Langevin's; Andersen's collisions of an atom; 1/ps.", RUN, show_default=str(options.FRICTION)
    ),
    barostat: str = _option("mtk, stochastic (cell rescaling) or berendsen.", RUN, show_default="mtk"),
    pressure: str = _option(
        "The barostat's, GPa; three or six numbers, xx,yy,zz,yz,xz,xy, where they differ.", RUN, metavar="GPA[,GPA...]"
    ),
    barostat_time: float = _option("Its time constant, fs.", RUN, show_default=str(options.BAROSTAT_TIME)),
    compressibility: float = _option(
        "Of the material, 1/GPa, for stochastic and berendsen: sets their pace.",
        RUN,
        show_default=str(options.COMPRESSIBILITY),
    ),
    box: str = _option(
        "How the cell moves: iso (all axes alike), the axes that move as in xyz or z (each by itself), or triclinic.",
        RUN,
        show_default="iso",
    ),
    couple: str = _option("Two axes of --box that keep their ratio: xy, xz or yz.", RUN),
    init_temperature: float = _option(
        "Draw Maxwell-Boltzmann velocities at this temperature, K; else the file's are used.", RUN
    ),
    zero_momentum_every: int = _option(
        "Steps between stops of the drift of the whole, and of its rotation where the structure is open; 0 never.",
        RUN,
        show_default=str(Settings.zero_momentum_every),
    ),
    max_temperature: float = _option(
        "Stop with exit code 3 where the temperature is beyond this at a row of thermo.csv, K.", RUN
    ),
    timestep: float = _option("fs.", RUN, show_default=str(Settings.timestep)),
    steps: int = _option("How many; 0 evaluates once.", RUN, show_default="1000"),
    time: float = _option("How long, ps; in place of --steps.", RUN),
    seed: int = _option("Of all random numbers; a fresh one is drawn, shown and kept if not given.", RUN),
    out: Path = _option("Run directory.", OUTPUT, show_default="STRUCTURE.run"),
    overwrite: bool = _option("Replace the run that is in the directory.", OUTPUT, "--overwrite"),
    resume: bool = _option(
        "Go on with the run that is in the directory from its last checkpoint; start where there is none.",
        OUTPUT,
        "--resume",
    ),
    allow_changes: str = _option(
        "Options, with commas, that a run that goes on may change, as in timestep,temperature.", OUTPUT, metavar="NAMES"
    ),
    log_every: int = _option(
        "Steps between rows of thermo.csv and ranks.csv; 0 never.",
        OUTPUT,
        show_default=str(Settings.log_every),
    ),
    trajectory_every: int = _option(
        "Steps between frames of the trajectory; 0 never.",
        OUTPUT,
        show_default=str(Settings.trajectory_every),
    ),
    trajectory: list[str] = _option(
        "File in the run directory, its format by the extension: .extxyz or .xyz, .traj (ASE), .h5md, .dump or "
        ".lammpstrj (LAMMPS). Again for another beside it.",
        OUTPUT,
        metavar="NAME",
        show_default=Settings.trajectory[0],
    ),
    trajectory_atoms: str = _option(
        "Atoms that frames hold, as --freeze takes them.", OUTPUT, metavar="SELECTION", show_default="all"
    ),
    trajectory_precision: str = _option(
        "Decimals of text, float32 or float64 of .h5md, or both with a comma between.", OUTPUT, show_default="8,float64"
    ),
    wrap: bool = _option(
        "Positions in frames brought into the cell, or left where the atoms went.",
        OUTPUT,
        "--wrap/--no-wrap",
        show_default="no-wrap",
    ),
    checkpoint_every: str = _option(
        "Between checkpoints, beside one at the end: steps as in 10000, or time as in 90s, 15min or 2h; 0 never.",
        OUTPUT,
        show_default=str(Settings.checkpoint_every),
    ),
    max_hours: float = _option(
        "Stop at 99 % of this time from the start on, with a checkpoint and exit code 75, as after SIGTERM.", EXECUTION
    ),
    skin: float = _option("Reach of halo and list beyond the cutoff, Å.", EXECUTION, show_default=str(Settings.skin)),
    check_every: int = _option(
        "Steps between looks at whether the list still holds.",
        EXECUTION,
        show_default=str(Settings.check_every),
    ),
    device: str = _option("cpu, cuda, or auto: a GPU where there is one.", EXECUTION, show_default=Settings.device),
    backend: str = _option(
        "numba (CPUs), torch (any device), or auto: torch on a GPU, numba elsewhere.",
        EXECUTION,
        show_default=Settings.backend,
    ),
    precision: str = _option(
        "double; mixed: terms of the forces in single, sums in double; single: both in single. Positions and momenta "
        "are double always.",
        EXECUTION,
        show_default="double; mixed on a GPU",
    ),
    strategy: str = _option(
        "How a machine-learned model's layers see atoms of other ranks: halo, partition or replicate (each rank holds "
        "all atoms), or auto.",
        EXECUTION,
        show_default=Settings.strategy,
    ),
    compile: bool = _option(  # noqa: A002
        "Compile machine-learned models that allow it, on graphs filled up to few shapes.", EXECUTION, "--compile"
    ),
    threads: int = _option(
        "Per rank.", EXECUTION, show_default="the cores of this process shared among its machine's ranks"
    ),
    comm_timeout: float = _option(
        "Longest wait for another rank, s.", EXECUTION, show_default=str(Settings.comm_timeout)
    ),
    config: Path = _option("TOML file with any of these options; flags win.", EXECUTION),
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks.", rich_help_panel=EXECUTION),
) -> None:
    """Run molecular dynamics of STRUCTURE; on several ranks under torchrun or srun."""
    given = {name: value for name, value in locals().items() if value is not None and name not in ("config", "debug")}
    raise typer.Exit(run_job(given, config, debug, Settings, _load))


def _load() -> tuple[type[Job], type[Reporter]]:
    from mdrun.report.live import Reporter
    from mdrun.run.job import Job

    return Job, Reporter
