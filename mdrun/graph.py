"""What a machine-learned potential sees of a rank's atoms: nodes, and edges that end at owned ones.

A node is an atom, once: an image of an atom that this rank owns is the owned node seen across a border of the cell, and
all images of an atom of another rank are one ghost node. Edges follow from the domain's neighbour list: which there may
be changes at rebuilds alone, which of them are within the cutoff at each step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mdrun.backends.base import RowList
from mdrun.cell import mapped
from mdrun.decompose.halo import HaloPlan
from mdrun.domain import Domain
from mdrun.neighbors.torch_list import Rooms
from mdrun.nodes import Nodes


@dataclass
class Graph:
    """One evaluation's nodes and edges.

    Tensors that aren't connected to autograd are overwritten by the next evaluation: copy what is to be kept.

    Attributes:
        n_owned: nodes that this rank computes; their rows are ``owned``.
        owned_offset: where they start: 0, but where every rank holds all nodes in one order.
        ids: (n_nodes,) int64 index in the input file; -1 for a node that fills up a fixed shape: of a species of the
            structure, without an edge to an atom.
        numbers: (n_nodes,) int64 atomic numbers.
        charges: (n_nodes,) e, as in the input.
        positions: (n_nodes, 3) Å from ``origin``; the energy's gradient at them gives the forces.
        origin: (3,) float64 Å, near this rank's atoms: single precision would suffer far from it.
        cell: (3, 3) row vectors, Å. Rows of open axes may be anything, zero included.
        pbc: periodic axes.
        senders: (n_edges,) int64 node of the neighbour.
        receivers: (n_edges,) int64 node that it is a neighbour of, ascending; an owned one, except in a wide halo.
        shifts: (n_edges, 3) whole numbers of cell vectors to the neighbour's image.
        vectors: (n_edges, 3) Å, ``positions[senders] + shifts @ cell - positions[receivers]``; taken in double
            precision, and connected to the positions and the cell.
        cutoff: Å; every edge is shorter.
        is_wide: edges end at ghosts too.
    """

    n_owned: int
    ids: Tensor
    numbers: Tensor
    charges: Tensor
    positions: Tensor
    origin: Tensor
    cell: Tensor
    pbc: tuple[bool, bool, bool]
    senders: Tensor
    receivers: Tensor
    shifts: Tensor
    vectors: Tensor
    cutoff: float
    owned_offset: int = 0
    is_wide: bool = False

    @property
    def n_nodes(self) -> int:
        return len(self.ids)

    @property
    def n_edges(self) -> int:
        return len(self.senders)

    @property
    def owned(self) -> slice:
        """Rows of the owned nodes."""
        return slice(self.owned_offset, self.owned_offset + self.n_owned)

    def sum_edges(self, values: Tensor) -> Tensor:
        """(n_owned, ...) sums of (n_edges, ...) over the edges that end at each owned node; (n_nodes, ...) if wide."""
        sums = values.new_zeros((self.n_nodes if self.is_wide else self.n_owned, *values.shape[1:]))
        into = self.receivers - self.owned_offset if self.owned_offset else self.receivers
        return sums.index_add(0, into, values)

    def filtered(self, cutoff: float) -> Graph:
        """The same nodes, with the edges shorter than ``cutoff`` (Å) alone."""
        kept = torch.nonzero(self.vectors.detach().square().sum(dim=1) < cutoff**2).flatten()
        edges = {name: getattr(self, name).index_select(0, kept) for name in EDGE_FIELDS}
        return replace(self, cutoff=min(cutoff, self.cutoff), **edges)


EDGE_FIELDS = ("senders", "receivers", "shifts", "vectors")


@dataclass
class Evaluation:
    """A graph, and what the energy's gradient is taken at.

    Attributes:
        leaf: (n_nodes, 3) float64 positions.
        strain: (3, 3) float64 zeros that positions and cell follow; None where it isn't asked for.
    """

    graph: Graph
    leaf: Tensor
    strain: Tensor | None


class GraphView:
    """A rank's graphs, one for each evaluation; edges that may come within the cutoff are kept from rebuild to rebuild.

    Args:
        numbers: atomic numbers of the structure's types.
        cutoff: Å, at most the domain's.
    """

    def __init__(self, numbers: tuple[int, ...], cutoff: float) -> None:
        self.cutoff = cutoff
        self._numbers_of_types = torch.tensor(numbers, dtype=torch.int64)
        self._plan: HaloPlan | None = None
        self._nodes: Nodes | None = None
        self._rooms: Rooms | None = None
        self._list: RowList | None = None  # of a wide halo

    def knows(self, domain: Domain) -> bool:
        """Whether the rows are those of the last evaluation."""
        return self._plan is domain.plan and self._nodes is not None

    @property
    def nodes(self) -> Nodes:
        assert self._nodes is not None
        return self._nodes

    def adopt(self, domain: Domain, nodes: Nodes) -> None:
        """Learn the nodes, and the edges that there may be until the next rebuild."""
        device = domain.backend.device
        self._plan, self._nodes = domain.plan, nodes
        self._rooms = self._rooms or Rooms(device)
        receivers, rows = self._pairs(domain)
        self._receivers = receivers + nodes.owned_offset if nodes.owned_offset else receivers
        self._senders = nodes.of_row.index_select(0, rows)
        self._shifts = nodes.shifts.index_select(0, rows)
        if nodes.is_wide:
            self._shifts.zero_()
        self._ids = nodes.spread(domain.ids, -1)
        numbers = self._numbers_of_types.to(device)[domain.types.long()]
        filling = int(self._numbers_of_types[0])
        self._numbers, self._charges = nodes.spread(numbers, filling), nodes.spread(domain.charges)

    def _pairs(self, domain: Domain) -> tuple[Tensor, Tensor]:
        """(n,) padded rows each: of those that have neighbours, ascending, and of the neighbours."""
        matrix, counts = domain.neighbors, domain.n_neighbors
        if self.nodes.is_wide:
            self._list = self._list or domain.backend.neighbor_list()
            self._list.build(domain.positions, domain.n_padded, domain.reach)
            matrix, counts = self._list.matrix, self._list.counts
        counts = counts.long()
        columns = torch.arange(matrix.shape[1], device=matrix.device)
        is_neighbor = columns < counts[:, None]
        return torch.repeat_interleave(counts), matrix[is_neighbor].long()

    def evaluation(self, domain: Domain, dtype: torch.dtype, with_strain: bool) -> Evaluation:
        """The graph of the present positions, in ``dtype``."""
        device = domain.backend.device
        origin = torch.from_numpy(domain.middle).to(device)
        leaf = (self.nodes.positions(domain) - origin).requires_grad_()
        cell = domain.cell.to(device)
        senders, receivers, shifts = self._within_cutoff(leaf.detach(), cell)
        moved, strained, strain = leaf, cell, None
        if with_strain:
            strain = torch.zeros((3, 3), dtype=torch.float64, device=device, requires_grad=True)
            moved, strained = leaf + mapped(leaf, strain), cell + mapped(cell, strain)
        vectors = moved.index_select(0, senders) - moved.index_select(0, receivers)
        if any(domain.pbc):
            vectors = vectors + mapped(shifts, strained)
        graph = Graph(
            n_owned=self.nodes.n_owned,
            ids=self._ids,
            numbers=self._numbers,
            charges=self._charges.to(dtype),
            positions=moved.to(dtype),
            origin=origin,
            cell=strained.to(dtype),
            pbc=domain.pbc,
            senders=senders,
            receivers=receivers,
            shifts=shifts.to(dtype),
            vectors=vectors.to(dtype),
            cutoff=self.cutoff,
            owned_offset=self.nodes.owned_offset,
            is_wide=self.nodes.is_wide,
        )
        return Evaluation(graph, leaf, strain)

    def _within_cutoff(self, positions: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Senders, receivers and shifts of the edges that are shorter than the cutoff now."""
        assert self._rooms is not None
        n = len(self._senders)
        ends, starts, squares = (self._rooms.take(f"{name} of all", n, 3, dtype=torch.float64) for name in "abc")
        torch.index_select(positions, 0, self._senders, out=ends)
        torch.index_select(positions, 0, self._receivers, out=starts)
        ends.sub_(starts)
        torch.mm(self._shifts, cell, out=starts)  # only for the choice: bits don't matter
        torch.square(ends.add_(starts), out=squares)
        kept = torch.nonzero(squares.sum(dim=1) < self.cutoff**2).flatten()
        chosen = []
        for name, whole in (("senders", self._senders), ("receivers", self._receivers), ("shifts", self._shifts)):
            room = self._rooms.take(name, len(kept), *whole.shape[1:], dtype=whole.dtype)
            chosen.append(torch.index_select(whole, 0, kept, out=room))
        return chosen[0], chosen[1], chosen[2]
