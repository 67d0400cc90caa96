"""What ``--strategy auto`` chooses is the cheapest that serves; models get the nodes that they ask for, or no run."""

from __future__ import annotations

import numpy as np
import pytest

from mdrun.strategies.choice import KINDS
from tests.own_models import evaluate_whole
from tests.ranks.builders import icosahedron
from tests.ranks.jobs.message_passing import SYSTEMS
from tests.ranks.jobs.strategies import LENGTH, WIDE, WIDE_SYSTEMS, Common, Embedded

RANKS = (1, 2, 3, 4, 5)


@pytest.mark.parametrize("n_ranks", RANKS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_no_strategy_gives_a_rank_fewer_nodes_than_the_one_that_is_chosen(answers, system, n_ranks):
    nodes = answers(n_ranks)[f"strategies/nodes/{system}"]
    assert (nodes[:, -1] == nodes.min(axis=1)).all()
    assert (nodes.max(axis=1) == len(SYSTEMS[system]())).all()  # with all atoms, each is a node once


@pytest.mark.parametrize("n_ranks", RANKS)
@pytest.mark.parametrize("kind", ["wide", "compiled"])
@pytest.mark.parametrize("system", WIDE_SYSTEMS)
def test_layers_that_call_no_verb_are_right_in_a_wide_halo(answers, system, kind, n_ranks):
    atoms = WIDE_SYSTEMS[system]()
    expected = evaluate_whole(atoms, Embedded(WIDE))
    found, key = answers(n_ranks), f"strategies/{system}/{kind}"
    assert float(found[f"{key}/energy"]) == pytest.approx(expected.energy, rel=1e-12)
    np.testing.assert_allclose(found[f"{key}/forces"], expected.forces, rtol=0, atol=1e-11)


@pytest.mark.parametrize("n_ranks", RANKS)
@pytest.mark.parametrize("kind", [*KINDS, "wide", "compiled"])
@pytest.mark.parametrize("system", WIDE_SYSTEMS)
def test_energies_that_feel_a_sum_over_all_atoms_have_their_slopes(answers, system, kind, n_ranks):
    """What the energies of other ranks' atoms owe to the sum comes home through it."""
    atoms = WIDE_SYSTEMS[system]()
    expected = evaluate_whole(atoms, Common(WIDE))
    found, key = answers(n_ranks), f"strategies/common/{system}/{kind}"
    assert float(found[f"{key}/energy"]) == pytest.approx(expected.energy, rel=1e-11)
    np.testing.assert_allclose(found[f"{key}/forces"], expected.forces, rtol=0, atol=1e-9)
    if expected.stress is not None:
        np.testing.assert_allclose(found[f"{key}/stress"], expected.stress, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_ranks", RANKS)
def test_a_model_that_needs_all_atoms_has_them_in_a_sum_too(answers, n_ranks):
    found = {key.removeprefix("strategies/"): value for key, value in answers(n_ranks).items()}
    positions = icosahedron(60.0).positions
    apart = positions[:, None] - positions[None]
    r = np.linalg.norm(apart, axis=2) + np.diag(np.full(len(positions), np.inf))
    weights = np.exp(-r / LENGTH)
    forces = 2 / LENGTH * np.einsum("ij,ijk->ik", weights / r, apart)
    assert float(found["far/energy"]) == pytest.approx(weights.sum(), rel=1e-12)
    np.testing.assert_allclose(found["far/forces"], forces, rtol=0, atol=1e-11)
    assert float(found["far and zbl/energy"]) == pytest.approx(weights.sum() + float(found["zbl/energy"]), rel=1e-12)
    np.testing.assert_allclose(found["far and zbl/forces"], forces + found["zbl/forces"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_ranks", RANKS[1:])
def test_layers_that_ask_nobody_for_neighbours_are_refused_on_several_ranks(answers, n_ranks):
    refusal = str(answers(n_ranks)["strategies/forgotten"])
    assert "2 layers and asked 0 times" in refusal
    assert "refresh_neighbors" in refusal
