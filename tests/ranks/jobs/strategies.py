"""Nodes of each strategy, and models that ask for more than the nearest ghosts: wide, compiled, all nodes, in sums."""

from __future__ import annotations

import numpy as np
import torch
from ase import Atoms
from torch import Tensor, nn

from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.errors import InputError
from mdrun.potentials.base import ForceModel
from mdrun.potentials.graph_model import Needs
from mdrun.potentials.registry import Sum, load_model
from mdrun.scope import Scope
from mdrun.strategies.choice import KINDS, choose_strategy
from mdrun.verbs import system_sum
from tests.own_models import compiling, force_model, net_of
from tests.ranks.builders import copper_small_cell, gold_copper, icosahedron
from tests.ranks.jobs.gathering import on_each_rank
from tests.ranks.jobs.message_passing import SYSTEMS
from tests.systems import evaluate, species_of, state_of

WIDE_SYSTEMS = {"two species": gold_copper, "small cell": copper_small_cell, "cluster": lambda: icosahedron(60.0)}
LENGTH = 3.0  # Å, of ``Far``


class Embedded(nn.Module):
    """A density, and the densities of neighbours: two layers that call no verb.

    Args:
        needs: what it declares, rightly or not.
    """

    cutoff, n_layers = 5.0, 2

    def __init__(self, needs: Needs) -> None:
        super().__init__()
        self.needs = needs

    def forward(self, graph) -> Tensor:
        weights = (1 - graph.vectors.norm(dim=1) / self.cutoff) ** 2
        density = graph.sum_edges(weights)
        return density + graph.sum_edges(weights * density[graph.senders])


class Common(Embedded):
    """Each atom's energy feels the density that all have in common, and that of all squares of it."""

    n_layers = 1

    def forward(self, graph) -> Tensor:
        weights = (1 - graph.vectors.norm(dim=1) / self.cutoff) ** 2
        density = graph.sum_edges(weights)
        whole = torch.zeros(len(density), dtype=torch.int64, device=density.device)
        common = system_sum(density, whole, 1)[0]
        again = system_sum(density**2 * torch.sin(common), whole, 1)[0]
        return density * torch.tanh(common / 100) + (density - again / 100) ** 2


class Forgotten(Embedded):
    """It neither calls the verb nor says so: densities of ghosts stay zero."""

    def forward(self, graph) -> Tensor:
        weights = (1 - graph.vectors.norm(dim=1) / self.cutoff) ** 2
        density = graph.sum_edges(weights)
        of_all = torch.cat([density, density.new_zeros(graph.n_nodes - graph.n_owned)])
        return density + graph.sum_edges(weights * of_all[graph.senders])


class Far(nn.Module):
    """All pairs of a cluster, by positions alone: exp(-r / LENGTH)."""

    cutoff, n_layers, needs = 5.0, 1, Needs(all_nodes=True)

    def forward(self, graph) -> Tensor:
        apart = graph.positions[graph.owned, None] - graph.positions[None]
        is_other = graph.ids[graph.owned, None] != graph.ids[None]
        return (torch.exp(-(apart.square().sum(dim=2) + ~is_other).sqrt() / LENGTH) * is_other).sum(dim=1)


WIDE = Needs(reach="wide")


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = _nodes(comm)
    for name, build in WIDE_SYSTEMS.items():
        atoms = build()
        models = {
            "wide": force_model(atoms, Embedded(WIDE)),
            "compiled": compiling(atoms, Embedded(WIDE), Needs("wide", compiles=True)),
        }
        for kind, model in models.items():
            found |= _of(f"{name}/{kind}", atoms, model, comm)
        common = {
            **{strategy: force_model(atoms, Common(Needs())) for strategy in KINDS},
            "wide": force_model(atoms, Common(WIDE)),
            "compiled": compiling(atoms, Common(WIDE), Needs(compiles=True)),
        }
        for kind, model in common.items():
            found |= _of(f"common/{name}/{kind}", atoms, model, comm, kind if kind in KINDS else "auto")
    atoms = icosahedron(60.0)
    zbl = load_model("zbl:inner=3,outer=5", species_of(atoms))
    found |= _of("far", atoms, force_model(atoms, Far()), comm)
    found |= _of("far and zbl", atoms, Sum([force_model(atoms, Far()), zbl]), comm)
    found |= _of("zbl", atoms, zbl, comm)
    try:
        evaluate(atoms, force_model(atoms, Forgotten(Needs())), comm)
    except InputError as error:  # on every rank, at the same place
        found["forgotten"] = np.array(str(error))
    return found


def _of(key: str, atoms: Atoms, model: ForceModel, comm: Comm, strategy: str = "auto") -> dict[str, np.ndarray]:
    result = evaluate(atoms, model, comm, strategy=strategy)
    stress = np.zeros(0) if result.stress is None else result.stress
    return {f"{key}/energy": np.array(result.energy), f"{key}/forces": result.forces, f"{key}/stress": stress}


def _nodes(comm: Comm) -> dict[str, np.ndarray]:
    """(rank, strategy) nodes of each system, ``auto`` last."""
    found = {}
    for system, build in SYSTEMS.items():
        atoms, held = build(), []
        for name in (*KINDS, "auto"):
            model = force_model(atoms, net_of(atoms))
            domain, state = Domain(comm, model.cutoff, 1.0), state_of(atoms, comm)
            with Scope(model, domain, len(atoms), choose_strategy(name, model)) as scope:
                domain.follow(state)
                scope.strategy.publish(scope.context, domain)
                held.append(scope.strategy.nodes(domain, False).n_nodes)
        found[f"nodes/{system}"] = on_each_rank(comm, *held)
    return found
