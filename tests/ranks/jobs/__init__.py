"""What the ranks compute, by name: each job is called on every rank and returns arrays; rank 0's are kept."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from mdrun.comm import Comm
from tests.ranks.jobs import (
    bonds,
    calculators,
    charges,
    compiled,
    dynamics,
    exchanges,
    halo,
    message_passing,
    packages,
    pressure,
    rebuilds,
    relaxing,
    statics,
    strategies,
    torch_backend,
    users,
    verbs,
)

Job = Callable[[Comm], dict[str, np.ndarray]]


def fail_on_the_last_rank(comm: Comm) -> dict[str, np.ndarray]:
    if comm.rank == comm.size - 1:
        raise RuntimeError("this rank was told to fail")
    comm.broadcast(None)  # from rank 0, which then waits below
    time.sleep(600)
    return {}


def sleep(comm: Comm) -> dict[str, np.ndarray]:
    time.sleep(600)
    return {}


JOBS: dict[str, Job] = {
    "statics": statics.compute,
    "lower": statics.compute_in_lower_precision,
    "dynamics": dynamics.compute,
    "casebook": dynamics.compute_casebook,
    "langevin": dynamics.compute_noise,
    "verbs": verbs.compute,
    "users": users.compute,
    "halo": halo.compute,
    "message_passing": message_passing.compute,
    **packages.JOBS,
    "calculators": calculators.compute,
    "charges": charges.compute,
    "compiled": compiled.compute,
    "exchanges": exchanges.compute,
    "strategies": strategies.compute,
    "bonds": bonds.compute,
    "rebuilds": rebuilds.compute,
    "pressure": pressure.compute,
    "relaxing": relaxing.compute,
    "torch": torch_backend.compute,
    "fail": fail_on_the_last_rank,
    "sleep": sleep,
}
ALWAYS = ("statics", "dynamics", "verbs", "halo", "charges", "rebuilds", "message_passing", "strategies")


def jobs_on(n_ranks: int) -> str:
    """What is worth computing on so many ranks."""
    more = {3: ("pressure",), 5: ()}.get(n_ranks, ("pressure", "casebook", "langevin", "users"))
    more = (*more, *(["compiled"] if n_ranks <= 4 else []), *(["relaxing", "bonds"] if n_ranks <= 3 else []))
    return ",".join((*ALWAYS, *more))
