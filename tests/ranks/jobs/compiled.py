"""Compiled models on graphs of fixed shapes: the same forces by each strategy, and nothing compiled anew on the way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from ase import Atoms
from torch import Tensor, nn
from torch._dynamo.utils import counters

from mdrun import system_sum, units
from mdrun.comm import Comm
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.graph_model import GraphModel, Needs
from tests.own_models import compiling, net_of
from tests.ranks.builders import argon_liquid
from tests.ranks.jobs.gathering import on_each_rank
from tests.ranks.jobs.message_passing import SYSTEMS, OutOfReach
from tests.systems import evaluate, simulate, species_of

STRATEGIES = ("halo", "partition", "replicate")
NAMES = ("two species", "skewed cell smaller than the cutoff", "three atoms in the open")
N_STEPS, N_WARM_UP = 60, 20


class Choosy(nn.Module):
    """A net that knows the structure's species alone and tells of a stranger among the nodes by NaN; its energies are
    scaled by a number that counts each atom of all ranks once."""

    def __init__(self, atoms: Atoms, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.cutoff, self.n_layers = self.net.cutoff, self.net.n_layers
        self.known = nn.Parameter(torch.full((119,), torch.nan, dtype=torch.float64))
        with torch.no_grad():
            self.known[list(species_of(atoms))] = 1.0

    def forward(self, graph) -> Tensor:
        stranger = 0 * self.known[graph.numbers].sum()
        numbers = graph.numbers[graph.owned].double()
        scale = system_sum(numbers, torch.zeros_like(numbers, dtype=torch.int64), 1)[0]
        return self.net.forward(graph) * (1e-2 * scale + stranger)


KINDS = (*STRATEGIES, "wide")


class Counting(GraphModel):
    """The model, and graphs and frames that torch had compiled by the end of each evaluation."""

    def __call__(self, domain, totals):
        found = super().__call__(domain, totals)
        self.counts.append((counters["stats"]["unique_graphs"], counters["frames"]["total"]))
        return found


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    for name in NAMES:
        atoms = SYSTEMS[name]()
        nets = {strategy: (net_of(atoms), "refresh", strategy) for strategy in STRATEGIES}
        for kind, (net, reach, strategy) in (nets | {"wide": (OutOfReach(net_of(atoms)), "wide", "halo")}).items():
            net = Choosy(atoms, net)
            torch._dynamo.reset()
            result = evaluate(atoms, compiling(atoms, net, Needs(reach, compiles=True)), comm, strategy=strategy)
            found[f"{name}/{kind}/energy"], found[f"{name}/{kind}/forces"] = np.array(result.energy), result.forces
            if result.stress is not None:
                found[f"{name}/{kind}/stress"] = result.stress
    return found | _moving(comm)


def _moving(comm: Comm) -> dict[str, np.ndarray]:
    """A liquid whose atoms go from rank to rank."""
    found = {}
    atoms = argon_liquid()
    wide: Callable[[], nn.Module] = lambda: OutOfReach(net_of(atoms, 4.5, n_layers=2))  # noqa: E731
    kinds = {strategy: (net_of(atoms, 6.0), "refresh", strategy) for strategy in STRATEGIES}
    for kind, (net, reach, strategy) in (kinds | {"wide": (wide(), "wide", "halo")}).items():
        torch._dynamo.reset()
        counters.clear()
        model = compiling(atoms, net, Needs(reach, compiles=True), Counting)
        model.counts = []
        integrator = VelocityVerlet(5 * units.FS)
        run = simulate(atoms, model, integrator, N_STEPS, 10, comm, skin=0.3, strategy=strategy)
        counts = run.sim.domain.counts
        found[f"moving/{kind}/compiled"] = on_each_rank(comm, *model.counts[N_WARM_UP], *model.counts[-1])
        found[f"moving/{kind}/counts"] = on_each_rank(comm, counts.rebuilds, counts.migrations)
        found[f"moving/{kind}/positions"] = run.positions
        found[f"moving/{kind}/total_eV"] = run.total_energies
        if kind in ("halo", "wide"):  # what is not compiled, once
            model.wants_compiling = False
            run = simulate(atoms, model, integrator, N_STEPS, 10, comm, skin=0.3)
            key = "eager" if kind == "halo" else "eager wide"
            found[f"moving/{key}/positions"], found[f"moving/{key}/total_eV"] = run.positions, run.total_energies
    return found
