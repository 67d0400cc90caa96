"""How many nodes each strategy gives a rank, and the one that ``auto`` chooses."""

from __future__ import annotations

import numpy as np

from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.scope import Scope
from mdrun.strategies.choice import STRATEGIES, choose_strategy
from tests.own_models import force_model, net_of
from tests.ranks.jobs.gathering import on_each_rank
from tests.ranks.jobs.message_passing import SYSTEMS
from tests.systems import state_of


def compute(comm: Comm) -> dict[str, np.ndarray]:
    """(rank, strategy) nodes of each system, ``auto`` last."""
    found = {}
    for system, build in SYSTEMS.items():
        atoms, held = build(), []
        for name in (*STRATEGIES, "auto"):
            model = force_model(atoms, net_of(atoms))
            domain, state = Domain(comm, model.cutoff, 1.0), state_of(atoms, comm)
            with Scope(model, domain, len(atoms), choose_strategy(name, model)) as scope:
                domain.follow(state)
                scope.strategy.publish(scope.context, domain)
                held.append(scope.strategy.nodes(domain, False).n_nodes)
        found[f"nodes/{system}"] = on_each_rank(comm, *held)
    return found
