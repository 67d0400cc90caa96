"""What the exchanges that a model asks for cost: bytes and seconds of each, in the order in which it asks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

FORCES = "forces"  # of ghosts, to their owners: the last exchange of an evaluation


@dataclass
class Tally:
    """Of one exchange and its adjoint, since the loop began: bytes sent to other ranks, and seconds of this host."""

    bytes: int = 0
    seconds: float = 0.0


class Exchanges:
    """Tallies by the name that the model gives, on the way there and back; one without a name is ``exchange N``.

    Attributes:
        n_asked: of this evaluation so far, those after which ghosts are as their owners have them.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self.begin()

    def begin(self) -> None:
        """An evaluation begins; what it asks for is numbered anew."""
        self.n_asked = self._n_nameless = 0

    def asked(self, name: str | None, refreshes: bool) -> str:
        """The name of the next one, whose ghosts are ``n_asked`` once more where it refreshes them."""
        self.n_asked += refreshes
        self._n_nameless += name is None
        return name or f"exchange {self._n_nameless}"

    @contextmanager
    def counted(self, name: str | None, comm: Any) -> Iterator[None]:
        """Within, what ``comm`` sends belongs to the name; to nobody where that is None."""
        sent, began = comm.bytes_sent, time.perf_counter()
        yield
        if name is not None:
            tally = self.tallies.setdefault(name, Tally())
            tally.bytes += comm.bytes_sent - sent
            tally.seconds += time.perf_counter() - began


EXCHANGES = Exchanges()  # one process, one clock, one tally
