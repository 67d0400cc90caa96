"""What each exchange between the example net's layers sends and takes, and each of verbs with and without a name."""

from __future__ import annotations

import numpy as np

from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.exchanges import EXCHANGES, FORCES
from mdrun.potentials.base import Forces
from mdrun.verbs import refresh_neighbors, scatter_to_owners, sum_into_owners
from tests.own_models import force_model, net_of
from tests.ranks.builders import gold_copper
from tests.ranks.jobs.gathering import on_each_rank
from tests.systems import evaluate


class Asking:
    """A force model that asks for four exchanges of one number an atom, one of which it names."""

    name, cutoff = "asking", 5.0

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        x = domain.charges[: domain.n_owned]
        padded = refresh_neighbors(x, "charges")
        scatter_to_owners(padded)
        sum_into_owners(padded)
        refresh_neighbors(x)
        plan, others = domain.plan, [rank for rank in range(domain.comm.size) if rank != domain.comm.rank]
        self.rows = [sum(sizes[rank] for rank in others) for sizes in (plan.send_sizes, plan.recv_sizes)]
        return Forces(x.new_zeros((len(x), 3)), 0.0, x.new_zeros((3, 3)))


def compute(comm: Comm) -> dict[str, np.ndarray]:
    """Bytes of each exchange of one evaluation on each rank, and the rows that it sends on the way there and back."""
    atoms = gold_copper()
    model = force_model(atoms, net_of(atoms))
    EXCHANGES.reset()
    evaluate(atoms, model, comm)
    meta = model._view.nodes.halo_meta
    rows = [sum(n for rank, n in enumerate(sizes) if rank != comm.rank) for sizes in (meta.send_sizes, meta.recv_sizes)]
    names = ("exchange 1", "exchange 2", FORCES)
    tallies = [EXCHANGES.tallies[name] for name in names] if comm.size > 1 else []
    found = {
        "names": np.array([n in names for n in EXCHANGES.tallies]),
        "bytes": on_each_rank(comm, *(tally.bytes for tally in tallies)),
        "rows": on_each_rank(comm, *rows),
        "seconds": on_each_rank(comm, *(tally.seconds for tally in tallies)),
    }
    EXCHANGES.reset()
    asking = Asking()
    evaluate(atoms, asking, comm)
    return found | {
        "asked": np.array(list(EXCHANGES.tallies)),
        "refreshes": np.array(EXCHANGES.n_asked),
        "asked_rows": on_each_rank(comm, *asking.rows),
        "asked_bytes": on_each_rank(comm, *(tally.bytes for tally in EXCHANGES.tallies.values())),
    }
