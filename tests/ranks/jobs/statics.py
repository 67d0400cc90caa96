"""Energy, forces and stress of every configuration; of the reference set in every precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ase import Atoms

from mdrun.comm import Comm
from mdrun.potentials.base import ForceModel
from mdrun.potentials.precision import PRECISIONS
from tests.ranks.cases import REFERENCE, STATIC
from tests.systems import evaluate


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    for name, case in STATIC.items():
        found |= _evaluated(name, case.atoms(), case.model, comm, "double")
    return found


def compute_in_lower_precision(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    for file in REFERENCE:
        for precision in ("mixed", "single"):
            found |= _evaluated(file, STATIC[file].atoms(), STATIC[file].model, comm, precision)
    return found


def _evaluated(
    name: str, atoms: Atoms, make: Callable[[Atoms], ForceModel], comm: Comm, precision: str
) -> dict[str, np.ndarray]:
    model = make(atoms)
    model.precision = PRECISIONS[precision]
    result = evaluate(atoms, model, comm, skin=0.5)
    stress = np.full((3, 3), np.nan) if result.stress is None else result.stress
    found = {"energy": np.array(result.energy), "forces": result.forces, "stress": stress}
    where = name if precision == "double" else f"{precision}/{name}"
    return {f"{where}/{quantity}": value for quantity, value in found.items()}
