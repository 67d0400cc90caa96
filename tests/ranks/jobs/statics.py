"""Energy, forces and stress of every configuration."""

from __future__ import annotations

import numpy as np

from mdrun.comm import Comm
from tests.ranks.cases import STATIC
from tests.systems import evaluate


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    for name, case in STATIC.items():
        atoms = case.atoms()
        result = evaluate(atoms, case.model(atoms), comm, skin=0.5)
        found[f"{name}/energy"] = np.array(result.energy)
        found[f"{name}/forces"] = result.forces
        found[f"{name}/stress"] = np.full((3, 3), np.nan) if result.stress is None else result.stress
    return found
