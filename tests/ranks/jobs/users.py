"""A force model as a user writes one: it reads the context, and asks for nothing else."""

from __future__ import annotations

import numpy as np

from mdrun import NOT_DISTRIBUTED, DistributedContext, current_dd_context, units
from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.base import Forces
from tests.ranks.builders import warmed
from tests.ranks.cases import argon
from tests.ranks.jobs.gathering import on_each_rank
from tests.systems import pfcc, simulate

N_STEPS = 40
SEEN = (
    "rank", "world_size", "n_owned", "n_padded", "is_halo", "is_sharded", "is_distributed", "n_atoms_total",
    "n_systems_global", "meta_owned", "meta_padded", "sent", "indexed", "received", "is_same", "expected_owned",
    "expected_padded", "mesh_size", "has_policy", "ghost_width", "owned_offset",
)  # fmt: skip


class Curious:
    """Argon, and a look at the context in each evaluation."""

    name = "curious"

    def __init__(self) -> None:
        self.inner = argon(pfcc(1, 1, 1))
        self.cutoff = self.inner.cutoff
        self.setups: list[DistributedContext] = []
        self.n_teardowns = 0
        self.seen: list[list[float]] = []
        self.n_owned_seen: set[int] = set()

    def distributed_setup(self, context: DistributedContext) -> None:
        self.setups.append(context)

    def distributed_teardown(self) -> None:
        self.n_teardowns += 1

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        context = current_dd_context()
        meta = context.halo_meta
        assert meta is not None
        assert context.halo_config is not None
        context.extras["calls"] = context.extras.get("calls", 0) + 1
        self.n_owned_seen.add(domain.n_owned)
        self.seen.append([
            context.rank, context.world_size, context.n_owned, context.n_padded, context.is_halo, context.is_sharded,
            context.is_distributed, context.n_atoms_total, context.n_systems_global, meta.n_owned, meta.n_padded,
            sum(meta.send_sizes), len(meta.send_indices), sum(meta.recv_sizes), context is self.setups[0],
            domain.n_owned, domain.n_padded, context.mesh.size() if context.mesh is not None else 1,
            context.policy is not None, context.halo_config.ghost_width, context.owned_offset,
        ])  # fmt: skip
        return self.inner(domain, totals)


def compute(comm: Comm) -> dict[str, np.ndarray]:
    model = Curious()
    atoms = warmed(pfcc(8, 2, 2), 300.0)
    run = simulate(atoms, model, VelocityVerlet(5 * units.FS), N_STEPS, comm=comm, skin=0.3)
    outside = current_dd_context()
    after = on_each_rank(
        comm, outside is NOT_DISTRIBUTED, len(model.setups), model.n_teardowns, len(model.seen),
        run.sim.model.context.extras["calls"], len(model.n_owned_seen), run.sim.domain.counts.rebuilds,
    )  # fmt: skip
    return {
        "seen": np.stack([on_each_rank(comm, *(float(v) for v in look)) for look in model.seen]),
        "after": after,
        "positions": run.positions,
    }
