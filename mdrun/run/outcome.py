"""What a run that came to its end hands on to whoever tells of it."""

from __future__ import annotations

from dataclasses import dataclass

from mdrun.errors import EXIT_OK, EXIT_STOPPED
from mdrun.run.averages import Averages
from mdrun.run.ranks import Balance, ExchangeFigures, RankFigures
from mdrun.run.setup import Shared
from mdrun.run.thermo import Thermo


@dataclass(frozen=True)
class Outcome:
    """A run that came to its end."""

    shared: Shared
    ranks: list[RankFigures]
    balance: Balance
    first: Thermo
    last: Thermo
    n_steps: int
    loop_seconds: float
    reason: str = "all steps done"
    exit_code: int = EXIT_OK
    averages: Averages | None = None
    exchanges: tuple[ExchangeFigures, ...] = ()

    @property
    def is_stopped(self) -> bool:
        return self.exit_code == EXIT_STOPPED

    @property
    def steps_per_second(self) -> float:
        return self.n_steps / self.loop_seconds if self.loop_seconds > 0 else 0.0
