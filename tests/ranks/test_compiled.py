"""``--compile`` on several ranks: exact, by each strategy and for ranks without atoms, and compiled once for all."""

from __future__ import annotations

import numpy as np
import pytest

from tests.own_models import evaluate_whole, net_of
from tests.ranks.jobs.compiled import KINDS, N_STEPS, N_WARM_UP, NAMES, Choosy
from tests.ranks.jobs.message_passing import SYSTEMS

RANKS = (1, 2, 3, 4)
on_ranks = pytest.mark.parametrize("n_ranks", RANKS)
kinds = pytest.mark.parametrize("kind", KINDS)


@on_ranks
@kinds
@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_model_gives_what_the_whole_system_gives(answers, name, kind, n_ranks):
    """Among them one that knows no species but the structure's: what fills up a graph is of one of these."""
    found, key = answers(n_ranks), f"compiled/{name}/{kind}"
    atoms = SYSTEMS[name]()
    expected = evaluate_whole(atoms, Choosy(atoms, net_of(atoms)))
    np.testing.assert_allclose(found[f"{key}/forces"], expected.forces, rtol=0, atol=1e-10)
    assert float(found[f"{key}/energy"]) == pytest.approx(expected.energy, rel=0, abs=1e-10)
    if expected.stress is not None:
        np.testing.assert_allclose(found[f"{key}/stress"], expected.stress, rtol=0, atol=1e-12)


@on_ranks
@kinds
def test_after_warm_up_no_rank_compiles_anew_while_atoms_go_from_rank_to_rank(answers, kind, n_ranks):
    found = answers(n_ranks)
    rebuilds, migrations = found[f"compiled/moving/{kind}/counts"].T
    assert (rebuilds > N_STEPS / N_WARM_UP * 3).all()
    assert n_ranks == 1 or migrations.sum() > 0
    graphs, frames, graphs_at_end, frames_at_end = found[f"compiled/moving/{kind}/compiled"].T
    np.testing.assert_array_equal(graphs_at_end, graphs)
    np.testing.assert_array_equal(frames_at_end, frames)
    assert (graphs >= 3).all()  # of distances, of the first layer and of the others: torch skips none of them


@on_ranks
@kinds
def test_a_compiled_trajectory_is_the_one_that_is_not_compiled(answers, kind, n_ranks):
    found = answers(n_ranks)
    eager = "eager wide" if kind == "wide" else "eager"
    for what in ("positions", "total_eV"):
        compiled = found[f"compiled/moving/{kind}/{what}"]
        np.testing.assert_allclose(compiled, found[f"compiled/moving/{eager}/{what}"], rtol=0, atol=1e-10)
