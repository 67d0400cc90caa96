"""The example net of ``inputs/``, and one evaluation of it that knows neither rows, halo nor our neighbour list."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from ase import Atoms
from ase.neighborlist import neighbor_list
from torch import Tensor, nn

from mdrun.potentials.graph_model import GraphModel, Needs
from tests.systems import Result, species_of

EXAMPLE = Path(__file__).parents[1] / "inputs" / "message_passing.py"
EXAMPLES = itertools.count()


def example() -> ModuleType:
    """The file as a module, a fresh one each time."""
    spec = importlib.util.spec_from_file_location(f"message_passing_{next(EXAMPLES)}", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def net_of(atoms: Atoms, cutoff: float = 5.0, n_layers: int = 3) -> nn.Module:
    return example().make(species_of(atoms), cutoff=f"{cutoff}", layers=f"{n_layers}")


def force_model(atoms: Atoms, net: nn.Module, needs: Needs | None = None) -> GraphModel:
    if needs is not None:
        net.needs = needs
    return GraphModel(net, species_of(atoms), "net")


def compiling(atoms: Atoms, net: nn.Module, needs: Needs, kind: type[GraphModel] = GraphModel) -> GraphModel:
    """The net's force model with ``--compile``, by a compiler that takes no minutes."""
    net.needs = needs
    model = kind(net, species_of(atoms), "net")
    model.wants_compiling, model.compiler = True, "aot_eager"
    return model


@dataclass
class WholeSystem:
    """What the example reads of a graph, of all atoms, with ASE's neighbours."""

    numbers: Tensor
    senders: Tensor
    receivers: Tensor
    vectors: Tensor

    @property
    def owned(self) -> slice:
        return slice(None)

    def sum_edges(self, values: Tensor) -> Tensor:
        return values.new_zeros((len(self.numbers), *values.shape[1:])).index_add(0, self.receivers, values)


def whole_system(atoms: Atoms, cutoff: float, positions: Tensor, cell: Tensor) -> WholeSystem:
    i, j, shifts = neighbor_list("ijS", atoms, cutoff)
    i, j = torch.from_numpy(i), torch.from_numpy(j)
    vectors = positions[j] - positions[i] + torch.from_numpy(shifts.astype(float)) @ cell
    return WholeSystem(torch.from_numpy(atoms.numbers.astype(np.int64)), j, i, vectors)


def energy_of_whole(atoms: Atoms, net: nn.Module) -> float:
    """eV, without gradients."""
    graph = whole_system(atoms, net.cutoff, torch.from_numpy(atoms.positions), torch.from_numpy(atoms.cell.array))
    with torch.no_grad():
        return float(net.forward(graph).sum())


def evaluate_whole(atoms: Atoms, net: nn.Module) -> Result:
    """One process, dense, by autograd at the positions; stress by the strain of all positions and the cell."""
    positions = torch.tensor(atoms.positions, requires_grad=True)
    strain = torch.zeros((3, 3), dtype=torch.float64, requires_grad=True)
    cell = torch.tensor(atoms.cell.array)
    graph = whole_system(atoms, net.cutoff, positions + positions @ strain, cell + cell @ strain)
    energy = net.forward(graph).sum()
    slopes = torch.autograd.grad(energy, [positions, strain], allow_unused=True, materialize_grads=True)
    stress = ((slopes[1] + slopes[1].T) / 2 / atoms.get_volume()).numpy() if atoms.pbc.all() else None
    return Result(float(energy.detach()), -slopes[0].numpy(), stress)
