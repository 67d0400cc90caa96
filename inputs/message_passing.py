"""A message-passing potential to start from: mdrun simulate STRUCTURE --model inputs/message_passing.py:make

Features of an atom are updated in each layer from those of its neighbours, seen through a smooth function of the
distance. The weights are random, but the same for a given seed: this shows how, it is no potential of anything.
"""

import torch
from torch import nn

from mdrun import refresh_neighbors
from mdrun.potentials.graph_model import Needs


class MessagePassing(nn.Module):
    needs = Needs(reach="refresh", compiles=True)  # "refresh" is the default; "wide" where layers can't be reached

    def __init__(self, numbers, cutoff, n_layers, n_features, seed):
        super().__init__()
        self.cutoff, self.n_layers = cutoff, n_layers  # Å, and how often in a row neighbours are asked
        random = torch.Generator().manual_seed(seed)

        def weights(*shape):
            return nn.Parameter(torch.randn(*shape, generator=random, dtype=torch.float64) / shape[0] ** 0.5)

        self.embedding = weights(119, n_features)  # a row for each element
        self.radial = nn.ParameterList([weights(8, n_features) for _ in range(n_layers)])
        self.update = nn.ParameterList([weights(n_features, n_features) for _ in range(n_layers)])
        self.readout = weights(n_features)

    def forward(self, graph):
        """Energies (n_owned,) in eV."""
        waves = self.waves(graph.vectors.norm(dim=1, keepdim=True))
        x = self.embedding[graph.numbers]  # what needs no neighbours is known for all nodes
        for layer in range(self.n_layers):
            if layer > 0:
                x = refresh_neighbors(x)  # from (n_owned, ...): neighbours of other ranks are known again
            x = self.layer(graph, x, waves, self.radial[layer], self.update[layer])
        return x @ self.readout

    # torch can't compile a loop that is broken off by an exchange; functions that are called in it, it can.
    def waves(self, r):
        """(n_edges, 8); energy, forces and their slopes end smoothly at the cutoff."""
        waves = torch.sin(torch.arange(1, 9, device=r.device) * torch.pi / self.cutoff * r) / r
        return waves * (1 - (r / self.cutoff) ** 2) ** 3

    def layer(self, graph, x, waves, radial, update):
        """New features (n_owned, n_features) of owned atoms, from those of all nodes."""
        messages = x[graph.senders] * (waves @ radial)
        return x[graph.owned] + torch.tanh(graph.sum_edges(messages) @ update)


def make(numbers, cutoff="5", layers="3", features="16", seed="1"):
    """What --model calls: with the atomic numbers of the structure, and what follows the name, as in make,seed=2."""
    return MessagePassing(numbers, float(cutoff), int(layers), int(features), int(seed))
