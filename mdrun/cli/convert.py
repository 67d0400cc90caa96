"""``mdrun convert``: a trajectory in another format."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import typer


def convert(
    source: Path = typer.Argument(
        help="Trajectory: .extxyz or .xyz, .traj (ASE), .h5md, .dump or .lammpstrj (LAMMPS).", show_default=False
    ),
    target: Path = typer.Argument(help="File to write, its format by the extension, as above.", show_default=False),
    frames: str = typer.Option(
        None, help="Which: FIRST:STOP:STEP or one number, from 0, negative from the end, as in ASE.", show_default="all"
    ),
    atoms: str = typer.Option(
        None, metavar="SELECTION", help="Atoms to keep, as simulate's --freeze takes them.", show_default="all"
    ),
    precision: str = typer.Option(
        None, help="Decimals of text, or float32 or float64 of .h5md.", show_default="8, float64"
    ),
    wrap: bool = typer.Option(False, "--wrap/--no-wrap", help="Positions brought into the cell, or left as they are."),
    species: str = typer.Option(None, help="Elements of a dump's types, where it doesn't name them, as in Ar,O."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the file that is there."),
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks."),
) -> None:
    """Write the trajectory SOURCE to TARGET in another format, frame by frame.

    A last frame that is cut off ends it with code 2; the frames before it are in TARGET.
    """
    import os

    from mdrun.launch import launch_environment

    if launch_environment(os.environ).get("RANK", "0") != "0":
        return  # one process does it

    from mdrun.comm import Comm
    from mdrun.report.console import forgive_glyphs
    from mdrun.run.ending import Witness, end_with_error
    from mdrun.run.trajectories.converting import Conversion, convert
    from mdrun.run.trajectories.names import parse_frames

    forgive_glyphs()
    progress = _Progress()
    try:
        kinds = species.split(",") if species else None
        which = parse_frames(frames)
        done = convert(Conversion(source, target, which, atoms, precision, wrap, kinds, overwrite), progress.tell)
    except (Exception, KeyboardInterrupt) as error:
        progress.clear()
        raise typer.Exit(end_with_error(error, Comm(), Witness(), debug)) from None
    progress.clear()
    if done.lost:
        print(f"{target.suffix} has no place for: {', '.join(done.lost)}", file=sys.stderr)
    print(f"{done.n_frames} frame{'s' * (done.n_frames != 1)} of {done.n_atoms} atoms: {target}")


class _Progress:
    """A line on stderr where that is a terminal, a few times a second."""

    def __init__(self) -> None:
        from mdrun.report.console import is_plain

        self._is_shown = not is_plain(sys.stderr)
        self._told_at = time.monotonic()

    def tell(self, n_frames: int) -> None:
        now = time.monotonic()
        if self._is_shown and now - self._told_at > 0.2:
            self._told_at = now
            print(f"\r{n_frames} frames", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._is_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
