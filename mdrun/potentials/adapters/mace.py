"""MACE of the package mace-torch: ``mace:FILE``, a model as its training script saves it, ``mace:FILE,head=NAME``.

Batatia et al., NeurIPS 35, 11423 (2022), arXiv:2206.07697.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mdrun.errors import InputError
from mdrun.graph import Graph
from mdrun.potentials.adapters.occupied import occupied, refreshed
from mdrun.potentials.adapters.packages import default_dtype, needed, quiet
from mdrun.potentials.base import ForceModel, UnknownSpecies, symbols_of
from mdrun.potentials.graph_model import GraphModel, Needs

KINDS = ("MACE", "ScaleShiftMACE")  # others read more of the structure, or give more than an energy


class Mace(nn.Module):
    """Per-atom energies by mace's own layers, in the mode that it has for LAMMPS: rows of owned atoms alone.

    In that mode an interaction asks for its neighbours' features where it needs them; ``refresh_neighbors`` answers.

    Args:
        net: a ``mace.modules.MACE`` or ``ScaleShiftMACE``.
        head: index of the output that is wanted.
    """

    needs = Needs(owned_first=True)

    def __init__(self, net: Any, head: int = 0) -> None:
        super().__init__()
        self.net, self.head = net, head
        self.cutoff, self.n_layers = float(net.r_max), len(net.interactions)
        self.numbers: list[int] = net.atomic_numbers.tolist()  # of the species that it knows
        self._is_occupied = True
        for layer, interaction in enumerate(net.interactions, 1):
            interaction.handle_lammps = partial(self._neighbors, f"layer {layer}")

    def forward(self, graph: Graph) -> Tensor:
        """(n_owned,) eV."""
        wanted = graph.n_owned
        self._is_occupied = wanted > 0
        graph = occupied(graph, self.numbers[0])
        known = torch.tensor(self.numbers, device=graph.numbers.device)
        n, dtype = graph.n_owned, graph.vectors.dtype
        data = {
            "vectors": graph.vectors if graph.vectors.requires_grad else graph.vectors.clone(),  # mace asks for slopes
            "node_attrs": (graph.numbers[:, None] == known).to(dtype),
            "edge_index": torch.stack([graph.senders, graph.receivers]),
            "batch": torch.zeros(n, dtype=torch.int64, device=graph.vectors.device),
            "head": torch.tensor([self.head], device=graph.vectors.device),
            "natoms": (n, graph.n_nodes - n),
            "lammps_class": True,  # anything but None: who is asked is ``_neighbors``
        }
        with default_dtype(dtype):
            return self.net(data, compute_force=False, lammps_mliap=True)["node_energy"][:wanted]

    def _neighbors(
        self, exchange: str, node_feats: Tensor, lammps_class: Any, lammps_natoms: Any, first_layer: bool
    ) -> Tensor:
        """What is known of species is known of all nodes already; later features are those of owned rows."""
        return node_feats if first_layer else refreshed(node_feats, self._is_occupied, exchange)


def load(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> ForceModel:
    """See the module's text. Unpickles the file.

    Raises:
        InputError: the package or the file is not there, or it is no MACE model that gives energies.
        UnknownSpecies: it was not trained on one.
    """
    if argument is None or set(options) - {"head"}:
        raise InputError("mace takes a model file, and head=NAME where it has several: mace:FILE,head=NAME.")
    path = Path(argument)
    if not path.is_file():
        raise InputError(f"the model file {path} does not exist.")
    needed("mace.modules", "mace")
    try:
        with quiet():
            net = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:
        raise InputError(f"mace:{path} can't be loaded: {type(error).__name__}: {error}") from error
    return of_net(net, options.get("head"), numbers, f"mace:{path.name}")


def of_net(net: Any, head: str | None, numbers: tuple[int, ...], name: str) -> ForceModel:
    """The force model of one of mace's models.

    Raises:
        InputError: it is none that gives energies, or lacks the head.
        UnknownSpecies: it was not trained on one.
    """
    if type(net).__name__ not in KINDS:
        raise InputError(f"{name} holds a {type(net).__name__}; mdrun runs {' and '.join(KINDS)}.")
    if getattr(net, "embedding_specs", None):
        raise InputError(f"{name} asks for {', '.join(net.embedding_specs)} of the structure, which mdrun has not.")
    heads = list(getattr(net, "heads", None) or ["Default"])
    if head is None and len(heads) > 1:
        raise InputError(f"{name} has several heads: add head=, one of {', '.join(heads)}.")
    if head is not None and head not in heads:
        raise InputError(f"{name} has no head {head}; it has {', '.join(heads)}.")
    known = net.atomic_numbers.tolist()
    missing = sorted(set(numbers) - set(known))
    if missing:
        raise UnknownSpecies(name, missing, symbols_of(known))
    return GraphModel(Mace(net, heads.index(head) if head else 0), numbers, name)
