"""Means and their errors against series whose errors are known.

Seeds are fixed; a test's false-alarm rate is that of a seed picked blindly. ``SIGMAS`` = 5 is 6e-7 for each comparison.
"""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from ase import Atoms
from scipy import signal, stats

from mdrun.comm import Comm
from mdrun.integrate.nvt import Langevin
from mdrun.report.averages import in_words, show_averages
from mdrun.report.console import make_console
from mdrun.run.averages import AVERAGED, FEWEST, MOST_ROWS, Average, Averages, Rows, average, averages_of
from mdrun.run.simulation import Observer
from mdrun.run.thermo import Thermometer
from mdrun.units import FS, PS
from tests.systems import argon, pfcc, simulate

SIGMAS = 5


def correlated(n: int, phi: float, n_series: int, seed: int = 1) -> np.ndarray:
    """(n_series, n) of mean 0, variance 1 and autocorrelation φ^t."""
    noise = np.random.default_rng(seed).normal(size=(n_series, n))
    noise[:, 1:] *= math.sqrt(1 - phi**2)
    return signal.lfilter([1], [1, -phi], noise, axis=1)


def true_error(n: int, phi: float) -> float:
    """Of the mean of such a series."""
    t = np.arange(1, n)
    return math.sqrt((1 + 2 * ((1 - t / n) * phi**t).sum()) / n)


# phi = 0 is white noise
@pytest.mark.parametrize(("n", "phi"), [(1000, 0.0), (2000, 0.5), (8000, 0.9)])
def test_the_error_is_the_true_one(n, phi):
    """Its mean over 300 series, at SIGMAS of its own scatter, beside 3 % that a finite series may be off."""
    errors = np.array([average("x", x).error for x in correlated(n, phi, 300)]) / true_error(n, phi)
    assert errors.mean() == pytest.approx(1, abs=0.03 + SIGMAS * errors.std() / math.sqrt(300))
    assert errors.std() < 0.2


@pytest.mark.parametrize(("n", "phi"), [(200, 0.0), (500, 0.5), (1000, 0.9), (8000, 0.97)])
def test_the_mean_is_as_far_off_as_its_error_says(n, phi):
    """More than two errors in 4.6 % of all series, if errors were known; 8 % allowed, since they are estimated.

    1000 series: false alarms are those of a binomial count, 1e-4 at 8 %.
    """
    found = [average("x", x) for x in correlated(n, phi, 1000)]
    far = sum(abs(a.mean) > 2 * a.error for a in found if a.error is not None)
    assert stats.binom.sf(far - 1, 1000, 0.08) > 1e-4
    assert stats.binom.cdf(far, 1000, 0.046) > 1e-4


def test_independent_rows_are_counted():
    """n (1 - φ) / (1 + φ): 8000 rows are 421. Its mean over 100 series, within SIGMAS of its scatter and 5 %."""
    counts = np.array([average("x", x).n_effective for x in correlated(8000, 0.9, 100)])
    expected = 8000 * 0.1 / 1.9
    assert counts.mean() == pytest.approx(expected, abs=0.05 * expected + SIGMAS * counts.std() / 10)


def test_anticorrelation_is_not_counted_on():
    (x,) = correlated(500, -0.6, 1)
    assert average("x", x).error == pytest.approx(x.std() / math.sqrt(499), rel=1e-12)
    assert average("x", x).n_effective == 500


def test_large_values_of_small_scatter_lose_nothing():
    (x,) = correlated(500, 0.5, 1)
    assert average("x", -2e5 + 1e-4 * x).error == pytest.approx(1e-4 * average("x", x).error, rel=1e-5)


@pytest.mark.parametrize("value", [0.0, 1166.4])
def test_a_constant_has_no_error(value):
    x = np.full(50, value)
    x[::3] *= 1 + 1e-15  # sums over ranks may round
    found = average("x", x)
    assert (found.error, found.is_constant) == (0, True)
    assert found.mean == pytest.approx(value, rel=1e-14)


@pytest.mark.parametrize(
    "x",
    [[1.0], [1.0, 2.0], *correlated(FEWEST - 1, 0, 1), *correlated(1000, 0.999, 1), np.linspace(0, 1, 1000)],
    ids=["one", "two", "short", "slow", "drift"],
)
def test_too_little_to_tell_is_said(x):
    found = average("x", np.array(x))
    assert found.error is None
    assert found.mean == pytest.approx(np.mean(x), abs=1e-12)
    assert found.n_effective < FEWEST


# Rows of a run


def rows_of(x: np.ndarray) -> Rows:
    """Every quantity alike."""
    rows = Rows(Thermometer(Comm()))
    for value in x:
        rows.add(np.full(len(AVERAGED), value))
    return rows


def test_the_first_fifth_is_left_out():
    (x,) = correlated(1001, 0.3, 1)
    found = rows_of(np.concatenate([x[:201] + 1e6, x[201:]])).averages()
    assert (found.n_rows, found.n_used) == (1001, 800)
    assert found.averages[0].mean == pytest.approx(x[201:].mean(), rel=1e-12)


def test_one_slow_quantity_makes_all_too_short():
    (fast,), (slow,) = correlated(400, 0.3, 1), correlated(400, 0.999, 1)
    series = {"temperature_K": fast, "total_eV": fast, "conserved_eV": slow, "volume_A3": np.ones(400)}
    assert [a.error is None for a in averages_of(series)] == [False, False, True, False]  # the conserved may wander
    found = averages_of({**series, "total_eV": slow, "conserved_eV": slow})
    assert [a.error is None for a in found] == [False, True, True, False]  # without a bath
    found = averages_of({**series, "total_eV": slow, "conserved_eV": fast})
    assert [a.error for a in found] == [None, None, None, 0]
    assert found[0] == replace(average("temperature_K", fast), error=None)


def test_long_runs_are_kept_as_means_of_rows():
    (x,) = correlated(5 * MOST_ROWS, 0.9, 1)
    found = rows_of(x).averages()
    whole = average("x", x[len(x) // 5 :])
    assert found.n_rows == len(x)
    assert found.n_used == pytest.approx(0.8 * len(x), abs=16)
    assert found.averages[0].mean == pytest.approx(whole.mean, abs=0.02 * whole.error)
    assert found.averages[0].error == pytest.approx(whole.error, rel=0.15)
    assert found.averages[0].n_effective == pytest.approx(whole.n_effective, rel=0.3)


def test_nothing_logged_is_nothing_averaged():
    assert rows_of(np.empty(0)).averages() == Averages(0, 0, ())
    assert rows_of(np.ones(1)).averages() == Averages(1, 0, ())


def averaged(atoms: Atoms) -> tuple[dict[str, Average], list]:
    rows = Rows(Thermometer(Comm()))
    run = simulate(
        atoms, argon(), Langevin(4 * FS, 60, 5 / PS, seed=1), 400, watch=5, observers=[Observer(5, rows)]
    )  # fmt: skip
    return {a.name: a for a in rows.averages().averages}, run.thermo[17:]


def test_a_run_is_averaged():
    found, thermo = averaged(pfcc(2, 2, 2))
    assert list(found) == list(AVERAGED)
    for name in AVERAGED:
        assert found[name].mean == pytest.approx(np.mean([getattr(t, name) for t in thermo]), rel=1e-12)
    assert found["volume_A3"].is_constant
    assert found["density_g_cm3"].is_constant


def test_what_is_unknown_is_left_out():
    atoms = pfcc(2, 2, 2)
    atoms.pbc = False
    assert list(averaged(atoms)[0]) == ["temperature_K", "potential_eV", "total_eV", "conserved_eV"]


# In words


@pytest.mark.parametrize(
    ("mean", "error", "words"),
    [
        (40.1234, 0.3149, ("40.12", "0.31")),
        (-35.770143, 0.00098, ("-35.77014", "0.00098")),
        (26508.3, 123.0, ("26508", "123")),
        (0.00012345, 1.2e-7, ("0.00012345", "0.00000012")),
        (-38.4, None, ("-38.4", "too short to tell")),
    ],
)
def test_numbers_are_shown_to_the_second_digit_of_their_error(mean, error, words):
    assert in_words(Average("x", mean, error, 20)) == words


def shown(averages: Averages) -> list[str]:
    stream = io.StringIO()
    show_averages(make_console(stream), averages)
    return stream.getvalue().splitlines()


def test_a_line_begins_with_the_name_of_its_column():
    lines = shown(rows_of(correlated(500, 0.5, 1)[0]).averages())
    assert lines[0].startswith("averages: the last 400 of 500 rows, the first fifth left out")
    assert [line.split()[0] for line in lines[2:]] == [name for name in AVERAGED if name != "conserved_eV"]


def test_few_rows_and_constants_make_no_table():
    (line,) = shown(rows_of(correlated(11, 0, 1)[0]).averages())
    assert line.startswith("averages: the last 8 of 11 rows are too few")
    assert shown(rows_of(np.ones(100)).averages()) == []
