"""What a run writes as it goes: rows of ``thermo.csv`` and ``ranks.csv``, frames of its trajectories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mdrun.comm import Comm
from mdrun.run.appending import check_place
from mdrun.run.directory import RANKS, THERMO, writing
from mdrun.run.ranks import RanksFile
from mdrun.run.settings import Settings
from mdrun.run.simulation import Observer
from mdrun.run.thermo import ThermoFile, Thermometer
from mdrun.run.trajectories.files import check_place_of
from mdrun.run.trajectory import TrajectoryFile

Columns = Mapping[str, Callable[[], float]]


class Outputs:
    """The files of a run that grow; on ranks that don't write they are none, and their collectives are made."""

    def __init__(
        self,
        directory: Path | None,
        settings: Settings,
        template: Any,
        comm: Comm,
        thermometer: Thermometer,
        columns: Columns | None = None,
        at: Mapping[str, int] | None = None,
    ) -> None:
        """
        Args:
            directory, template: where, and the atoms as they were read; None on ranks that don't write.
            columns: more of ``thermo.csv``.
            at: cut the files back to these places, and go on; as ``positions`` told them.

        Raises:
            InputError: a file ends before its place, or the choice of atoms is wrong.
            OutputError: one can't be opened.
        """
        place = (at or {}).get
        if directory is not None and at is not None:  # all are looked at before any is cut
            looks = {THERMO: check_place, RANKS: check_place, **dict.fromkeys(settings.trajectory, check_place_of)}
            for name, look in looks.items():
                if name in at:
                    with writing(directory / name):
                        look(directory / name, at[name])
        self.frames = TrajectoryFile(
            directory, template, comm, thermometer, settings.trajectory, selection=settings.trajectory_atoms,
            precision=settings.trajectory_precision, is_wrapped=settings.wrap, at=at,
        )  # fmt: skip
        thermo, ranks = (None if directory is None else directory / name for name in (THERMO, RANKS))
        self._thermo = ThermoFile(thermo, thermometer, columns, place(THERMO))
        self._ranks = RanksFile(ranks, place(RANKS))
        self._log_every, self._frames_every = settings.log_every, settings.trajectory_every

    def observers(self) -> list[Observer]:
        return [
            Observer(self._log_every, self._thermo),
            Observer(self._frames_every, self.frames),
            Observer(self._log_every, self._ranks, needs_totals=False),
        ]

    def positions(self) -> dict[str, int]:
        """How far each file is written, and safe on the disk: bytes of text, frames of others."""
        return {THERMO: self._thermo.position(), RANKS: self._ranks.position(), **self.frames.positions()}

    def finish(self) -> None:
        """Raises:
        OutputError: a frame could not be written.
        """
        self.frames.flush()
        self.frames.close()
