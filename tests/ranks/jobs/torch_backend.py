"""A hundred steps by torch on the CPU, of systems that migrate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from ase import Atoms

from mdrun import units
from mdrun.backends.base import Backend
from mdrun.backends.on_torch import TorchBackend
from mdrun.comm import Comm
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.base import ForceModel
from mdrun.potentials.torch_models import on_torch
from tests.ranks.builders import argon_liquid, icosahedron, warmed
from tests.ranks.cases import argon, reference_atoms, reference_model
from tests.systems import Run, simulate

CUNI = "eam_cuni108.extxyz"
SYSTEMS: dict[str, tuple[Callable[[], Atoms], Callable[[Atoms], ForceModel]]] = {
    "liquid": (argon_liquid, argon),
    "drifting cluster": (lambda: icosahedron(30.0, velocity=(0.1, 0.05, -0.08)), argon),
    "alloy": (lambda: warmed(reference_atoms(CUNI), 900.0), lambda atoms: reference_model(CUNI, atoms)),
}


def run_one(name: str, comm: Comm, backend: Backend, by_torch: bool) -> Run:
    make_atoms, make_model = SYSTEMS[name]
    atoms = make_atoms()
    model = make_model(atoms)
    integrator = VelocityVerlet(4 * units.FS)
    return simulate(
        atoms, on_torch(model) if by_torch else model, integrator, 100, comm=comm, skin=0.3, backend=backend
    )


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    with torch.compiler.set_stance("force_eager"):
        for name in SYSTEMS:
            run = run_one(name, comm, TorchBackend("cpu"), by_torch=True)
            found[f"{name}/positions"] = run.positions
            found[f"{name}/migrations"] = comm.all_sum(torch.tensor(run.sim.domain.counts.migrations)).numpy()
    return found
