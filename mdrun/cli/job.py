"""What every command that runs a job does first and last: settings, ranks, one message where it fails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mdrun.errors import InputError
from mdrun.launch import launch_environment
from mdrun.run.config import settings_from
from mdrun.run.settings import Settings
from mdrun.run.signals import Signals

Load = Callable[[], tuple[Callable[..., Any], Callable[[int], Any]]]  # what makes a job, and a reporter for a rank


def run_job(
    given: dict,
    config: Path | None,
    debug: bool,
    kind: type[Settings],
    load: Load,
    look: Callable[[], None] | None = None,
    heeds_signals: bool = True,
) -> int:
    """Run a command's job on this rank, to its end or to the words that say why not.

    Args:
        given: the flags that the user gave, by option.
        config: a TOML file with others.
        kind: the command's settings.
        look: called before anything else, to refuse what can be known to be wrong.
        heeds_signals: the job looks at the signals that it is given; they are heard from now on, imports included.
        load: called once the process is ready for what it imports: the job and who tells of it.

    Returns:
        The exit code.
    """
    rank = int(launch_environment(os.environ).get("RANK", "0"))
    with Signals(rank) if heeds_signals else contextlib.nullcontext(Signals(rank)) as signals:
        return _run(given, config, debug, kind, load, look, signals)


def _run(
    given: dict,
    config: Path | None,
    debug: bool,
    kind: type[Settings],
    load: Load,
    look: Callable[[], None] | None,
    signals: Signals,
) -> int:
    import gc

    # What is imported below is half a million objects that stay: looking for garbage among them takes half a second.
    gc.set_threshold(100_000, 50, 100)

    # Threads that find no work yield their core soon: spinning ones starve each other on a shared machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # Torch's arrays on large pages, where the system leaves that to the program: a tenth off a step of a million atoms.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

    if not debug:  # its C++ parts tell of a lost connection in a page, beside our line
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

    from mdrun.cache import keep_kernels
    from mdrun.launch import give_back_large_blocks

    give_back_large_blocks()
    keep_kernels()  # before any module that holds one is imported

    from mdrun.comm import Comm, open_comm
    from mdrun.report.console import forgive_glyphs
    from mdrun.run.ending import Witness, end_with_error

    job_of, reporter_of = load()
    forgive_glyphs()
    for name in ("structure", "out"):
        if name in given:
            given[name] = os.fspath(given[name])
    comm, job, reporter = Comm(), None, None
    try:
        settings = _settings_or_mistake(given, config, kind, look)
        with signals.meeting():
            comm = open_comm(getattr(settings, "comm_timeout", Settings.comm_timeout))
        if isinstance(settings, InputError):  # told once the ranks have met, by one of them
            raise settings
        reporter = reporter_of(comm.rank)
        job = job_of(settings, comm, reporter)
        job.signals = signals
        outcome = job.execute()
        comm.close()
    except (Exception, KeyboardInterrupt) as error:
        if reporter is not None:
            with contextlib.suppress(OSError):  # the disk that holds stdout may be full
                reporter.stop()
        return end_with_error(error, comm, job or Witness(), debug)  # no run directory was claimed yet
    return outcome.exit_code


def _settings_or_mistake(
    given: dict, config: Path | None, kind: type[Settings], look: Callable[[], None] | None
) -> Settings | InputError:
    try:
        if look is not None:
            look()
        return settings_from(config, given, kind)
    except InputError as mistake:
        return mistake
