"""From ``--strategy`` to a strategy."""

from __future__ import annotations

from typing import Any

from mdrun.errors import InputError
from mdrun.strategies.gather import NodePartition, NodeReplicate
from mdrun.strategies.halo import HaloStrategy
from mdrun.strategies.names import AUTO, HALO, PARTITION

KINDS: dict[str, type[HaloStrategy]] = {s.name: s for s in (HaloStrategy, NodePartition, NodeReplicate)}


def choose_strategy(wanted: str, model: Any) -> HaloStrategy:
    """The strategy of that name; for "auto" the cheapest that serves the model.

    A rank never has more nodes under the halo than with all atoms, so the halo is taken wherever the model allows it;
    a model with ``needs_all_nodes``, which builds its own graph, gets the node partition.

    Raises:
        InputError: the model can't run so.
    """
    needs_all = bool(getattr(model, "needs_all_nodes", False))
    name = wanted if wanted != AUTO else PARTITION if needs_all else HALO
    strategy = KINDS[name]()
    if needs_all and not isinstance(strategy, NodePartition):
        raise InputError(f"model {model.name} needs all atoms on every rank: --strategy {name} can't give them.")
    if getattr(model, "ghost_reach", 0.0) and not strategy.has_wide:
        raise InputError(
            f"model {model.name} has layers that can't be reached between ranks: --strategy {name} does not serve it; "
            "leave --strategy auto."
        )
    if getattr(model, "needs_owned_first", False) and strategy.in_one_order:
        raise InputError(
            f"model {model.name} computes the first rows of a graph: --strategy {name} has its atoms elsewhere; "
            "leave --strategy auto."
        )
    return strategy
