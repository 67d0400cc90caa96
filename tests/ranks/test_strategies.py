"""What ``--strategy auto`` chooses is the cheapest, counted."""

from __future__ import annotations

import pytest

from tests.ranks.jobs.message_passing import SYSTEMS


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("system", SYSTEMS)
def test_no_strategy_gives_a_rank_fewer_nodes_than_the_one_that_is_chosen(answers, system, n_ranks):
    nodes = answers(n_ranks)[f"strategies/nodes/{system}"]
    assert (nodes[:, -1] == nodes.min(axis=1)).all()
    assert (nodes.max(axis=1) == len(SYSTEMS[system]())).all()  # with all atoms, each is a node once
