"""Where the time goes: each moment belongs to the innermost section that is open."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

SECTIONS = ("force", "neighbor", "communication", "integration", "output")

F = TypeVar("F", bound=Callable)


class Clock:
    """Seconds by section. A section that opens inside another pauses the outer one, so the sums add up."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = time.perf_counter()

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def enter(self, section: str) -> None:
        self._switch()
        self._open.append(section)

    def leave(self) -> None:
        self._switch()
        if self._open:
            self._open.pop()


CLOCK = Clock()  # one process, one clock: the loop need not carry it


def timed(section: str) -> Callable[[F], F]:
    """Decorator: the time in this function counts as ``section``, less what its callees claim."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            CLOCK.enter(section)
            try:
                return function(*args, **kwargs)
            finally:
                CLOCK.leave()

        return wrapper  # type: ignore[return-value]

    return decorate
