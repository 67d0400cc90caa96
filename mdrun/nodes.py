"""Which atoms are the nodes of a rank's graph, and how the values of those that others own get here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mdrun.decompose.halo import HaloMeta
from mdrun.domain import Domain


@dataclass(frozen=True)
class Nodes:
    """The node set of a rank between two rebuilds.

    Attributes:
        n_owned: of this rank, from row ``owned_offset`` on; with the spare ones at their end, where numbers are fixed.
        of_row: (n_padded,) node of each padded row of the domain.
        shifts: (n_padded, 3) float64 cell vectors from the node to that row.
        spread: from values of the domain's padded rows (n_padded, ...), and a number for spare nodes, to values of the
            nodes (n_nodes, ...); a collective where nodes lie outside of the halo.
        halo_meta, gather_meta, owned_offset, policy: what the context shows while a model looks at the nodes; the
            policy of the scope where there is none.
        is_wide: nodes are the padded rows themselves, and have neighbours like owned ones.
    """

    n_owned: int
    n_nodes: int
    of_row: Tensor
    shifts: Tensor
    spread: Callable[..., Tensor]
    halo_meta: HaloMeta | None
    owned_offset: int = 0
    is_wide: bool = False
    gather_meta: Any = None
    policy: Any = None

    def positions(self, domain: Domain) -> Tensor:
        """(n_nodes, 3) float64 Å, as they are now; fresh memory."""
        return self.spread(domain.packed[:-1, :3])


@dataclass(frozen=True)
class Origins:
    """Where the domain's ghost rows come from: their owner's rank and row, and the cell vectors to the image.

    Attributes:
        rank, row: (n_ghosts,) int64.
        shifts: (n_ghosts, 3) float64.
    """

    rank: Tensor
    row: Tensor
    shifts: Tensor


def origins_of_ghosts(domain: Domain) -> Origins:
    """A collective."""
    plan, comm = domain.plan, domain.comm
    assert plan is not None
    letters = torch.cat([plan.send_indices[:, None].double(), plan.send_shifts], dim=1)
    arrived = comm.exchange(letters, plan.send_sizes, plan.recv_sizes)
    ranks = torch.repeat_interleave(torch.tensor(plan.recv_sizes, device=arrived.device))
    return Origins(ranks, arrived[:, 0].long(), arrived[:, 1:].contiguous())


def unique_nodes(domain: Domain) -> Nodes:
    """Owned atoms, then one node for each atom of another rank that is listed as a neighbour here; a collective.

    The position of such a ghost node is that of one of its images.
    """
    n, comm = domain.n_owned, domain.comm
    origins = origins_of_ghosts(domain)
    device = origins.row.device
    of_row = torch.arange(domain.n_padded, device=device)
    shifts = torch.zeros((domain.n_padded, 3), dtype=torch.float64, device=device)
    shifts[n:] = origins.shifts
    is_own = origins.rank == comm.rank
    of_row[n:][is_own] = origins.row[is_own]
    ghosts = torch.nonzero(_is_listed(domain)[n:] & ~is_own).flatten()

    owned_by_rank = torch.from_numpy(domain.owned_by_rank).to(device)
    number = origins.row + (owned_by_rank.cumsum(0) - owned_by_rank)[origins.rank]  # tells the system's atoms apart
    atoms, node = torch.unique(number[ghosts], return_inverse=True)
    image = torch.full_like(atoms, len(is_own)).scatter_reduce(0, node, ghosts, "amin")
    of_row[n:][ghosts] = n + node
    shifts[n:][ghosts] -= origins.shifts[image][node]

    wanted = torch.bincount(origins.rank[image], minlength=comm.size).tolist()
    send_sizes = comm.exchange_sizes(wanted)
    send_indices = comm.exchange(origins.row[image], wanted, send_sizes)
    rows = torch.cat([torch.arange(n, device=device), n + image])
    meta = HaloMeta(n, n + len(atoms), send_indices, send_sizes, wanted)
    return Nodes(n, len(rows), of_row, shifts, lambda values, filling=0: values.index_select(0, rows), meta)


def _is_listed(domain: Domain) -> Tensor:
    """(n_padded,) whether a row is a neighbour of an owned one."""
    is_listed = torch.zeros(domain.n_padded + 1, dtype=torch.bool, device=domain.backend.device)
    columns = torch.arange(domain.neighbors.shape[1], device=is_listed.device)
    is_listed[domain.neighbors[columns < domain.n_neighbors[:, None]].long()] = True
    return is_listed[:-1]


def padded_nodes(domain: Domain) -> Nodes:
    """Every padded row is a node of its own, owned or ghost: what a wide halo needs, and nothing is exchanged."""
    plan = domain.plan
    assert plan is not None
    of_row = torch.arange(domain.n_padded, device=domain.backend.device)
    shifts = torch.zeros((domain.n_padded, 3), dtype=torch.float64, device=of_row.device)
    meta = HaloMeta(domain.n_owned, domain.n_padded, plan.send_indices, plan.send_sizes, plan.recv_sizes)
    return Nodes(
        domain.n_owned, domain.n_padded, of_row, shifts, lambda values, filling=0: values.clone(), meta, is_wide=True
    )
