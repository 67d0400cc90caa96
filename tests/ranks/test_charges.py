"""Damped shifted force Coulomb on several ranks: charges are ghosts' too, and migrate with their atoms."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ranks.jobs.charges import hot_salt


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_charged_atoms_feel_the_same_on_any_number_of_ranks(answers, n_ranks):
    one, many = answers(1), answers(n_ranks)
    assert many["charges/energy"] == pytest.approx(one["charges/energy"], rel=1e-13)
    np.testing.assert_allclose(many["charges/forces"], one["charges/forces"], rtol=0, atol=1e-11)
    np.testing.assert_allclose(many["charges/stress"], one["charges/stress"], rtol=0, atol=1e-13)


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_charges_stay_with_their_atoms_through_migration(answers, n_ranks):
    one, many = answers(1), answers(n_ranks)
    assert many["charges/migrations"][0] > 0
    np.testing.assert_array_equal(many["charges/charges"], hot_salt().get_initial_charges())
    np.testing.assert_allclose(many["charges/positions"], one["charges/positions"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(many["charges/energies"], one["charges/energies"], rtol=1e-11)
