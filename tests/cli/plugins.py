"""Force models as a user writes them, that fail in one way or another: ``plugins.py:make,fails=WAY,rank=R,call=N``."""

from __future__ import annotations

import time

import numpy as np
import torch

from mdrun import current_dd_context
from mdrun.domain import Domain
from mdrun.potentials.base import Forces


class Failing:
    """Atoms that do not feel each other, until one rank at one step fails."""

    cutoff = 4.0

    def __init__(self, fails: str, rank: int, call: int) -> None:
        self.fails, self.rank, self.call = fails, rank, call
        self.calls = -1

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        self.calls += 1
        forces = torch.zeros((domain.n_owned, 3), dtype=torch.float64)
        virial = torch.zeros((3, 3), dtype=torch.float64)
        if self.calls == self.call and current_dd_context().rank == self.rank:
            if self.fails == "raise":
                raise RuntimeError("the model gave up")
            if self.fails == "memory":
                torch.empty(10**15, dtype=torch.float64)
            if self.fails == "numpy's memory":
                np.empty(10**15)
            if self.fails == "nan":
                forces[int(domain.ids[: domain.n_owned].argmin())] = float("nan")
            if self.fails == "virial":
                virial[0, 0] = float("nan")
            if self.fails == "sleep":
                time.sleep(600)
        return Forces(forces, 0.0, virial)


def make(numbers: tuple[int, ...], fails: str = "never", rank: str = "0", call: str = "0") -> Failing:
    return Failing(fails, int(rank), int(call))
