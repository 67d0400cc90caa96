"""How often: every so many steps, or every so much time."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from mdrun.errors import InputError

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
TIME = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(s|min|h)")


@dataclass(frozen=True)
class Cadence:
    """One of both at most is above 0; never where none is.

    Attributes:
        steps: between two times.
        seconds: between two times, of the clock on the wall.
    """

    steps: int = 0
    seconds: float = 0.0

    @property
    def is_never(self) -> bool:
        return not self.steps and not self.seconds


def cadence(text: str | int, option: str) -> Cadence:
    """``10000`` steps, or ``90s``, ``15min``, ``2h``; ``0`` is never.

    Raises:
        InputError: it is none of these; ``option`` is the flag's name without dashes.
    """
    words = str(text).strip()
    if re.fullmatch(r"[0-9]{1,18}", words):
        return Cadence(steps=int(words))
    match = TIME.fullmatch(words)
    seconds = float(match[1]) * SECONDS[match[2]] if match else math.nan
    if not 0 < seconds < math.inf:
        raise InputError(
            f"--{option} {text}: it takes a number of steps as in 10000, or a time above 0 as in 90s, 15min or 2h; "
            "0 for never."
        )
    return Cadence(seconds=seconds)
