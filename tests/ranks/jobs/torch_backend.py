"""By torch on the CPU: a hundred steps of systems that migrate, and single configurations in two precisions."""

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
from mdrun.potentials.precision import PRECISIONS
from mdrun.potentials.registry import load_model
from mdrun.potentials.torch_models import on_torch
from tests.ranks.builders import argon_liquid, copper_small_cell, gold_copper, icosahedron, warmed
from tests.ranks.cases import argon, emt, reference_atoms, reference_model
from tests.systems import Run, evaluate, simulate

CUNI, SIC, MIXED = "eam_cuni108.extxyz", "tersoff_sic64_rounded.extxyz", "sw_mixed64_triclinic.extxyz"
SYSTEMS: dict[str, tuple[Callable[[], Atoms], Callable[[Atoms], ForceModel]]] = {
    "liquid": (argon_liquid, argon),
    "drifting cluster": (lambda: icosahedron(30.0, velocity=(0.1, 0.05, -0.08)), argon),
    "alloy": (lambda: warmed(reference_atoms(CUNI), 900.0), lambda atoms: reference_model(CUNI, atoms)),
    "gold with copper": (lambda: warmed(gold_copper(), 900.0), emt),
    "silicon carbide": (lambda: warmed(reference_atoms(SIC), 900.0), lambda atoms: reference_model(SIC, atoms)),
    "silicon": (lambda: warmed(reference_atoms("sw_si216.extxyz"), 900.0), lambda atoms: load_model("sw", (14,))),
}
STILL = {
    "copper in a small cell": (copper_small_cell, emt),
    **{
        file: (lambda file=file: reference_atoms(file), lambda atoms, file=file: reference_model(file, atoms))
        for file in ("eam_cu216_slab.extxyz", MIXED, "tersoff_mixed64_triclinic.extxyz")
    },
}


def run_one(name: str, comm: Comm, backend: Backend, by_torch: bool) -> Run:
    make_atoms, make_model = SYSTEMS[name]
    atoms = make_atoms()
    model = make_model(atoms)
    integrator = VelocityVerlet((2 if name == "silicon carbide" else 4) * units.FS)  # 4 are too many for carbon
    return simulate(
        atoms, on_torch(model) if by_torch else model, integrator, 100, comm=comm, skin=0.3, backend=backend
    )


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    with torch.compiler.set_stance("force_eager"):
        for name in SYSTEMS:
            run = run_one(name, comm, TorchBackend("cpu", looks_late=True), by_torch=True)
            found[f"{name}/positions"] = run.positions
            found[f"{name}/migrations"] = comm.all_sum(torch.tensor(run.sim.domain.counts.migrations)).numpy()
        for name, (make_atoms, make_model) in STILL.items():
            for precision in ("double", "mixed"):
                atoms = make_atoms()
                model = on_torch(make_model(atoms))
                model.precision = PRECISIONS[precision]
                result = evaluate(atoms, model, comm, backend=TorchBackend("cpu"))
                found[f"{name}/{precision}/energy"] = np.array(result.energy)
                found[f"{name}/{precision}/forces"] = result.forces
    return found
