"""What each exchange between the example net's layers sends and takes."""

from __future__ import annotations

import numpy as np

from mdrun.comm import Comm
from mdrun.exchanges import EXCHANGES, FORCES
from tests.own_models import force_model, net_of
from tests.ranks.builders import gold_copper
from tests.ranks.jobs.gathering import on_each_rank
from tests.systems import evaluate


def compute(comm: Comm) -> dict[str, np.ndarray]:
    """Bytes of each exchange of one evaluation on each rank, and the rows that it sends on the way there and back."""
    atoms = gold_copper()
    model = force_model(atoms, net_of(atoms))
    EXCHANGES.reset()
    evaluate(atoms, model, comm)
    meta = model._view.nodes.halo_meta
    rows = [sum(n for rank, n in enumerate(sizes) if rank != comm.rank) for sizes in (meta.send_sizes, meta.recv_sizes)]
    names = ("layer 2", "layer 3", FORCES)
    tallies = [EXCHANGES.tallies[name] for name in names] if comm.size > 1 else []
    return {
        "names": np.array([n in names for n in EXCHANGES.tallies]),
        "bytes": on_each_rank(comm, *(tally.bytes for tally in tallies)),
        "rows": on_each_rank(comm, *rows),
        "seconds": on_each_rank(comm, *(tally.seconds for tally in tallies)),
    }
