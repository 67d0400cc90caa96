"""Models of optional packages: energy, forces and stress, with and without the refresh, and rows computed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from mdrun import current_dd_context, units
from mdrun.comm import Comm
from mdrun.exchanges import EXCHANGES
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.graph_model import GraphModel
from mdrun.potentials.registry import load_model
from tests.models.packages import PACKAGES, SYSTEMS, model_of, rocksalt
from tests.ranks.builders import icosahedron
from tests.ranks.jobs.calculators import evaluate_without_virial
from tests.ranks.jobs.gathering import on_each_rank
from tests.systems import evaluate, pfcc, simulate

N_STEPS = 50
EXPORTED: dict[str, Callable[[], Atoms]] = {"crystal": lambda: pfcc(4, 4, 4), "cluster": lambda: icosahedron(60.0)}


def _job(kind: str) -> Callable[[Comm], dict[str, np.ndarray]]:
    def compute(comm: Comm) -> dict[str, np.ndarray]:
        found = {}
        for name, build in SYSTEMS.items():
            atoms = build()
            for precision in ("double", "single"):
                model = model_of(kind, atoms, precision)
                result = evaluate(atoms, model, comm)
                key = f"{name}/{precision}"
                found[f"{key}/energy"], found[f"{key}/forces"] = np.array(result.energy), result.forces
                if atoms.pbc.all():
                    found[f"{key}/stress"] = result.stress
            by_partition = evaluate(atoms, model_of(kind, atoms, "double"), comm, strategy="partition")
            found[f"{name}/partition/energy"] = np.array(by_partition.energy)
            found[f"{name}/partition/forces"] = by_partition.forces
            if atoms.pbc.all():
                found[f"{name}/partition/stress"] = by_partition.stress
        atoms = rocksalt()
        model = model_of(kind, atoms, "double")
        with _stale(kind):
            found["stale/forces"] = evaluate(atoms, model, comm).forces
        EXCHANGES.reset()
        with _counting(kind, model) as rows:
            evaluate(atoms, model, comm)
        found["exchanges"] = np.array(list(EXCHANGES.tallies))
        found["rows"] = on_each_rank(comm, *rows)
        return found

    return compute


@contextmanager
def _stale(kind: str) -> Iterator[None]:
    """The adapter with a verb that leaves ghosts at zero."""
    from mdrun.potentials.adapters import chgnet, occupied

    module = chgnet if kind == "chgnet" else occupied
    kept = module.refresh_neighbors

    def stale(x: Tensor, exchange: str) -> Tensor:
        n = current_dd_context().n_padded or len(x)
        EXCHANGES.asked(exchange, True)  # as the verb counts
        return torch.cat([x, x.new_zeros((n - len(x), *x.shape[1:]))])

    module.refresh_neighbors = stale
    try:
        yield
    finally:
        module.refresh_neighbors = kept


@contextmanager
def _counting(kind: str, model: GraphModel) -> Iterator[list[int]]:
    """Rows that each layer's update of atoms computes."""
    net, rows = model.model.net, []
    if kind == "mace":
        layers = list(net.products)
    elif kind == "chgnet":
        layers = [layer.mlp_out for layer in net.atom_conv_layers]
    else:
        layers = [module for name, module in net.named_children() if name.endswith("_self_interaction_2")]

    def count(module, args, output):
        rows.append(len(output["x"] if isinstance(output, dict) else output))

    handles = [layer.register_forward_hook(count) for layer in layers]
    try:
        yield rows
    finally:
        for handle in handles:
            handle.remove()


def _large(comm: Comm) -> dict[str, np.ndarray]:
    """SevenNet with features up to l = 3."""
    atoms = rocksalt()
    result = evaluate(atoms, model_of("sevennet l3i5", atoms, "double"), comm)
    with _stale("sevennet"):
        stale = evaluate(atoms, model_of("sevennet l3i5", atoms, "double"), comm)
    return {
        "energy": np.array(result.energy),
        "forces": result.forces,
        "stress": result.stress,
        "stale/forces": stale.forces,
    }


def _exported(comm: Comm) -> dict[str, np.ndarray]:
    """A metatomic model, with its own reach and with one that falls short of it."""
    from tests.models.exported import RANGE, export

    found = {}
    with tempfile.TemporaryDirectory() as directory:
        export(Path(directory) / "pairs.pt")
        for name, build in EXPORTED.items():
            model = load_model(f"metatomic:{directory}/pairs.pt", (18,))
            for kind, reach in (("own", RANGE), ("short", RANGE / 4)):
                model.reach = reach
                result = evaluate_without_virial(build(), model, comm)
                found[f"{name}/{kind}/energy"], found[f"{name}/{kind}/forces"] = result
    return found


def _moving(comm: Comm) -> dict[str, np.ndarray]:
    """SevenNet's rocksalt at 600 K."""
    from ase.md.velocitydistribution import MaxwellBoltzmannDistribution

    atoms = rocksalt()
    MaxwellBoltzmannDistribution(atoms, temperature_K=600, rng=np.random.default_rng(4))
    run = simulate(
        atoms, model_of("sevennet", atoms, "double"), VelocityVerlet(1 * units.FS), N_STEPS, 10, comm, skin=0.3
    )
    return {"positions": run.positions, "total_eV": run.total_energies}


JOBS: dict[str, Callable[[Comm], dict[str, np.ndarray]]] = {kind: _job(kind) for kind in PACKAGES}
JOBS |= {"moving sevennet": _moving, "sevennet l3i5": _large, "metatomic": _exported}
