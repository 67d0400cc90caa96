"""What a checkpoint keeps of an integrator: the numbers that its past has left in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np


class Remembers:
    """Names of the attributes that a run must have again to go on as if it had never stopped.

    Attributes:
        same_on_ranks: numbers, lists or arrays of them that every rank holds alike.
        summed_over_ranks: this rank's shares of sums.
        parts: attributes that remember in turn, or are None.
    """

    same_on_ranks: ClassVar[tuple[str, ...]] = ()
    summed_over_ranks: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[tuple[str, ...]] = ()


def variables(thing: Any) -> dict[str, list]:
    """What is the same on every rank, by dotted names."""
    return {path: _numbers(owner, name) for path, owner, name in _walk(thing, "same_on_ranks")}


def shares(thing: Any) -> np.ndarray:
    """(k,) this rank's shares, one after another."""
    found = [np.ravel(_numbers(owner, name)) for _, owner, name in _walk(thing, "summed_over_ranks")]
    return np.concatenate(found) if found else np.empty(0)


def restore(thing: Any, kept: Mapping[str, list], share: np.ndarray) -> None:
    """Put back what ``variables`` and ``shares`` gave.

    Raises:
        ValueError: they were another integrator's.
    """
    names = [path for path, _, _ in _walk(thing, "same_on_ranks")]
    if set(names) != set(kept):
        raise ValueError(
            f"the variables kept are {', '.join(kept) or 'none'}, those wanted {', '.join(names) or 'none'}"
        )
    for path, owner, name in _walk(thing, "same_on_ranks"):
        values, wanted = np.asarray(kept[path], dtype=np.float64), np.shape(_numbers(owner, name))
        if values.shape != wanted:
            raise ValueError(f"{path} was kept in shape {values.shape}, and {wanted} is wanted")
        _put(owner, name, values)
    places = list(_walk(thing, "summed_over_ranks"))
    sizes = [np.size(_numbers(owner, name)) for _, owner, name in places]
    if sum(sizes) != len(share):
        raise ValueError(f"{len(share)} shares were kept, {sum(sizes)} are wanted")
    for (_, owner, name), end, size in zip(places, np.cumsum(sizes), sizes, strict=True):
        _put(owner, name, share[end - size : end].reshape(np.shape(_numbers(owner, name))))


def _walk(thing: Any, kind: str, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    for name in getattr(thing, kind, ()):
        yield prefix + name, thing, name
    for part in getattr(thing, "parts", ()):
        if (inner := getattr(thing, part)) is not None:
            yield from _walk(inner, kind, f"{prefix}{part}.")


def _numbers(owner: Any, name: str) -> Any:
    value = getattr(owner, name)
    return value.tolist() if hasattr(value, "tolist") else value  # from the device, where it is a tensor's


def _put(owner: Any, name: str, values: np.ndarray) -> None:
    """In the form in which it was there; a number that a tensor held may be a float."""
    was = getattr(owner, name)
    setattr(owner, name, values.copy() if isinstance(was, np.ndarray) else values.tolist())
