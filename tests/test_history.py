"""The history of a run's starts as it is kept and as it is read, whoever wrote it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import pytest

from mdrun import __version__
from mdrun.run.history import (
    MOST_CHANGES,
    MOST_STARTS,
    MOST_TEXT,
    Ending,
    Start,
    ending_of,
    starts_before,
    starts_of,
    this_start,
    with_start,
)
from mdrun.run.settings import Settings

FIRST = Start("2026-12-02T14:00:00+00:00", 0, "node1", 4, 2, "cpu", "numba", "1.0")
SECOND = replace(FIRST, step=20, changes=("--timestep from 1.0 to 2.0",), before=Ending("stopped", 20, "SIGTERM", 75))


def as_json(*starts: Start) -> list:
    return json.loads(json.dumps([asdict(start) for start in starts]))


def test_what_is_written_is_read_back():
    assert starts_of(as_json(FIRST, SECOND)) == (FIRST, SECOND)
    assert starts_of([]) == ()


def test_a_start_says_when_in_utc_where_and_with_what():
    start = this_start(Settings(structure="a", device="cuda", backend="torch"), 7, 3, 2, ["a change"], None)
    assert (start.step, start.ranks, start.threads, start.device, start.backend) == (7, 3, 2, "cuda", "torch")
    assert (start.mdrun, start.changes, start.before) == (__version__, ("a change",), None)
    at = datetime.fromisoformat(start.at)
    assert at.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - at) < timedelta(days=1)


def test_the_oldest_of_too_many_starts_is_dropped():
    history: tuple[Start, ...] = ()
    for step in range(MOST_STARTS + 3):
        history = with_start(history, replace(FIRST, step=step))
    assert [start.step for start in history] == list(range(3, MOST_STARTS + 3))
    assert starts_of(as_json(*history)) == history


def test_whatever_words_a_start_is_told_can_be_read_back():
    odd = "a\x1b[31m path \udcff of\n two lines " + "x" * 10_000
    start = this_start(
        Settings(structure="a"), 0, 1, 1, [odd] * 1000, ending_of({"state": odd, "reason": odd}, "running")
    )
    assert starts_of(as_json(start)) == (start,)
    assert len(start.changes) == MOST_CHANGES
    assert start.changes[0].startswith("a?[31m path ? of two lines xxx")


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ({}, Ending("unknown")),
        ({"state": "running", "step": 12, "reason": None, "exit_code": None}, Ending("died", 12)),
        ({"state": "stopped", "step": 12, "reason": "SIGTERM", "exit_code": 75}, Ending("stopped", 12, "SIGTERM", 75)),
        ({"state": 5, "step": "many", "reason": ["x"], "exit_code": True}, Ending("unknown")),
        ({"state": "failed", "step": -1, "exit_code": 10**30}, Ending("failed")),
    ],
)
def test_how_a_process_ended_is_told_as_far_as_its_status_goes(status, ending):
    assert ending_of(status, "running") == ending


def test_the_longer_of_two_histories_counts_and_one_that_is_none_does_not():
    assert starts_before({"history": as_json(FIRST, SECOND)}, (FIRST,)) == (FIRST, SECOND)
    assert starts_before({"history": as_json(FIRST)}, (FIRST, SECOND)) == (FIRST, SECOND)
    for lost in ({}, {"history": "x"}, {"history": [{}]}):
        assert starts_before(lost, (FIRST, SECOND)) == (FIRST, SECOND)


@pytest.mark.parametrize(
    "changes",
    [
        {"at": "yesterday"}, {"at": 5}, {"step": -1}, {"step": 2**60}, {"step": True}, {"step": 1.5}, {"ranks": None},
        {"host": "x" * (MOST_TEXT + 1)}, {"host": "\x1b[2J"}, {"changes": "x"}, {"changes": [1]},
        {"changes": ["x"] * (MOST_CHANGES + 1)}, {"changes": ["x" * (MOST_TEXT + 1)]}, {"before": "died"},
        {"before": {}}, {"before": {"state": "died", "step": 1, "reason": 5, "exit_code": None}},
        {"before": {"state": "died", "step": -1, "reason": None, "exit_code": None}},
    ],
)  # fmt: skip
def test_a_hostile_start_is_refused(changes):
    with pytest.raises(ValueError, match=r"."):
        starts_of([as_json(SECOND)[0] | changes])


@pytest.mark.parametrize("values", [None, {}, "x", [1], [[]], [{}], [{"at": 1}] * (MOST_STARTS + 1)])
def test_a_history_of_another_kind_is_refused(values):
    with pytest.raises(ValueError, match="history"):
        starts_of(values)


@pytest.mark.parametrize("name", list(asdict(SECOND)))
def test_a_start_that_lacks_a_name_is_refused(name):
    start = as_json(SECOND)[0]
    del start[name]
    with pytest.raises(ValueError, match=name):
        starts_of([start])
