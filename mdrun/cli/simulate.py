"""``mdrun simulate``: options in, exit code out."""

from __future__ import annotations

from pathlib import Path

import typer

from mdrun.errors import InputError
from mdrun.run import ensemble_options as options
from mdrun.run.settings import Settings, make_settings, read_config

RUN, OUTPUT, SYSTEM = "Dynamics", "Output", "Structure and model"
EXECUTION = "Execution"


def _option(help_text: str, panel: str, *names: str, **more):
    return typer.Option(None, *names, help=help_text, rich_help_panel=panel, **more)


def simulate(
    structure: Path = typer.Argument(None, help="Any file that ASE reads.", show_default=False),
    format: str = _option("ASE's name of the file's format, where its name does not tell.", SYSTEM),  # noqa: A002
    index: int = _option("Frame of a file with several; the last by default.", SYSTEM),
    replicate: tuple[int, int, int] = _option(
        "Repeat the cell along each axis.", SYSTEM, metavar="X Y Z", show_default="1 1 1"
    ),
    species: str = _option("Elements of a LAMMPS data file's types, as in Ar,O.", SYSTEM),
    model: str = _option(
        "lj, lj:epsilon=E,sigma=S,cutoff=C,shift=true, lj:FILE.toml, morse, buck, yukawa, zbl, dsf, table:FILE, "
        "eam:FILE, emt, sw, sw:FILE, tersoff, tersoff:FILE, FILE.py:FUNCTION; sums with ' + '. "
        "Chosen by the species where they allow it.",
        SYSTEM,
    ),
    ensemble: str = _option("nve, nvt, npt or nph.", RUN, show_default=Settings.ensemble),
    thermostat: str = _option(
        "langevin, nose-hoover, bussi, andersen or berendsen.",
        RUN,
        show_default="langevin; nose-hoover or bussi under pressure",
    ),
    temperature: str = _option("The thermostat's, K; 300:600 goes from one to the other.", RUN, metavar="K[:K]"),
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
    timestep: float = _option("fs.", RUN, show_default=str(Settings.timestep)),
    steps: int = _option("How many; 0 evaluates once.", RUN, show_default="1000"),
    time: float = _option("How long, ps; in place of --steps.", RUN),
    seed: int = _option("Of all random numbers; a fresh one is drawn, shown and kept if not given.", RUN),
    out: Path = _option("Run directory.", OUTPUT, show_default="STRUCTURE.run"),
    overwrite: bool = _option("Replace the run that is in the directory.", OUTPUT, "--overwrite"),
    log_every: int = _option(
        "Steps between rows of thermo.csv and ranks.csv; 0 never.",
        OUTPUT,
        show_default=str(Settings.log_every),
    ),
    trajectory_every: int = _option(
        "Steps between frames of trajectory.extxyz; 0 never.",
        OUTPUT,
        show_default=str(Settings.trajectory_every),
    ),
    checkpoint_every: int = _option(
        "Steps between checkpoints, beside one at the end; 0 never.",
        OUTPUT,
        show_default=str(Settings.checkpoint_every),
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
    raise typer.Exit(_run(given, config, debug))


def _run(given: dict, config: Path | None, debug: bool) -> int:
    import gc
    import os

    # What is imported below is half a million objects that stay: looking for garbage among them takes half a second.
    gc.set_threshold(100_000, 50, 100)

    # Threads that find no work yield their core soon: spinning ones starve each other on a shared machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # Torch's arrays on large pages, where the system leaves that to the program: a tenth off a step of a million atoms.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

    from mdrun.cache import keep_kernels
    from mdrun.launch import give_back_large_blocks

    give_back_large_blocks()
    keep_kernels()  # before any module that holds one is imported

    from mdrun.comm import Comm, open_comm
    from mdrun.report.console import forgive_glyphs
    from mdrun.report.live import Reporter
    from mdrun.run.ending import end_with_error
    from mdrun.run.job import Job

    forgive_glyphs()
    for name in ("structure", "out"):
        if name in given:
            given[name] = os.fspath(given[name])
    comm, job, reporter = Comm(), None, None
    try:
        settings = _settings_or_mistake(given, config)
        comm = open_comm(getattr(settings, "comm_timeout", Settings.comm_timeout))
        if isinstance(settings, InputError):  # told once the ranks have met, by one of them
            raise settings
        reporter = Reporter(comm.rank)
        job = Job(settings, comm, reporter)
        job.execute()
        comm.close()
    except (Exception, KeyboardInterrupt) as error:
        if reporter is not None:
            reporter.stop()
        return end_with_error(error, comm, job.failed if job is not None else _nothing_to_write, debug)
    return 0


def _settings_or_mistake(given: dict, config: Path | None) -> Settings | InputError:
    try:
        return make_settings(read_config(config) if config else {}, given)
    except InputError as mistake:
        return mistake


def _nothing_to_write(reason: str, exit_code: int, last_good_step: int | None) -> None:
    """No run directory was claimed yet."""
