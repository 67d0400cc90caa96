"""The example net on several ranks against one dense evaluation of the whole system with ASE's neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from mdrun.potentials.registry import load_model
from tests.own_models import evaluate_whole, net_of
from tests.ranks.jobs.message_passing import COMPILED, N_LAYERS, STRATEGIES, SYSTEMS
from tests.systems import evaluate, species_of

RANKS = (1, 2, 3, 4, 5)
everywhere = pytest.mark.parametrize(("name", "n_ranks"), [(name, n) for name in SYSTEMS for n in RANKS])


class Answer:
    """What one kind of model gave on the ranks, and what the dense evaluation gives."""

    def __init__(self, found: dict[str, np.ndarray], name: str, kind: str) -> None:
        key = f"message_passing/{name}/{kind}"
        self.energy, self.forces = float(found[f"{key}/energy"]), found[f"{key}/forces"]
        self.stress = found.get(f"{key}/stress")
        atoms = SYSTEMS[name]()
        self.dense = evaluate_whole(atoms, net_of(atoms))

    def is_close(self, forces: float, energy: float, stress: float) -> bool:
        return (
            abs(self.energy - self.dense.energy) < energy
            and np.abs(self.forces - self.dense.forces).max() < forces
            and (self.stress is None or np.abs(self.stress - self.dense.stress).max() < stress)
        )


@everywhere
@pytest.mark.parametrize("kind", ["net", "wide", *STRATEGIES])
def test_energy_forces_and_stress_do_not_depend_on_the_number_of_ranks(answers, name, n_ranks, kind):
    assert Answer(answers(n_ranks), name, kind).is_close(forces=1e-12, energy=1e-11, stress=1e-13)


@pytest.mark.parametrize("n_ranks", RANKS)
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_model_of_fixed_shapes_gives_the_same(answers, name, n_ranks):
    assert Answer(answers(n_ranks), name, "compiled").is_close(forces=1e-12, energy=1e-11, stress=1e-13)


@everywhere
def test_single_precision_gives_the_same_within_its_rounding(answers, name, n_ranks):
    assert Answer(answers(n_ranks), name, "single").is_close(forces=2e-6, energy=2e-5, stress=1e-7)


@pytest.mark.parametrize("n_ranks", [2, 3, 4, 5])
def test_without_the_refresh_the_comparison_fails(answers, n_ranks):
    """So it would tell a wrong one."""
    assert not Answer(answers(n_ranks), "two species", "no refresh").is_close(forces=1e-2, energy=1e-2, stress=1e-5)


@everywhere
def test_no_rank_computes_features_of_ghosts(answers, name, n_ranks):
    assert answers(n_ranks)[f"message_passing/{name}/rows"].sum() == N_LAYERS * len(SYSTEMS[name]())


@everywhere
def test_a_sum_shares_one_list_from_which_each_model_takes_what_is_within_its_cutoff(answers, name, n_ranks):
    atoms = SYSTEMS[name]()
    zbl = evaluate(atoms, load_model("zbl:inner=4,outer=6", species_of(atoms)))
    found = Answer(answers(n_ranks), name, "sum")
    assert found.energy == pytest.approx(found.dense.energy + zbl.energy, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(found.forces, found.dense.forces + zbl.forces, rtol=0, atol=1e-10)
    if found.stress is not None:
        np.testing.assert_allclose(found.stress, found.dense.stress + zbl.stress, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_ranks", RANKS[1:])
def test_a_trajectory_does_not_depend_on_the_number_of_ranks(answers, n_ranks):
    one, many = answers(1), answers(n_ranks)
    np.testing.assert_allclose(
        many["message_passing/moving/positions"], one["message_passing/moving/positions"], rtol=0, atol=1e-10
    )
    np.testing.assert_allclose(
        many["message_passing/moving/total_eV"], one["message_passing/moving/total_eV"], rtol=0, atol=1e-10
    )
    rebuilds, migrations = many["message_passing/moving/counts"].T
    assert (rebuilds > 1).all()
    assert migrations.sum() > 0
