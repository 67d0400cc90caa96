"""The clock, on a clock of its own: no test here waits."""

from __future__ import annotations

import pytest

from mdrun import clock
from mdrun.clock import Clock, timed


class Hands:
    """A time that only moves when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def hands(monkeypatch):
    hands = Hands()
    monkeypatch.setattr(clock.time, "perf_counter", lambda: hands.now)
    monkeypatch.setattr(clock, "CLOCK", Clock())
    return hands


def test_a_section_inside_another_pauses_it(hands):
    @timed("communication")
    def exchange():
        hands.pass_(2)

    @timed("force")
    def forces():
        hands.pass_(1)
        exchange()
        hands.pass_(4)

    forces()
    hands.pass_(8)  # nobody's
    forces()
    assert clock.CLOCK.seconds == {"force": 10, "communication": 4}


def test_sections_add_up_to_the_time_that_passed_in_them(hands):
    @timed("force")
    def recursive(depth):
        hands.pass_(1)
        if depth:
            recursive(depth - 1)
        hands.pass_(1)

    recursive(3)
    assert sum(clock.CLOCK.seconds.values()) == 8


def test_a_section_ends_when_an_exception_leaves_it(hands):
    @timed("force")
    def fails():
        hands.pass_(1)
        raise RuntimeError

    @timed("output")
    def writes():
        hands.pass_(3)

    with pytest.raises(RuntimeError):
        fails()
    hands.pass_(5)
    writes()
    assert clock.CLOCK.seconds == {"force": 1, "output": 3}


def test_reset_forgets_what_was_counted(hands):
    clock.CLOCK.enter("force")
    hands.pass_(1)
    clock.CLOCK.leave()
    clock.CLOCK.reset()
    assert clock.CLOCK.seconds == {}


def test_a_timed_function_keeps_its_name_and_its_result(hands):
    @timed("force")
    def answer(x, *, y):
        """What it does."""
        return x + y

    assert answer(1, y=2) == 3
    assert answer.__name__ == "answer"
    assert answer.__doc__ == "What it does."
