"""A few times a second the ranks agree, at the end of a step, on what the clock and the world outside ask for.

No rank acts upon a signal, a file or a clock of its own: whatever it knows goes into one small collective, at steps
that all ranks know alike, and what comes out is the same everywhere.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch

from mdrun.comm import Comm
from mdrun.run.signals import Signals, signal_name
from mdrun.run.simulation import Simulation

BEAT_S = 0.3  # between two agreements
PART_OF_HOURS = 0.99  # of --max-hours: the rest is for the last checkpoint
FILE, HOURS = 1000.0, 1001.0  # wishes to stop; smaller numbers are signals


class Pulse:
    """Looks at the simulation after every step; sets ``sim.stopping`` once any rank has a reason.

    Steps between two agreements follow from the time that the slowest rank took for a step since the last one, and at
    most double from one to the next.
    """

    def __init__(
        self,
        comm: Comm,
        signals: Signals,
        stop_file: Path | None,
        max_hours: float | None,
        checkpoint: Callable[[Simulation], None],
        checkpoint_s: float,
        tell: Callable[[Simulation], None],
        owes_checkpoint: bool = False,
    ) -> None:
        """
        Args:
            stop_file: once it is there, the run stops; None on ranks that don't look. One that was there before the run
                is not meant for it, and removed.
            max_hours: from the start of this process on; the first rank's clock counts.
            checkpoint: called by all ranks where ``checkpoint_s`` seconds have passed since the last; 0 for never.
            tell: called by all ranks at each agreement.
            owes_checkpoint: one is due after the first step; the first rank's word counts.
        """
        self._comm, self._signals, self._stop_file, self._max_hours = comm, signals, stop_file, max_hours
        self._checkpoint, self._checkpoint_s, self._tell = checkpoint, checkpoint_s, tell
        began = time.monotonic() - max(time.time() - psutil.Process().create_time(), 0.0)
        self._until = math.inf if max_hours is None else began + PART_OF_HOURS * 3600 * max_hours
        self._kept_at: float | None = None
        self._owes_checkpoint = owes_checkpoint
        self._last_step, self._last_time = 0, 0.0
        self._every, self._next_step = 1, 0
        self.clear()

    def __call__(self, sim: Simulation) -> None:
        if sim.step < self._next_step:
            return
        now = time.monotonic()
        self._kept_at = self._kept_at or now
        wish, is_due, seconds = self._agree(now, (now - self._last_time) / max(sim.step - self._last_step, 1))
        if wish:
            sim.stopping = self._words(wish)
        elif is_due:
            self._checkpoint(sim)
            self._kept_at, self._owes_checkpoint = time.monotonic(), False
        self._tell(sim)
        is_first = self._last_time == 0.0
        self._every = 1 if is_first else max(1, min(2 * self._every, int(BEAT_S / max(seconds, 1e-9))))
        self._next_step = sim.step + self._every
        self._last_step, self._last_time = sim.step, time.monotonic()  # what was done here is no part of a step

    def clear(self) -> None:
        """Take the stop file away: left, it would stop the run that goes on from here."""
        if self._stop_file is not None:
            with contextlib.suppress(OSError):
                self._stop_file.unlink()

    def _agree(self, now: float, seconds: float) -> tuple[float, bool, float]:
        """The reason to stop, whether a checkpoint is due, and the slowest rank's time for a step."""
        is_late = 0 < self._checkpoint_s <= now - (self._kept_at or now)
        is_due = self._comm.rank == 0 and (is_late or self._owes_checkpoint)
        mine = torch.tensor([self._wish(now), float(is_due), seconds], dtype=torch.float64)
        wish, due, slowest = self._comm.all_max(mine).tolist()
        return wish, due > 0, slowest

    def _wish(self, now: float) -> float:
        if self._comm.rank == 0 and now >= self._until:
            return HOURS
        if self._stop_file is not None and self._stop_file.exists():
            return FILE
        return float(self._signals.wish)

    def _words(self, wish: float) -> str:
        if wish == HOURS:
            return f"--max-hours {self._max_hours:g}"
        return "the file STOP" if wish == FILE else signal_name(int(wish))
