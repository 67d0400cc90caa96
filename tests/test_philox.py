"""Random numbers: known answers, distribution, and independence of everything but seed, stream, step and id.

Seeds are fixed, so a statistical test passes or fails for good; its false-alarm rate is the chance that a sound
generator would have failed with the seed that happened to be chosen.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from mdrun.errors import InputError
from mdrun.philox import STREAM_LANGEVIN, STREAM_VELOCITIES, normals, philox4x32

FALSE_ALARM = 1e-4

# Random123's kat_vectors, philox 4x32 of 10 rounds
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


def draw(seed: int = 11, stream: int = STREAM_LANGEVIN, step: int = 5, n: int = 200_000) -> np.ndarray:
    return normals(seed, stream, step, torch.arange(n)).numpy()


def assert_uncorrelated(a: np.ndarray, b: np.ndarray) -> None:
    """Correlations of every column with every other are normal with variance 1/n; Bonferroni's level for nine."""
    correlations = a.T @ b / len(a) * math.sqrt(len(a))
    assert abs(correlations).max() < stats.norm.isf(FALSE_ALARM / 2 / correlations.size)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_words_are_those_that_the_authors_published(counter, key, answer):
    assert tuple(int(w) for w in philox4x32(words(counter), words(key))) == words(answer)


def test_normals_are_box_and_muller_of_the_documented_words():
    seed, stream, step, atom = (5 << 32) + 7, 3, (2 << 32) + 9, (4 << 32) + 6
    counter = (atom & 0xFFFFFFFF, (stream << 16) + (atom >> 32), step & 0xFFFFFFFF, step >> 32)
    w = [int(word) for word in philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))]
    radii = [math.sqrt(-2 * math.log((w[k] + 1) / 2**32)) for k in (0, 2)]
    # the top two bits choose a quarter turn, the others a place in it, seen from its middle
    angles = [math.pi / 2 * ((w[k] >> 30) + ((w[k] & (2**30 - 1)) + 0.5) / 2**30 - 0.5) for k in (1, 3)]
    expected = [
        radii[0] * math.cos(angles[0]),
        radii[0] * math.sin(angles[0]),
        radii[1] * math.cos(angles[1]),
    ]
    np.testing.assert_allclose(normals(seed, stream, step, torch.tensor([atom]))[0], expected, rtol=1e-13)


@pytest.mark.parametrize("column", range(3))
def test_each_component_is_a_standard_normal(column):
    """Kolmogorov-Smirnov, and the first four moments; five tests of level FALSE_ALARM / 5 each."""
    x = draw()[:, column]
    level = FALSE_ALARM / 5
    assert stats.kstest(x, "norm").pvalue > level
    bound = stats.norm.isf(level / 2) / math.sqrt(len(x))
    for power, mean, deviation in (
        (1, 0, 1),
        (2, 1, math.sqrt(2)),
        (3, 0, math.sqrt(15)),
        (4, 3, math.sqrt(96)),
    ):
        assert abs((x**power).mean() - mean) < bound * deviation


def test_components_are_independent():
    """Also in size: the two that share a radius must not be large together. False-alarm rate 1e-4 for each."""
    x = draw()
    squares = (x**2 - 1) / math.sqrt(2)
    for values in (x, squares):
        for a, b in ((0, 1), (0, 2), (1, 2)):
            z = (values[:, a] * values[:, b]).mean() * math.sqrt(len(x))
            assert abs(z) < stats.norm.isf(FALSE_ALARM / 2 / 3)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 12},
        {"seed": 11 + 2**32},
        {"step": 6},
        {"step": 5 + 2**32},
        {"stream": STREAM_VELOCITIES},
        {"stream": 2},
    ],
)
def test_neighboring_seeds_steps_and_streams_are_uncorrelated(other):
    assert_uncorrelated(draw(), draw(**other))


@pytest.mark.parametrize("lag", [1, 2, 3, 256])
def test_neighboring_atoms_are_uncorrelated(lag):
    x = draw()
    assert_uncorrelated(x[:-lag], x[lag:])


def test_numbers_do_not_depend_on_order_or_company():
    whole = draw(n=1000)
    order = np.random.default_rng(0).permutation(1000)
    shuffled = normals(11, STREAM_LANGEVIN, 5, torch.from_numpy(order)).numpy()
    assert (shuffled == whole[order]).all()
    for n in (1, 2, 3, 7, 8, 9):
        assert (draw(n=n) == whole[:n]).all()


def test_no_atoms_draw_no_numbers():
    assert normals(1, STREAM_LANGEVIN, 0, torch.empty(0, dtype=torch.int64)).shape == (0, 3)


def test_the_largest_seed_step_and_id_are_in_range():
    x = normals(2**64 - 1, 2**16 - 1, 2**64 - 1, torch.tensor([0, 2**48 - 1]))
    assert torch.isfinite(x).all()
    assert len(x.unique()) == 6


@pytest.mark.parametrize("seed", [-1, 2**64, 10**30])
def test_seeds_out_of_range_are_refused(seed):
    with pytest.raises(InputError, match=str(seed)):
        normals(seed, STREAM_LANGEVIN, 0, torch.arange(3))
