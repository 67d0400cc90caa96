"""The starts of a run: when, where and with what each process began, what it changed, how the one before it ended.

Kept in ``status.json``, and in checkpoints, so that it outlives the loss of that file and goes where they go.
"""

from __future__ import annotations

import socket
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from mdrun import __version__
from mdrun.run.config import fits
from mdrun.run.settings import Settings

# One an hour for six weeks. All are in status.json, which is written anew every second, and in every checkpoint.
MOST_STARTS = 1000
MOST_CHANGES, MOST_TEXT = 100, 500  # of a start; letters of a text
LARGEST = 2**53
UNKNOWN = "unknown"
MEANS = ("ranks", "threads", "device", "backend", "mdrun")  # that have a part in how numbers are rounded


@dataclass(frozen=True)
class Ending:
    """Attributes:
    state: as ``status.json`` had it last; ``died`` where that was ``running``, ``unknown`` where there was none.
    step: the last one known.
    """

    state: str
    step: int | None = None
    reason: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True)
class Start:
    """Attributes:
    at: UTC, as ISO 8601 has it.
    step: that it went on from; 0 at first.
    host: of the first rank.
    mdrun: its version.
    changes: what is no more as it was, in words.
    before: how the process before it ended; None where there was none.
    """

    at: str
    step: int
    host: str
    ranks: int
    threads: int
    device: str
    backend: str
    mdrun: str
    changes: tuple[str, ...] = ()
    before: Ending | None = None


def this_start(
    settings: Settings, step: int, n_ranks: int, n_threads: int, changes: Iterable[str], before: Ending | None
) -> Start:
    """That of this process."""
    words = tuple(in_short(text) for text in changes)[:MOST_CHANGES]
    at, host = datetime.now(UTC).isoformat(timespec="seconds"), in_short(socket.gethostname())
    return Start(at, step, host, n_ranks, n_threads, settings.device, settings.backend, __version__, words, before)


def other_means(start: Start, before: Sequence[Start]) -> list[str]:
    """What a run goes on with that its last process did not have, in words: it is the same physics from there on, but
    no longer the same numbers to the last bit."""
    if not before:
        return []
    now, then = asdict(start), asdict(before[-1])
    differing = [f"{name} {now[name]}, {then[name]} before" for name in MEANS if now[name] != then[name]]
    return [f"not bit for bit the run that was stopped: {'; '.join(differing)}"] if differing else []


def starts_before(status: Mapping[str, Any], kept: tuple[Start, ...]) -> tuple[Start, ...]:
    """All that are known: those of ``status.json``, which has the starts since the checkpoint too, or the checkpoint's
    where that has more."""
    try:
        told = starts_of(status.get("history"))
    except ValueError:
        told = ()
    return told if len(told) >= len(kept) else kept


def with_start(history: tuple[Start, ...], start: Start) -> tuple[Start, ...]:
    """Oldest first; where they are too many, the oldest goes."""
    return (*history, start)[-MOST_STARTS:]


def ending_of(status: Mapping[str, Any], running: str) -> Ending:
    """How the process that left this ``status.json`` ended, as far as known to the one that has its directory now.

    Args:
        running: what it says of itself as long as it lives.
    """

    def taken(name: str) -> Any:
        value = status.get(name)
        if isinstance(value, str):
            return in_short(value)
        return value if _is_count(value) else None

    found = {name: taken(name) for name in ("state", "step", "reason", "exit_code")}
    found = {name: value for name, value in found.items() if fits(value, typing.get_type_hints(Ending)[name])}
    state = found.pop("state", UNKNOWN)
    return Ending("died" if state == running else state, **found)


def starts_of(values: Any) -> tuple[Start, ...]:
    """What JSON says of them, as untrusted.

    Raises:
        ValueError: in words that follow the name of what holds it.
    """
    if not isinstance(values, list) or len(values) > MOST_STARTS:
        raise ValueError("its history is no list of starts")
    return tuple(_start_of(value) for value in values)


def _start_of(value: Any) -> Start:
    given = _checked(value, Start)
    datetime.fromisoformat(given["at"])
    if len(given["changes"]) > MOST_CHANGES:
        raise ValueError("a start in its history has too many changes")
    before = given["before"]
    ending = None if before is None else Ending(**_checked(before, Ending))
    return Start(**{**given, "changes": tuple(given["changes"]), "before": ending})


def _checked(value: Any, kind: type) -> dict[str, Any]:
    """The values of a dataclass by name, each of its type and of bounded size."""
    if not isinstance(value, dict):
        raise ValueError("a start in its history holds no names")
    for name, hint in typing.get_type_hints(kind).items():
        item = value.get(name)
        is_kind = name in value and (hint == Ending | None or fits(item, hint))
        is_bounded = all(_is_bounded(part) for part in (item if isinstance(item, list) else [item]))
        if not is_kind or not is_bounded:
            raise ValueError(f"a start in its history has {name} {str(item)[:40]!r}")
    return {f.name: value[f.name] for f in fields(kind)}


def _is_bounded(value: Any) -> bool:
    """Counts, and texts that do nothing to a terminal; what else there is has a type of its own."""
    if isinstance(value, str):
        return len(value) <= MOST_TEXT and value.isprintable()
    return not isinstance(value, int) or _is_count(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def in_short(text: str) -> str:
    """In one line of bounded length, without what a terminal would obey."""
    line = " ".join(text.split())[:MOST_TEXT]
    return "".join(letter if letter.isprintable() else "?" for letter in line)
