"""How far a process has brought its run: what ``status.json`` is made of."""

from __future__ import annotations

import functools
import platform
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from mdrun import __version__
from mdrun.run.averages import Averages
from mdrun.run.history import Start
from mdrun.run.outcome import Outcome
from mdrun.run.ranks import peak_memory_bytes
from mdrun.run.settings import Settings
from mdrun.run.status import RUNNING, now, outlook, this_process

TELL_S = 1.0  # between two writes, at least


@dataclass
class Progress:
    """Filled in as it comes to be known.

    Attributes:
        run_id: the same on all ranks; empty until they have agreed on it.
        n_steps: in all, those of processes before this one included.
        first_step: that this process computed from.
        kept_step: of the last checkpoint.
        loop_began: by ``time.perf_counter``.
        history: up to this process, where that writes it.
    """

    n_ranks: int
    run_id: str = ""
    n_threads: int = 0
    n_atoms: int = 0
    n_steps: int = 0
    first_step: int = 0
    kept_step: int | None = None
    loop_began: float | None = None
    told_at: float = 0.0
    history: tuple[Start, ...] = ()

    def is_due(self) -> bool:
        """Whether monitors are to hear of it again; true once a ``TELL_S``, within the loop."""
        time_now = time.perf_counter()
        if self.loop_began is None or time_now - self.told_at <= TELL_S:
            return False
        self.told_at = time_now
        return True

    def status(
        self, settings: Settings, state: str, step: int, time_ps: float, ending: tuple[str | None, int | None],
        outcome: Outcome | None,
    ) -> dict[str, Any]:  # fmt: skip
        """The content of ``status.json``.

        Args:
            ending: the reason and the exit code, where they are known.
            outcome: of a run that came to its end, which knows both.
        """
        began = self.loop_began
        seconds = outcome.loop_seconds if outcome else (time.perf_counter() - began if began else 0.0)
        reason, exit_code = (outcome.reason, outcome.exit_code) if outcome else ending
        figures = outcome.ranks if outcome else []
        rate = max(step - self.first_step, 0) / seconds if seconds > 0 else 0.0
        return {
            "state": state,
            "command": settings.command,
            "run": self.run_id,
            "step": step,
            "time_ps": time_ps,
            "n_steps": self.n_steps,
            "checkpoint_step": self.kept_step,
            "exit_code": exit_code,
            "reason": reason,
            "n_atoms": self.n_atoms,
            "ranks": self.n_ranks,
            "threads": self.n_threads,
            "device": settings.device,
            "backend": settings.backend,
            "loop_seconds": seconds,
            "steps_per_second": rate,
            "atom_steps_per_second": self.n_atoms * rate,
            **outlook(self.n_steps - step, rate if state == RUNNING else 0.0),
            "updated": now().isoformat(),
            **this_process(),
            "peak_memory_bytes": sum(r.peak_memory_bytes for r in figures) or peak_memory_bytes(),
            "balance": asdict(outcome.balance) if outcome else None,
            "rank_figures": [asdict(r) for r in figures],
            "exchanges": [asdict(e) for e in outcome.exchanges] if outcome else [],
            "averages": averages_in_words(outcome.averages) if outcome and outcome.averages else None,
            "versions": versions(),
            "history": [asdict(start) for start in self.history],
        }


def averages_in_words(averages: Averages) -> dict[str, dict[str, float | None]]:
    """By the names of ``thermo.csv``'s columns."""
    return {a.name: {"mean": a.mean, "error": a.error, "n_effective": a.n_effective} for a in averages.averages}


@functools.cache
def versions() -> dict[str, str]:
    """Of mdrun and of what it computes with."""
    packages = {name: version(name) for name in ("torch", "numpy", "numba", "ase")}
    return {"mdrun": __version__, "python": platform.python_version(), **packages}
