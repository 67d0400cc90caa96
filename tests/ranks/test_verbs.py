"""The four verbs, row by row, against what gathering all ranks' rows in one place gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.ranks.cases import PROBED
from tests.ranks.jobs.verbs import KINDS, N_STRUCTURES, STRATEGIES, feature

ALL = (1, 2, 3, 4, 5)
everywhere = pytest.mark.parametrize(
    ("name", "kind", "n_ranks"), [(name, kind, n) for name in PROBED for kind in KINDS for n in ALL]
)


class Gathered:
    """What the probes of all ranks saw. Rows of atoms are looked up by id, ghosts like owners."""

    def __init__(self, found: dict[str, np.ndarray], name: str, kind: str) -> None:
        def of(part: str) -> dict[str, np.ndarray]:
            key = f"verbs/{name}/{kind}/{part}/"
            return {k.removeprefix(key): v for k, v in found.items() if k.startswith(key)}

        self.rows, self.owned, self.totals = of("rows"), of("owned"), of("totals")
        self.n_owned, self.refusals = found[f"verbs/{name}/{kind}/n_owned"].T
        self.ids = self.rows["ids"].astype(int)
        self.is_owned = self.rows["is_owned"] == 1
        self.own_ids = self.ids[self.is_owned]
        self.n = len(self.own_ids)

    def folded(self, values: np.ndarray) -> np.ndarray:
        """(n, ...) sum of all rows of an atom, wherever they are, by id."""
        sums = np.zeros((self.n, *values.shape[1:]))
        np.add.at(sums, self.ids, values)
        return sums

    def by_id(self, owned: np.ndarray) -> np.ndarray:
        """(n, ...) values of owned rows."""
        table = np.empty((self.n, *owned.shape[1:]))
        table[self.own_ids] = owned
        return table


@pytest.fixture
def seen(answers, name, kind, n_ranks) -> Gathered:
    return Gathered(answers(n_ranks), name, kind)


def close(found, expected) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@everywhere
def test_refresh_gives_every_ghost_its_owners_value(seen):
    x = feature(torch.from_numpy(seen.ids)).numpy()
    for variant in ("refreshed", "refreshed_stale", "refreshed_local"):
        np.testing.assert_array_equal(seen.rows[variant], x)
    np.testing.assert_array_equal(seen.rows["refreshed_single"], x.astype(np.float32))
    np.testing.assert_array_equal(seen.rows["refreshed_ids"], seen.ids)
    np.testing.assert_array_equal(seen.rows["refreshed_tensors"].reshape(-1, 2, 2), x[:, :, None] * x[:, None, :])


@everywhere
def test_the_adjoint_of_refresh_sums_ghosts_into_owners(seen):
    close(seen.by_id(seen.owned["refresh_adjoint"]), seen.folded(seen.rows["weights"]))


@everywhere
def test_refresh_is_differentiable_twice(seen):
    """E = Σ y (Rx)³: dE/dx = 3 x² Σ y, and its slope along v is 6 x v Σ y, the sums over an atom's rows."""
    x = feature(torch.arange(seen.n)).numpy()
    y = seen.folded(seen.rows["weights"])
    close(seen.by_id(seen.owned["slope"]), 3 * x**2 * y)
    close(seen.by_id(seen.owned["curvature"]), 6 * x * seen.by_id(seen.owned["directions"]) * y)


@everywhere
def test_scatter_gives_every_row_the_sum_over_its_atoms_rows(seen):
    close(seen.rows["scattered"], seen.folded(seen.rows["partial"])[seen.ids])


@everywhere
def test_scatter_is_its_own_adjoint_and_differentiable_twice(seen):
    """S sums an atom's rows and gives the sum to each, so Sᵀ = S.

    With s = S p and E = Σ z s², dE/dp = 2 S(z s), and its slope along w is 2 S(z S w).
    """
    s = seen.folded(seen.rows["partial"])[seen.ids]
    z, w = seen.rows["scatter_weights"], seen.folded(seen.rows["scatter_directions"])[seen.ids]
    close(seen.rows["scatter_adjoint"], seen.folded(z)[seen.ids])
    close(seen.rows["scatter_slope"], 2 * seen.folded(z * s)[seen.ids])
    close(seen.rows["scatter_curvature"], 2 * seen.folded(z * w)[seen.ids])


@everywhere
def test_system_sums_count_owned_rows_once_and_agree_on_all_ranks(seen, n_ranks):
    sums = np.zeros((N_STRUCTURES, 2))
    np.add.at(sums, seen.own_ids % N_STRUCTURES, seen.rows["values"][seen.is_owned])
    for total in (seen.totals["sums"], seen.totals["sums_of_owned"]):
        assert len(total) == n_ranks
        close(total, np.broadcast_to(sums, total.shape))
        np.testing.assert_array_equal(total, np.broadcast_to(total[0], total.shape))


@everywhere
def test_system_sums_are_differentiable_twice_and_ghosts_have_no_part(seen, n_ranks):
    """The total T is one number for all ranks: E = Σ T² has the slope 2 T at each owned row, and at no ghost.

    The second derivative, along w on every rank, sums w over the ranks: 2 Σ w.
    """
    index = seen.ids % N_STRUCTURES
    sums, along = np.zeros((2, N_STRUCTURES, 2))
    np.add.at(sums, seen.own_ids % N_STRUCTURES, seen.rows["values"][seen.is_owned])
    np.add.at(along, seen.own_ids % N_STRUCTURES, seen.rows["sum_directions"][seen.is_owned])
    owned = seen.is_owned[:, None]
    close(seen.rows["sum_slope"], np.where(owned, 2 * sums[index], 0))
    close(seen.rows["sum_curvature"], np.where(owned, 2 * along[index], 0))


@everywhere
def test_a_wrong_number_of_rows_is_refused_on_every_rank(seen):
    np.testing.assert_array_equal(seen.refusals, 4)


@everywhere
def test_each_verb_and_its_adjoint_agree_on_every_product(seen):
    """⟨A x, y⟩ = ⟨x, Aᵀ y⟩, sums over the rows of all ranks; of the sum, ⟨A x, y⟩ is one number for all ranks."""
    x, y = feature(torch.from_numpy(seen.own_ids)).numpy(), seen.rows["weights"]
    close((seen.rows["refreshed"] * y).sum(), (x * seen.owned["refresh_adjoint"]).sum())
    p, z = seen.rows["partial"], seen.rows["scatter_weights"]
    close((seen.rows["scattered"] * z).sum(), (p * seen.rows["scatter_adjoint"]).sum())
    total = seen.totals["sums"][0]  # the slope of T² is Aᵀ 2 T
    close(2 * (total * total).sum(), (seen.rows["values"] * seen.rows["sum_slope"]).sum())


@pytest.mark.parametrize("kind", KINDS)
def test_the_probes_met_empty_ranks(answers, kind):
    assert (Gathered(answers(5), "three atoms in the open", kind).n_owned == 0).sum() == 2
    assert (Gathered(answers(4), "one atom and its images", kind).n_owned == 0).sum() == 3


@pytest.mark.parametrize("n_ranks", ALL)
def test_the_probes_of_the_partition_and_the_replicate_met_every_atom_on_every_rank(answers, n_ranks):
    for kind in STRATEGIES[1:]:
        seen = Gathered(answers(n_ranks), "cell smaller than the cutoff", kind)
        np.testing.assert_array_equal(np.bincount(seen.ids), n_ranks)
