"""All ranks rebuild together, at half a skin; what migrates keeps all of its fields."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mdrun.decompose.migrate import unpack_rows
from mdrun.state import FIELDS
from tests.ranks.jobs.rebuilds import tagged_fields

ALL = (1, 2, 3, 4, 5)
several = pytest.mark.parametrize("n_ranks", ALL)


@several
def test_one_atom_beyond_half_a_skin_makes_all_ranks_rebuild(n_ranks, answers):
    np.testing.assert_array_equal(answers(n_ranks)["rebuilds/agreement"], np.repeat([[1], [1], [2]], n_ranks, axis=1))


@several
def test_atoms_that_creep_are_followed_by_a_rebuild_at_every_half_skin(n_ranks, answers):
    """Steps of 0.2 skins: 0, 0.2, 0.4, and 0.6 rebuilds and counts from there."""
    expected = np.array([1, 1, 1, 2, 2, 2, 3, 3, 3, 4])
    np.testing.assert_array_equal(answers(n_ranks)["rebuilds/creeping"], np.repeat(expected[:, None], n_ranks, axis=1))


@several
def test_dangerous_builds_are_counted_where_checks_come_too_seldom(n_ranks, answers):
    dangerous, rebuilds = answers(n_ranks)["rebuilds/dangerous"].T
    np.testing.assert_array_equal(rebuilds, 3)  # at the start, and at both checks of forty steps
    assert dangerous.max() == 2
    dangerous, rebuilds = answers(n_ranks)["rebuilds/careful"].T
    assert (rebuilds > 3).all()
    np.testing.assert_array_equal(dangerous, 0)


@several
def test_every_field_travels_with_its_atom(n_ranks, answers):
    found = answers(n_ranks)
    fields = unpack_rows(torch.from_numpy(found["rebuilds/journeys/rows"]), FIELDS)
    order = fields["ids"].argsort()
    expected = tagged_fields(torch.arange(len(order)))
    assert set(expected) | {"positions"} == set(fields)
    for name, values in expected.items():
        np.testing.assert_array_equal(fields[name][order].numpy(), values.numpy(), err_msg=name)
    np.testing.assert_allclose(
        fields["positions"][order].numpy(), found["rebuilds/journeys/expected_positions"], rtol=0, atol=1e-12
    )
    if n_ranks > 1:
        assert (found["rebuilds/journeys/moved"] > 20).all()


@several
def test_ghosts_carry_their_owners_species_and_charge(n_ranks, answers):
    ids, types, charges = answers(n_ranks)["rebuilds/journeys/ghost_fields"].T
    expected = tagged_fields(torch.from_numpy(ids.astype(int)))
    np.testing.assert_array_equal(types, expected["types"].numpy())
    np.testing.assert_array_equal(charges, expected["charges"].numpy())


@several
def test_no_atom_is_lost_or_doubled_by_migration(n_ranks, answers):
    np.testing.assert_array_equal(answers(n_ranks)["rebuilds/journeys/owned"].sum(axis=1), 64)


@several
def test_space_is_cut_anew_when_atoms_gather_in_a_corner(n_ranks, answers):
    owned = answers(n_ranks)["rebuilds/corner"]
    np.testing.assert_array_equal(owned.sum(axis=1), 200)
    assert owned[-1].max() <= 1.15 * 200 / n_ranks
