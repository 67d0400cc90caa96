"""Packages reshape by dividing through the number of atoms: a rank that owns none shows them one, and forgets it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from mdrun.graph import Graph
from mdrun.verbs import refresh_neighbors


def occupied(graph: Graph, number: int) -> Graph:
    """The graph, or where nothing is owned, one with a lone atom of that atomic number, of which nobody hears."""
    if graph.n_owned > 0:
        return graph
    device = graph.numbers.device
    return replace(
        graph,
        n_owned=1,
        ids=torch.tensor([-1], device=device),
        numbers=torch.tensor([number], device=device),
        charges=graph.charges.new_zeros(1),
        positions=graph.positions.new_zeros((1, 3)),
    )


def refreshed(x: Tensor, is_occupied: bool, exchange: str) -> Tensor:
    """``refresh_neighbors``; of none at all where the row isn't an atom, though its neighbours would wait otherwise."""
    return refresh_neighbors(x, exchange) if is_occupied else torch.cat([refresh_neighbors(x[:0], exchange), x])
