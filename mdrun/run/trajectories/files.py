"""Which writer a name gets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mdrun.run.appending import check_place
from mdrun.run.trajectories.names import TEXTS, Precision, format_of

if TYPE_CHECKING:
    from mdrun.run.trajectories.frames import Writer


def check_place_of(path: Path, at: int) -> None:
    """Whether a trajectory can be cut back to ``at``, with the file left as it is.

    Raises:
        InputError: it ends before, or is damaged.
    """
    kind = format_of(path, "--trajectory")
    if kind in TEXTS:
        check_place(path, at)
    elif at and kind == "traj":
        from mdrun.run.trajectories import ase_traj

        ase_traj.check(path, at)
    elif at:
        from mdrun.run.trajectories import h5md

        h5md.check(path, at)


def open_writer(
    path: Path, precision: Precision, is_wrapped: bool, at: int | None = None, file_format: str | None = None
) -> Writer:
    """A writer of the format that the name has: of a new file, or of one that is cut back to ``at`` and goes on.

    Raises:
        InputError: the file ends before ``at``.
    """
    kind = file_format or format_of(path, "--trajectory")
    if kind == "traj":
        from mdrun.run.trajectories.ase_traj import TrajWriter

        return TrajWriter(path, at)
    if kind == "h5md":
        from mdrun.run.trajectories.h5md import H5mdWriter

        return H5mdWriter(path, precision.dtype, at)
    from mdrun.run.trajectories.text import DumpWriter, ExtxyzWriter

    if kind == "dump":
        return DumpWriter(path, precision.decimals, at, is_wrapped)
    return ExtxyzWriter(path, precision.decimals, at)
