"""Relaxations by both optimizers: their first thirty steps, and where they end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from ase import Atoms

from mdrun.comm import Comm
from mdrun.potentials.base import ForceModel
from mdrun.potentials.registry import load_model
from tests.ranks.builders import copper_slab, in_box
from tests.ranks.cases import TETRAHEDRON, argon, emt
from tests.relaxing import cluster, disturbed, lennard_jones_units, relaxed
from tests.systems import species_of

N_STEPS = 30
SKIN = 0.3  # small, so that lists are rebuilt and atoms migrate on the way down
OPTIMIZERS = ("lbfgs", "fire")


@dataclass(frozen=True)
class Slope:
    """A structure to relax."""

    atoms: Callable[[], Atoms]
    model: Callable[[Atoms], ForceModel] = argon
    cell: str | None = None
    pressure_GPa: float = 0.0
    holds_a_third: bool = False


SLOPES: dict[str, Slope] = {
    "argon crystal, cell": Slope(lambda: disturbed("Ar", "fcc", 5.6, 4, shear=0.15, rattle=0.2), cell="full"),
    "copper slab, a third held": Slope(copper_slab, emt, holds_a_third=True),
    "silicon under pressure": Slope(
        lambda: disturbed("Si", "diamond", 5.431, 2),
        lambda atoms: load_model("sw", species_of(atoms)),
        cell="full",
        pressure_GPa=5.0,
    ),
    "thirteen atoms": Slope(lambda: cluster(13, rattle=0.1), lambda atoms: lennard_jones_units()),
    "three atoms in the open": Slope(lambda: in_box(TETRAHEDRON[:3], [0] * 3, False)),
}


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    for name, slope in SLOPES.items():
        for optimizer in OPTIMIZERS:
            atoms = slope.atoms()
            mobile = np.ones((len(atoms), 3), bool)
            mobile[:: 3 if slope.holds_a_third else len(atoms) + 1] = not slope.holds_a_third
            run = relaxed(
                atoms, slope.model(atoms), optimizer, fmax=1e-4, cell=slope.cell, pressure_GPa=slope.pressure_GPa,
                stress_max_GPa=1e-3, most=400, mobile=mobile, comm=comm, skin=SKIN,
            )  # fmt: skip
            counts = run.sim.domain.counts
            tally = torch.tensor([counts.rebuilds, counts.migrations, counts.owned_least == 0, counts.dangerous_builds])
            found |= {
                f"{name}/{optimizer}/positions": run.positions[: N_STEPS + 1],
                f"{name}/{optimizer}/cells": run.cells[: N_STEPS + 1],
                f"{name}/{optimizer}/enthalpies": run.enthalpies[: N_STEPS + 1],
                f"{name}/{optimizer}/end": run.positions[-1:],
                f"{name}/{optimizer}/end_cell": run.cell,
                f"{name}/{optimizer}/end_enthalpy": np.array(run.enthalpy),
                f"{name}/{optimizer}/is_converged": np.array(run.is_converged),
                f"{name}/{optimizer}/tally": comm.all_sum(tally).numpy(),
            }
    return found
