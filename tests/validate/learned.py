"""Energy models that ask for something else than the halo, in double precision: ``learned.py:make,kind=wide``."""

from __future__ import annotations

import torch
from torch import nn

from mdrun.potentials.graph_model import Needs

NEEDS = {
    "plain": Needs(compiles=True),
    "wide": Needs(reach="wide"),
    "float32": Needs(dtypes=(torch.float32,)),
    "all": Needs(all_nodes=True),
}


class Crowd(nn.Module):
    """Each atom's energy bends with how many neighbours it has, and with how many those have."""

    cutoff = 4.0

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.needs, self.kind = NEEDS[kind], kind
        self.n_layers = 2 if kind == "wide" else 1
        self.scale = nn.Parameter(torch.tensor(0.02, dtype=torch.float64))

    def forward(self, graph):
        if self.kind == "all":
            return self._of_all_pairs(graph)
        r = graph.vectors.norm(dim=1)
        weight = (1 - (r / self.cutoff) ** 2) ** 3
        crowd = graph.sum_edges(weight)
        if self.kind == "wide":
            crowd = crowd + graph.sum_edges(weight * crowd[graph.senders])
        return self.scale * crowd**2

    def _of_all_pairs(self, graph):
        """Of a cluster: farther than any edge reaches."""
        between = graph.positions - graph.positions[graph.owned, None]
        return self.scale * torch.exp(-between.square().sum(dim=2) / 20.0).sum(dim=1)


def make(numbers: tuple[int, ...], kind: str = "plain") -> Crowd:
    return Crowd(kind)
