"""The kinetic energy's distribution: samples drawn from the right one pass, from the next wrong one fail.

Every test of ``judge_kinetic`` fails a correct series once in ten thousand; seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest

from mdrun import units
from mdrun.integrate.thermostats import Bussi
from mdrun.validate.ensemble import check_ensemble, judge_kinetic, judge_shares
from mdrun.validate.verdict import FAIL, PASS, SKIPPED, WARN
from tests.systems import pfcc

T = 50.0
KT = units.KB * T


def bussi(n: int, n_dof: int, counted: int, seed: int = 1) -> np.ndarray:
    """(n,) kinetic energies of free particles in the thermostat's bath, which counts ``counted`` degrees of freedom."""
    thermostat, kinetic, energies = Bussi(T, 10.0, seed), n_dof * KT / 2, np.empty(n)
    for i in range(n):
        kinetic *= thermostat.factor(kinetic, counted, 1.0, i) ** 2
        energies[i] = kinetic
    return energies


@pytest.mark.parametrize("n_dof", [3, 30, 321])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_independent_samples_of_the_ensemble_pass(n_dof, seed):
    check = judge_kinetic(np.random.default_rng(seed).gamma(n_dof / 2, KT, 2000), n_dof, T)
    assert check.verdict == PASS, check
    assert check.numbers["mean_temperature_K"] == pytest.approx(T, rel=0.1)


def test_correlated_samples_of_the_ensemble_pass():
    """The thermostat's own series; n independent samples would put the mean of some of them far off."""
    for seed in range(10):
        assert judge_kinetic(bussi(5000, 27, 27, seed), 27, T).verdict == PASS


def test_a_thermostat_that_counts_three_degrees_too_many_fails():
    check = judge_kinetic(bussi(10_000, 27, 30), 27, T)
    assert check.verdict == FAIL
    assert check.value > check.limit
    assert "mean" in check.meaning


def test_a_wrong_width_and_a_wrong_shape_fail():
    rng = np.random.default_rng(1)
    narrow = 45 * KT + rng.normal(size=3000) * KT
    flat = 1.5 * KT + rng.uniform(-1, 1, 20_000) * np.sqrt(3 * 1.5) * KT  # mean and variance are right
    assert "width" in judge_kinetic(narrow, 90, T).meaning
    assert "shape" in (check := judge_kinetic(flat, 3, T)).meaning
    assert check.verdict == FAIL


def test_too_few_samples_are_no_verdict():
    assert judge_kinetic(bussi(200, 27, 27), 27, T).verdict == WARN


def test_berendsen_fails_where_bussi_passes(subject_of):
    bath = {"ensemble": "nvt", "temperature": 40.0, "timestep": 4.0, "thermostat_time": 40.0}
    good, bad = (
        check_ensemble(subject_of(atoms=pfcc(2, 2, 2), temperature_K=40.0, thermostat=name, **bath), 6000)
        for name in ("bussi", "berendsen")
    )
    assert (good.verdict, bad.verdict) == (PASS, FAIL)
    assert bad.numbers["width_over_expected"] < 0.8


def test_a_bath_at_zero_has_no_distribution(subject_of):
    assert judge_kinetic(np.zeros(100), 27, 0.0).verdict == SKIPPED


def test_nve_shares_its_energy_evenly(subject_of):
    check = check_ensemble(subject_of(temperature_K=80.0), 2000)
    assert check.verdict in (PASS, WARN)
    assert abs(check.numbers["along_x_relative"]) < 0.3


@pytest.mark.parametrize(("warmer", "verdict"), [(1.0, PASS), (1.1, WARN), (1.6, FAIL)])
def test_a_species_that_is_warmer_than_the_rest_fails(warmer, verdict):
    """Parts of 1,000 degrees of freedom: a draw of velocities leaves up to 20 % between them, not 60 %."""
    counts = np.array([1000.0, 1000, 1000, 1500, 1500])
    kinetic = np.random.default_rng(1).gamma(counts / 2, KT, (2000, 5))
    kinetic[:, 4] *= warmer
    kinetic[:, :3] = kinetic[:, 3:].sum(axis=1)[:, None] / 3
    check = judge_shares(kinetic, counts, ["along x", "along y", "along z", "of Ar", "of Kr"])
    assert check.verdict == verdict, check


def test_physical_validation_agrees_where_it_is_installed():
    pytest.importorskip("physical_validation")
    check = judge_kinetic(bussi(10_000, 27, 27), 27, T, n_atoms=10)
    assert check.numbers["physical_validation_p_shape"] > 1e-4
    wrong = judge_kinetic(bussi(10_000, 27, 30), 27, T, n_atoms=10)
    assert wrong.numbers["physical_validation_deviation_of_mean"] > 4
