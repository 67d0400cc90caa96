"""Argon as a user's model, with one fault or none: ``faulty.py:make,fault=force``."""

from __future__ import annotations

import torch

from mdrun import current_dd_context
from mdrun.domain import Domain
from mdrun.potentials.base import Forces
from mdrun.potentials.lennard_jones import make_lennard_jones


class Faulty:
    """Lennard-Jones argon without jumps of the energy, computed by the built-in loop and then spoilt."""

    def __init__(self, n_types: int, fault: str) -> None:
        pairs = {(a, b): (0.0104, 3.40) for a in range(n_types) for b in range(a, n_types)}
        self.sound = make_lennard_jones(pairs, n_types, 8.5, True, "argon")
        self.cutoff = self.sound.cutoff
        self.fault = fault
        self.is_compiled = True

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        found = self.sound(domain, totals)
        rank = current_dd_context().rank
        if self.fault == "force":
            found.forces *= 1.01
        if self.fault == "one force":
            found.forces[domain.ids[: domain.n_owned] == 7, 1] *= 1.01
        if self.fault == "rank":
            found.forces *= 1 + 1e-4 * rank
        if self.fault == "crash" and current_dd_context().world_size > 1 and rank == 1:
            raise RuntimeError("only one rank was ever tried")
        if totals:
            assert found.energy is not None
            assert found.virial is not None
            if self.fault == "virial":
                found.virial = -found.virial
            if self.fault == "ghosts":  # one-body energies of every row, where those of owned rows are meant
                found.energy += 0.01 * float(domain.n_padded)
            if self.fault == "energy":
                found.energy = None
            if self.fault == "no virial":
                found.virial = None
            if self.fault == "coarse":
                found.energy = float(torch.tensor(found.energy + 1e4, dtype=torch.float32))
        return found


def make(numbers: tuple[int, ...], fault: str = "none") -> Faulty:
    return Faulty(len(numbers), fault)
