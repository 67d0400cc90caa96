"""The launch itself: a rank that fails or sleeps ends in a failed test, never in a hang."""

from __future__ import annotations

import pytest

from tests.ranks.launcher import RanksFailed, launch


def test_a_rank_that_fails_ends_the_launch_and_its_words_are_shown():
    with pytest.raises(RanksFailed, match=r"(?s)rank 1 ended with code 1.*this rank was told to fail"):
        launch(2, "fail", limit_s=60)


def test_ranks_that_sleep_are_ended_when_the_time_is_up():
    with pytest.raises(RanksFailed, match=r"(?s)the time is up, ranks \[0, 1\] are still at work"):
        launch(2, "sleep", limit_s=5)
