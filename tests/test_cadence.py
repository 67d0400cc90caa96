"""How often: steps or time, and nothing else."""

from __future__ import annotations

import pytest

from mdrun.errors import InputError
from mdrun.run.cadence import Cadence, cadence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10000", Cadence(steps=10000)),
        (250, Cadence(steps=250)),
        ("0", Cadence()),
        (0, Cadence()),
        ("90s", Cadence(seconds=90)),
        ("15min", Cadence(seconds=900)),
        ("2h", Cadence(seconds=7200)),
        ("0.5 h", Cadence(seconds=1800)),
        (" 1.5min ", Cadence(seconds=90)),
    ],
)
def test_steps_and_times(text, expected):
    assert cadence(text, "checkpoint-every") == expected
    assert expected.is_never == (str(text) == "0")


@pytest.mark.parametrize(
    "text",
    [-1, "-1", "", "min", "15m", "1e3", "5 steps", "0min", "0.0s", "-5min", "nan h", "1_000", "٣", "9" * 400 + "h"],
)
def test_anything_else_is_refused_by_name(text):
    with pytest.raises(InputError, match=r"--checkpoint-every .*steps as in 10000.*15min"):
        cadence(text, "checkpoint-every")
