"""One set of processes for each number of ranks, for the whole session; tests read what it found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.ranks.jobs import jobs_on
from tests.ranks.launcher import RanksFailed, launch

Answers = Callable[[int], dict[str, np.ndarray]]


@pytest.fixture(scope="session")
def answers() -> Answers:
    """``answers(n)``: the arrays of the jobs on n ranks, by "job/name"."""
    return _answers(jobs_on)


@pytest.fixture(scope="session")
def lower_answers() -> Answers:
    """The same in mixed and single precision: other kernels, which take their own time to compile."""
    return _answers(lambda _: "lower")


def _answers(jobs_on: Callable[[int], str]) -> Answers:
    """One rank always goes first: it compiles, the others find the kernels in the cache."""
    found: dict[int, dict[str, np.ndarray] | RanksFailed] = {}

    def of(n_ranks: int) -> dict[str, np.ndarray]:
        if n_ranks > 1:
            of(1)
        if n_ranks not in found:
            try:
                found[n_ranks] = launch(n_ranks, jobs_on(n_ranks))
            except RanksFailed as failure:
                found[n_ranks] = failure  # once is enough
        answer = found[n_ranks]
        if isinstance(answer, RanksFailed):
            pytest.fail(str(answer), pytrace=False)
        return answer

    return of
