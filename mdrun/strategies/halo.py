"""The halo strategy: owned rows first, ghosts after; receivers are owned rows only."""

from __future__ import annotations

import torch
from torch import Tensor

from mdrun.comm import Comm
from mdrun.context import DistributedContext, HaloConfig, HaloMeta
from mdrun.decompose.halo import fold, refresh
from mdrun.domain import Domain
from mdrun.exchanges import EXCHANGES
from mdrun.nodes import Nodes, padded_nodes, unique_nodes
from mdrun.strategies.names import HALO


class HaloPolicy:
    """How the verbs are answered where ghosts mirror owners.

    Attributes:
        differentiates_shares: at present each rank takes the slope of a share, that of the energies of its own atoms;
            otherwise of a whole, the same number on every rank.
    """

    def __init__(self, comm: Comm) -> None:
        self.comm = comm
        self.differentiates_shares = False

    def meta(self, context: DistributedContext) -> HaloMeta:
        """The routing in force."""
        return _meta(context)

    def owned(self, x: Tensor, meta: HaloMeta) -> Tensor:
        """The rows of a tensor of all or of owned rows that this rank owns."""
        return x[: meta.n_owned]

    def refresh(self, x: Tensor, context: DistributedContext, name: str | None) -> Tensor:
        meta = self.meta(context)
        if len(x) not in (meta.n_owned, meta.n_padded):
            raise ValueError(
                f"refresh_neighbors takes {meta.n_owned} owned or {meta.n_padded} padded rows, not {len(x)}"
            )
        if self.comm.size == 1 and meta.n_owned == meta.n_padded:
            return x
        return refresh(self.owned(x, meta), meta, self.comm, EXCHANGES.asked(name, True))

    def fold(self, x: Tensor, context: DistributedContext, name: str | None) -> Tensor:
        return self.folded(x, context, EXCHANGES.asked(name, False))

    def folded(self, x: Tensor, context: DistributedContext, name: str) -> Tensor:
        meta = self.meta(context)
        if len(x) != meta.n_padded:
            raise ValueError(f"summing into owners takes {meta.n_padded} padded rows, not {len(x)}")
        return fold(x, meta, self.comm, name)

    def scatter(self, x: Tensor, context: DistributedContext, name: str | None) -> Tensor:
        name = EXCHANGES.asked(name, True)
        return refresh(self.folded(x, context, name), self.meta(context), self.comm, name)

    def system_sum(self, values: Tensor, index: Tensor, n: int, context: DistributedContext) -> Tensor:
        meta = self.meta(context)
        owned = meta.n_owned
        if len(values) not in (owned, meta.n_padded) or len(index) != len(values):
            raise ValueError(
                f"system_sum takes {owned} owned or {meta.n_padded} padded rows of values and as many indices, "
                f"not {len(values)} and {len(index)}"
            )
        atoms = slice(owned - meta.n_spare)
        index, values = self.owned(index, meta)[atoms], self.owned(values, meta)[atoms]
        local = values.new_zeros((n, *values.shape[1:])).index_add(0, index, values)
        return _SumOverRanks.apply(local, self)


def _meta(context: DistributedContext) -> HaloMeta:
    if context.halo_meta is None:
        raise ValueError("the context has no halo yet: a verb was called before the first force evaluation")
    return context.halo_meta


class _SumOverRanks(torch.autograd.Function):
    """Local share → total, the same on every rank.

    While ranks differentiate shares of an energy, each share may feel the total, and the slope at the total is the sum
    of all ranks' slopes: this function is its own adjoint. While each of them differentiates the same whole, that has
    the slope already, which passes as it is; the reverse, whose input is one number used on every rank, sums over them
    (the conjugate pair of Megatron-LM, arXiv:1909.08053).
    """

    @staticmethod
    def forward(ctx, local: Tensor, policy: HaloPolicy) -> Tensor:
        ctx.policy = policy
        return policy.comm.all_sum(local).clone()

    @staticmethod
    def backward(ctx, *grads):
        adjoint = _SumOverRanks if ctx.policy.differentiates_shares else _UseOnEveryRank
        return adjoint.apply(grads[0], ctx.policy), None


class _UseOnEveryRank(torch.autograd.Function):
    @staticmethod
    def forward(ctx, total: Tensor, policy: HaloPolicy) -> Tensor:
        ctx.policy = policy
        return total.clone()

    @staticmethod
    def backward(ctx, *grads):
        adjoint = _UseOnEveryRank if ctx.policy.differentiates_shares else _SumOverRanks
        return adjoint.apply(grads[0], ctx.policy), None


class HaloStrategy:
    """Builds the context of a scope and writes each step's halo into it; says which nodes a graph has.

    Attributes:
        in_one_order: nodes are in the same order on every rank, so that owned ones are not the first.
        has_wide: whether nodes may have neighbours that are two and more layers away.
    """

    name = HALO
    cap_atoms = True
    has_wide = True
    in_one_order = False

    def open(self, domain: Domain, n_atoms: int) -> DistributedContext:
        comm = domain.comm
        mesh = comm.device_mesh()
        return DistributedContext(
            mesh=mesh,
            policy=HaloPolicy(comm),
            strategy=self,
            halo_config=HaloConfig(
                partitioner=domain.partitioner,
                ghost_width=domain.ghost_width,
                process_group=mesh.get_group() if mesh is not None else None,
                rank=comm.rank,
            ),
            n_systems_global=1,
            n_atoms_total=n_atoms,
            cap_atoms=self.cap_atoms,
        )

    def close(self, context: DistributedContext) -> None:
        """Let go of the ranks: their connections live as long as the last reference to the group."""
        context.mesh = None
        if context.halo_config is not None:
            context.halo_config.process_group = None

    def nodes(self, domain: Domain, is_wide: bool, is_capped: bool = False) -> Nodes:
        """Of the graph until the next rebuild; a collective.

        Args:
            is_capped: shapes are to be fixed. Where the graph's padder doesn't cap atoms (``cap_atoms``), nodes are
                filled up here.
        """
        return padded_nodes(domain) if is_wide else unique_nodes(domain)

    def publish(self, context: DistributedContext, domain: Domain) -> None:
        """Show the present halo in the context."""
        plan = domain.plan
        assert plan is not None
        context.halo_meta = HaloMeta(
            n_owned=domain.n_owned,
            n_padded=domain.n_padded,
            send_indices=plan.send_indices,
            send_sizes=plan.send_sizes,
            recv_sizes=plan.recv_sizes,
        )
