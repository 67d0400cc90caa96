"""Graphs of few shapes, for models that are compiled: capacities that grow in strides, and what fills them up.

A padded graph's rows are owned nodes, spare ones, ghost nodes, spare ones. Spare edges begin and end at the last of the
spare owned nodes, in a wide halo of the spare ghosts: what they bring about stays there, and its energy is not
counted.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from mdrun.context import DistributedContext
from mdrun.decompose.halo import HaloMeta
from mdrun.graph import Graph

STRIDES = {"edges": 1024}
STRIDE = 64  # of nodes
SLACK = 1.1  # beyond what overflowed


def resolve_cap(name: str, n: int, context: DistributedContext) -> int:
    """The capacity ``name`` of a scope: at least ``n``; it grows on overflow, by strides, and never shrinks."""
    return _grown(context.cap_state, name, n)


def _grown(cap_state: dict[str, int], name: str, n: int) -> int:
    if n > cap_state.get(name, 0):
        stride = STRIDES.get(name, STRIDE)
        cap_state[name] = -(-int(n * SLACK) // stride) * stride
    return cap_state.get(name, 0)


class GraphPadder:
    """See the module's text. Where atoms aren't capped, the strategy has filled up their number, and left a spare one.

    Args:
        number: atomic number of spare nodes: of the structure, since a model may know no other.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    def pad(self, graph: Graph, cap_state: dict[str, int], cap_atoms: bool = True) -> Graph:
        """The graph filled up to the capacities, which grow where they must."""
        n_owned, n_ghosts = graph.n_owned, graph.n_nodes - graph.n_owned
        if cap_atoms:
            n_spare = _grown(cap_state, "owned", n_owned + 1) - n_owned
            n_spare_ghosts = _grown(cap_state, "ghosts", n_ghosts + graph.is_wide) - n_ghosts

            def spread(values: Tensor, filling: float = 0) -> Tensor:
                return _spread(values, n_owned, n_spare, n_spare_ghosts, filling)

            graph = replace(
                graph,
                n_owned=n_owned + n_spare,
                ids=spread(graph.ids, -1),
                numbers=spread(graph.numbers, self.number),
                charges=spread(graph.charges),
                positions=spread(graph.positions),
                senders=_moved(graph.senders, n_owned, n_spare),
                receivers=_moved(graph.receivers, n_owned, n_spare),  # ghosts too, in a wide halo
            )
        n_spare = _grown(cap_state, "edges", graph.n_edges) - graph.n_edges
        sink = (graph.n_nodes if graph.is_wide else graph.owned.stop) - 1  # the last, so that receivers ascend
        far = graph.vectors.new_tensor([graph.cutoff, 0.0, 0.0]).expand(n_spare, 3)
        return replace(
            graph,
            senders=torch.cat([graph.senders, graph.senders.new_full((n_spare,), sink)]),
            receivers=torch.cat([graph.receivers, graph.receivers.new_full((n_spare,), sink)]),
            shifts=torch.cat([graph.shifts, graph.shifts.new_zeros((n_spare, 3))]),
            vectors=torch.cat([graph.vectors, far]),
        )

    def pad_meta(self, meta: HaloMeta, padded: Graph) -> HaloMeta:
        """The routing of the padded rows: spare ghosts are nobody's copies."""
        n_spare = padded.n_owned - meta.n_owned
        return replace(meta, n_owned=padded.n_owned, n_padded=padded.n_nodes, n_spare=n_spare)

    def unpad(self, values: Tensor, n_owned: int) -> Tensor:
        """(n_owned, ...) of the owned nodes, from values of all or of owned rows of a padded graph."""
        return values[:n_owned]

    def restore(self, values: Tensor, graph: Graph, padded: Graph) -> Tensor:
        """(n_nodes, ...) of ``graph`` from values of all rows of what ``pad`` made of it."""
        n_ghosts = graph.n_nodes - graph.n_owned
        return torch.cat([values[: graph.n_owned], values[padded.n_owned : padded.n_owned + n_ghosts]])


def _moved(nodes: Tensor, n_owned: int, n_spare: int) -> Tensor:
    """Where nodes are once spare ones follow the owned."""
    return torch.where(nodes < n_owned, nodes, nodes + n_spare)


def _spread(values: Tensor, n_owned: int, n_spare: int, n_spare_ghosts: int, filling: float = 0) -> Tensor:
    spare = values.new_full((n_spare, *values.shape[1:]), filling)
    spare_ghosts = values.new_full((n_spare_ghosts, *values.shape[1:]), filling)
    return torch.cat([values[:n_owned], spare, values[n_owned:], spare_ghosts])
