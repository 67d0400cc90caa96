"""Every rank holds every node: the node partition, own nodes first, and the node replicate, one order everywhere.

Both are the halo's two linear maps with all other atoms as ghosts: features are gathered before a layer, and what
arrives in the backward is reduced and scattered to the owners.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mdrun.comm import Comm
from mdrun.context import DistributedContext, GatherMeta, current_dd_context
from mdrun.decompose.halo import HaloMeta, refresh
from mdrun.domain import Domain
from mdrun.fixed_shapes import resolve_cap
from mdrun.nodes import Nodes, origins_of_ghosts
from mdrun.strategies.halo import HaloPolicy, HaloStrategy
from mdrun.strategies.names import PARTITION, REPLICATE


class GatherPolicy(HaloPolicy):
    """How the verbs are answered where all nodes are here.

    Args:
        order: (n_global,) row of each node among those with this rank's own first; None where that is their order.
    """

    def __init__(self, comm: Comm, meta: HaloMeta, order: Tensor | None, owned_offset: int) -> None:
        super().__init__(comm)
        self._meta, self._order = meta, order
        self._owned = slice(owned_offset, owned_offset + meta.n_owned)
        self._own_first = None if order is None else order.argsort()

    def meta(self, context: DistributedContext) -> HaloMeta:
        return self._meta

    def owned(self, x: Tensor, meta: HaloMeta) -> Tensor:
        return x if len(x) == meta.n_owned else x[self._owned]

    def refresh(self, x: Tensor, context: DistributedContext, name: str | None) -> Tensor:
        return self._ordered(super().refresh(x, context, name))

    def folded(self, x: Tensor, context: DistributedContext, name: str) -> Tensor:
        if self._own_first is not None and len(x) == len(self._own_first):
            x = x.index_select(0, self._own_first)
        return super().folded(x, context, name)

    def scatter(self, x: Tensor, context: DistributedContext, name: str | None) -> Tensor:
        return self._ordered(super().scatter(x, context, name))

    def _ordered(self, own_first: Tensor) -> Tensor:
        return own_first if self._order is None else own_first.index_select(0, self._order)


class NodePartition(HaloStrategy):
    """Each rank computes its own nodes, which come first, and sees all: for models that build their own graph."""

    name = PARTITION
    cap_atoms = False
    has_wide = False

    def nodes(self, domain: Domain, is_wide: bool, is_capped: bool = False) -> Nodes:
        comm, device = domain.comm, domain.backend.device
        sizes = domain.owned_by_rank.tolist()
        if is_capped:  # all ranks alike, so that each one's nodes begin where they did
            sizes = [resolve_cap("owned", max(sizes) + 1, current_dd_context())] * comm.size
        n = sizes[comm.rank]
        n_spare = n - domain.n_owned
        begins = [sum(sizes[:rank]) for rank in range(comm.size)]
        begin, n_global = begins[comm.rank], sum(sizes)
        everyone = torch.arange(n_global, device=device)  # by number: rank after rank
        is_own = (everyone >= begin) & (everyone < begin + n)
        place = torch.where(is_own, everyone - begin, everyone + torch.where(everyone < begin, n, 0))
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        meta = HaloMeta(
            n,
            n_global,
            send_indices=torch.arange(n, device=device).repeat(len(others)),
            send_sizes=[n if rank in others else 0 for rank in range(comm.size)],
            recv_sizes=[sizes[rank] if rank in others else 0 for rank in range(comm.size)],
            n_spare=n_spare,
        )
        offset = begin if self.in_one_order else 0
        policy = GatherPolicy(comm, meta, place if self.in_one_order else None, offset)

        origins = origins_of_ghosts(domain)
        number = torch.arange(begin, begin + domain.n_padded, device=device)
        number[domain.n_owned :] = torch.tensor(begins, device=device)[origins.rank] + origins.row
        shifts = torch.zeros((domain.n_padded, 3), dtype=torch.float64, device=device)
        shifts[domain.n_owned :] = origins.shifts

        def spread(values: Tensor, filling: float = 0) -> Tensor:
            spare = values.new_full((n_spare, *values.shape[1:]), filling)
            gathered = refresh(torch.cat([values[: domain.n_owned], spare]), meta, comm)
            return gathered.index_select(0, place) if self.in_one_order else gathered

        return Nodes(
            n, n_global, number if self.in_one_order else place[number], shifts, spread, None, offset,
            gather_meta=GatherMeta(n, n_global), policy=policy,
        )  # fmt: skip


class NodeReplicate(NodePartition):
    """Every rank has all nodes in one order and computes an interior slice; partial sums are added up."""

    name = REPLICATE
    in_one_order = True
