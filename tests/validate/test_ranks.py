"""Several ranks against one: real processes that the check starts itself."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mdrun.validate import ranks
from mdrun.validate.ranks import check_ranks, compare, judge
from mdrun.validate.verdict import FAIL, PASS, SKIPPED, WARN
from tests.systems import pfcc


@pytest.fixture(autouse=True)
def two_ranks_only(monkeypatch):
    monkeypatch.setattr(ranks, "NUMBERS", (2,))


def test_a_model_that_depends_on_the_rank_fails(subject_of):
    check = check_ranks(subject_of("rank", atoms=pfcc(2, 2, 2)))
    assert check.verdict == FAIL
    assert check.value > 1e-6
    assert "dealt out" in check.meaning
    json.dumps(check.as_json(), allow_nan=False)


def test_ranks_that_end_badly_fail_with_their_words(subject_of):
    check = check_ranks(subject_of("crash", atoms=pfcc(2, 2, 2)))
    assert check.verdict == FAIL
    assert "2 ranks gave no answer" in check.meaning
    assert "only one rank was ever tried" in check.meaning


def test_more_atoms_than_one_rank_should_hold_are_not_asked_of_it(subject_of, monkeypatch):
    monkeypatch.setattr(ranks, "MOST_ATOMS", 10)
    assert check_ranks(subject_of()).verdict == SKIPPED


def answer(off: float = 0.0, off_energy: float = 0.0) -> dict[str, np.ndarray]:
    forces = np.ones((4, 3))
    return {
        "energy": np.array(1.0 + off_energy),
        "virial": np.eye(3),
        "forces": forces + off,
        "positions": forces + off,
    }


@pytest.mark.parametrize(
    ("off", "off_energy", "fault", "verdict"),
    [
        (1e-13, 0.0, "none", PASS),
        (1e-9, 0.0, "none", WARN),  # a user's model, which may compute in single precision
        (1e-4, 0.0, "none", FAIL),
        (0.0, 1e-3, "none", FAIL),
    ],
)
def test_what_may_differ(subject_of, off, off_energy, fault, verdict):
    assert judge({2: compare(answer(), answer(off, off_energy))}, subject_of(fault)).verdict == verdict


def test_a_built_in_model_in_double_has_no_such_excuse(subject_of):
    subject = subject_of(model="lj:epsilon=0.0104,sigma=3.4,cutoff=8.5")
    assert judge({2: compare(answer(), answer(1e-9))}, subject).verdict == FAIL
