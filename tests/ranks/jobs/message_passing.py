"""The example net: its energy, forces and stress; with the refresh left out; by a wide halo; in single precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from ase import Atoms
from torch import Tensor, nn

from mdrun import current_dd_context, units
from mdrun.comm import Comm
from mdrun.exchanges import EXCHANGES
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.graph_model import Needs
from mdrun.potentials.precision import PRECISIONS
from mdrun.potentials.registry import Sum, load_model
from tests.own_models import compiling, force_model, net_of
from tests.ranks.builders import (
    TETRAHEDRON,
    argon_liquid,
    argon_wire,
    copper_slab,
    copper_small_cell,
    gold_copper,
    icosahedron,
    in_box,
)  # fmt: skip
from tests.ranks.jobs.gathering import on_each_rank
from tests.systems import evaluate, simulate, species_of

SYSTEMS: dict[str, Callable[[], Atoms]] = {
    "two species": gold_copper,
    "copper slab": copper_slab,
    "skewed cell smaller than the cutoff": copper_small_cell,
    "icosahedron in a box": lambda: icosahedron(60.0),
    "argon wire": argon_wire,
    "an atom without neighbours": lambda: in_box([(1, 1, 1), (4.8, 1, 1), (15, 15, 15)], [30] * 3),
    "one atom": lambda: in_box([(1, 1, 1)], [30] * 3),
    "three atoms in the open": lambda: in_box(TETRAHEDRON[:3], [0] * 3, False),
}
STRATEGIES = ("partition", "replicate")
COMPILED = ("two species", "three atoms in the open")
N_LAYERS = 3
N_STEPS = 40


class Counted(nn.Module):
    """The example, and for how many atoms each layer computed features."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.cutoff, self.n_layers = net, net.cutoff, net.n_layers
        self.n_rows = 0

    def forward(self, graph) -> Tensor:
        plain = graph.sum_edges

        def counting(values: Tensor) -> Tensor:
            sums = plain(values)
            self.n_rows += len(sums)
            return sums

        graph.sum_edges = counting
        return self.net.forward(graph)


class OutOfReach(nn.Module):
    """The example as a package would have it whose layers can't be reached: it knows no verbs, all nodes are alike."""

    needs = Needs(reach="wide")

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.cutoff, self.n_layers = net, net.cutoff, net.n_layers

    def forward(self, graph) -> Tensor:
        return _without_refresh(self.net).forward(replace(graph, n_owned=graph.n_nodes))


def _without_refresh(net: nn.Module) -> nn.Module:
    """The net with the verb replaced by one that leaves ghosts as they are: zeros where owned rows alone are known."""

    def stale(x: Tensor) -> Tensor:
        n = current_dd_context().n_padded
        EXCHANGES.asked(None, True)  # as the verb counts
        return x if len(x) == n else torch.cat([x, x.new_zeros((n - len(x), *x.shape[1:]))])

    net.forward.__globals__["refresh_neighbors"] = stale
    return net


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    for name, build in SYSTEMS.items():
        atoms = build()
        counted = Counted(net_of(atoms))
        models = {
            "net": force_model(atoms, counted),
            "no refresh": force_model(atoms, _without_refresh(net_of(atoms))),
            "wide": force_model(atoms, OutOfReach(net_of(atoms))),
            "single": force_model(atoms, net_of(atoms)),
        }
        models["single"].precision = PRECISIONS["single"]
        zbl = load_model("zbl:inner=4,outer=6", species_of(atoms))  # farther than the net
        models["sum"] = Sum([force_model(atoms, net_of(atoms)), zbl])
        if name in COMPILED:
            models["compiled"] = compiling(atoms, net_of(atoms), Needs(compiles=True))
        models |= {kind: force_model(atoms, net_of(atoms)) for kind in STRATEGIES}
        for kind, model in models.items():
            result = evaluate(atoms, model, comm, strategy=kind if kind in STRATEGIES else "auto")
            found[f"{name}/{kind}/energy"], found[f"{name}/{kind}/forces"] = np.array(result.energy), result.forces
            if result.stress is not None:
                found[f"{name}/{kind}/stress"] = result.stress
        found[f"{name}/rows"] = on_each_rank(comm, counted.n_rows)
    return found | _moving(comm)


def _moving(comm: Comm) -> dict[str, np.ndarray]:
    """A liquid whose atoms go from rank to rank."""
    atoms = argon_liquid()
    model = force_model(atoms, net_of(atoms, cutoff=6.0))
    run = simulate(atoms, model, VelocityVerlet(5 * units.FS), N_STEPS, 10, comm, skin=0.3)
    counts = run.sim.domain.counts
    return {
        "moving/positions": run.positions,
        "moving/total_eV": run.total_energies,
        "moving/counts": on_each_rank(comm, counts.rebuilds, counts.migrations),
    }
