"""The casebook's numbers for decomposed runs, each from the entry named beside the test."""

from __future__ import annotations

import numpy as np
import pytest
from ase import units

from tests.ranks.builders import in_box
from tests.ranks.jobs.dynamics import SEEDS

EVEN = (1, 2, 4)
ALL = (1, 2, 3, 4, 5)


@pytest.mark.parametrize("n_ranks", ALL)
def test_forces_and_pressure_of_the_perturbed_crystal(n_ranks, answers):
    found = answers(n_ranks)
    forces, stress = found["statics/A-22 4 4 4/forces"], found["statics/A-22 4 4 4/stress"]
    np.testing.assert_allclose(forces[0], [1.99257689e-3, -2.33093324e-3, -1.40555588e-5], rtol=0, atol=5e-12)
    lengths = np.linalg.norm(forces, axis=1)
    assert (lengths.argmax(), lengths.max()) == (12, pytest.approx(0.162637455, abs=5e-10))
    np.testing.assert_allclose(np.diag(stress), [-8.9653e-4, -1.04367e-3, -1.02436e-3], rtol=0, atol=5e-9)
    for name, pressure_GPa in (("A-22 4 4 4", 0.158325114), ("A-22 8 2 2", 0.161782415), ("A-29", 0.142511538)):
        stress = found[f"statics/{name}/stress"]
        assert -np.trace(stress) / 3 / units.GPa == pytest.approx(pressure_GPa, abs=5e-9), name


@pytest.mark.parametrize("n_ranks", EVEN)
def test_pressure_and_stress_of_one_atom(n_ranks, answers):
    found = answers(n_ranks)
    for a, pressure_GPa in ((5.0, 0.872415), (5.26, 0.0148492), (5.6, -0.249739)):
        stress = found[f"statics/A-56 {a}/stress"]
        assert -np.trace(stress) / 3 / units.GPa == pytest.approx(pressure_GPa, abs=2e-6)
    assert found["statics/A-56 5.0/stress"][0, 0] == pytest.approx(-0.00544519, abs=5e-9)
    left_handed = found["statics/A-11/stress"]
    assert -np.trace(left_handed) / 3 / units.GPa == pytest.approx(0.0148492, abs=5e-8)


@pytest.mark.parametrize("n_ranks", EVEN)
def test_pressure_is_how_energy_falls_with_volume(n_ranks, answers):
    found = answers(n_ranks)
    smaller, larger = (found[f"statics/A-56 {a}, shifted/energy"] for a in (5.2599, 5.2601))
    pressure = -(larger - smaller) / (5.2601**3 - 5.2599**3) * 4
    stress = found["statics/A-56 5.26, shifted/stress"]
    assert -np.trace(stress) / 3 == pytest.approx(pressure, rel=1e-5)


@pytest.mark.parametrize("n_ranks", ALL)
def test_atoms_out_of_reach_feel_nothing(n_ranks, answers):
    found = answers(n_ranks)
    for name in ("A-17 alone", "A-17 single"):
        assert found[f"statics/{name}/energy"] == 0
        assert not found[f"statics/{name}/forces"].any()
        assert not found[f"statics/{name}/stress"].any()
    assert found["statics/A-17 last/forces"].shape == (3, 3)
    assert not found["statics/A-17 last/forces"][2].any()


@pytest.mark.parametrize("n_ranks", ALL)
def test_an_unwrapped_migrant_is_seen_by_its_neighbour(n_ranks, answers):
    forces = answers(n_ranks)["statics/A-25/forces"]
    np.testing.assert_allclose(np.abs(forces), [[0, 0, 0.005782358]] * 2, rtol=0, atol=5e-10)
    np.testing.assert_allclose(forces.sum(axis=0), 0, atol=1e-15)


@pytest.mark.parametrize("n_ranks", EVEN)
def test_the_crystal_moves_from_rest_as_the_casebook_says(n_ranks, answers):
    found = answers(n_ranks)
    kinetic, potential = found["casebook/A-22/kinetic"], found["casebook/A-22/potential"]
    np.testing.assert_allclose(kinetic[[1, 10]], [0.021140516, 1.150966098], rtol=0, atol=2e-9)
    np.testing.assert_allclose((potential + kinetic)[[0, 1, 10]], [-18.30948, -18.30948, -18.30952], rtol=0, atol=6e-6)
    last = found["casebook/A-22/positions"][-1, 0]
    np.testing.assert_allclose(last, [0.01652522, 0.02526623, 0.04411494], rtol=0, atol=6e-9)


@pytest.mark.parametrize("n_ranks", EVEN)
def test_an_atom_that_crosses_the_border_is_always_seen(n_ranks, answers):
    found = answers(n_ranks)
    potential, x = found["casebook/A-24/potential"], found["casebook/A-24/positions"][:, :, 0]
    np.testing.assert_allclose(potential[[0, 2]], [-0.005676992, -0.006970890], rtol=0, atol=1e-9)
    np.testing.assert_allclose(x[2], [20.1000030, 24.4999970], rtol=0, atol=1e-7)
    np.testing.assert_allclose(x[10], [20.9000715, 24.4999285], rtol=0, atol=1e-7)
    serial = answers(1)
    np.testing.assert_allclose(potential, serial["casebook/A-24/potential"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(x, serial["casebook/A-24/positions"][:, :, 0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_noise_belongs_to_the_atom_and_the_seed_and_not_to_the_rank(n_ranks, answers):
    found = answers(n_ranks)
    start = in_box([(5, 10, 10), (25, 10, 10)], [40, 20, 20]).positions
    assert len(set(found["langevin/0/owners"])) == 2  # each atom on a rank of its own
    moves = [found[f"langevin/{number}/positions"][-1] - start for number in range(len(SEEDS))]
    assert np.abs(moves[0][0] - moves[0][1]).min() > 1e-4
    np.testing.assert_array_equal(moves[0], moves[1])
    assert np.abs(moves[0] - moves[2]).min() > 1e-4
    serial = answers(1)["langevin/0/positions"][-1] - start
    np.testing.assert_allclose(moves[0], serial, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_ranks", EVEN)
def test_one_thermostat_for_all_ranks(n_ranks, answers):
    found, serial = answers(n_ranks), answers(1)
    for name in ("kinetic", "conserved", "positions"):
        np.testing.assert_allclose(
            found[f"casebook/A-27/{name}"], serial[f"casebook/A-27/{name}"], rtol=0, atol=1e-9, err_msg=name
        )
    conserved = found["casebook/A-27/conserved"]
    assert np.ptp(conserved) < 0.05 * np.ptp(found["casebook/A-27/kinetic"])
