"""What the exchanges between a model's layers cost: bytes and seconds of each, in the order in which a model asks."""

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
    """Tallies by name: ``layer 2`` is what the model's second layer waits for, on the way there and back.

    Attributes:
        n_asked: exchanges of this evaluation so far.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self.n_asked = 0

    def begin(self) -> None:
        """An evaluation begins; what it asks for is numbered anew."""
        self.n_asked = 0

    def next_layer(self) -> str:
        """The name of what is asked for next. The first layer needs nothing of other ranks."""
        self.n_asked += 1
        return f"layer {self.n_asked + 1}"

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
