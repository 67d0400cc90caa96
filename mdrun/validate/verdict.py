"""What a check found, and which checks are asked for. Imports nothing heavy: the command line reads it for its help."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mdrun.errors import EXIT_OK, EXIT_UNPHYSICAL, InputError

PASS, WARN, FAIL, SKIPPED = "pass", "warn", "fail", "skipped"
CHECKS = ("forces", "stress", "ranks", "energy", "list", "ensemble")


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: one of ``CHECKS``.
        verdict: pass; fail; warn, where it passes but something should be known; skipped, where it has no meaning.
        meaning: a sentence that says what was found and what to do.
        value, limit: what was measured and what it had to stay below, in ``unit``; None where nothing was.
        numbers: more of what was measured, by name with unit.
    """

    name: str
    verdict: str
    meaning: str
    value: float | None = None
    limit: float | None = None
    unit: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """What ``validate.json`` keeps; numbers that are none become null."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "value": _finite(self.value),
            "limit": _finite(self.limit),
            "unit": self.unit,
            "meaning": self.meaning,
            "numbers": {name: _finite(value) for name, value in self.numbers.items()},
        }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def skipped(name: str, reason: str) -> Check:
    return Check(name, SKIPPED, reason)


def overall(checks: Iterable[Check]) -> str:
    """fail where any check failed, else warn where any warned, else pass."""
    verdicts = {check.verdict for check in checks}
    return next((worst for worst in (FAIL, WARN) if worst in verdicts), PASS)


def exit_code(checks: Iterable[Check]) -> int:
    """0, or 3 where a check failed: a run with these settings would be unphysical."""
    return EXIT_UNPHYSICAL if overall(checks) == FAIL else EXIT_OK


@dataclass(frozen=True)
class Plan:
    """Which checks, and how much work each may do.

    Attributes:
        n_samples: atoms whose forces are compared.
        short_steps: of the warm-up, and of the checks of energy and list.
        long_steps: of the check of the ensemble.
    """

    checks: tuple[str, ...] = CHECKS
    n_samples: int = 12
    short_steps: int = 500
    long_steps: int = 40000

    def check(self) -> None:
        """Raises InputError where a check is unknown or a number too small."""
        unknown = [name for name in self.checks if name not in CHECKS]
        if unknown or not self.checks:
            raise InputError(f"--checks {','.join(self.checks)} won't do: it takes some of {','.join(CHECKS)}.")
        for option, value, least in (
            ("samples", self.n_samples, 1),
            ("short-steps", self.short_steps, 50),
            ("long-steps", self.long_steps, 100),
        ):
            if value < least:
                raise InputError(f"--{option} {value} won't do: it takes a number not below {least}.")


def names_in(text: str) -> tuple[str, ...]:
    """``forces,stress`` → ("forces", "stress"), in the order in which checks are made; unknown ones last."""
    asked = [word.strip() for word in text.split(",") if word.strip()]
    return tuple(sorted(dict.fromkeys(asked), key=_place))


def _place(name: str) -> int:
    order: Sequence[str] = CHECKS
    return order.index(name) if name in order else len(order)
