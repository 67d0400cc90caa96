"""What a checkpoint must hold: a checksum tells that a file is whole, not that who made it meant well.

Compiled kernels index with some of these arrays unseen, so that nothing of them is taken on trust.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from mdrun import units
from mdrun.clock import SECTIONS
from mdrun.domain import THEN, DomainCounts
from mdrun.errors import InputError
from mdrun.run.averages import AVERAGED
from mdrun.run.averages import MOST_ROWS as MOST_AVERAGED
from mdrun.run.config import fits
from mdrun.run.ensemble_options import INFINITY
from mdrun.run.history import starts_of
from mdrun.run.settings import Settings
from mdrun.state import FIELDS
from mdrun.structures.checks import FARTHEST, fault_of_cell

LARGEST = 2**53  # of counts
LIGHT = 2998.0 / units.FS  # Å/fs, in the units of momenta and masses
N_FIGURES = len(fields(DomainCounts)) + 1 + len(SECTIONS)  # of a rank


class Wrong(ValueError):
    """What is wrong with a checkpoint's contents, in words that follow its name."""


def check_meta(meta: Any) -> None:
    """The JSON part.

    Raises:
        Wrong: naming what is missing or of the wrong kind.
    """
    _demand(isinstance(meta, dict), "its description holds no names")
    _demand(_is_count(meta.get("step")), "its step is no number of steps")
    _check_origin(meta.get("origin"), meta["step"])
    outputs, variables, values = meta.get("outputs"), meta.get("variables"), meta.get("settings")
    _demand(
        isinstance(outputs, dict) and all(_is_count(n) for n in outputs.values()),
        "the places in its output files are no numbers",
    )
    _demand(isinstance(variables, dict), "it has no variables of the integrator")
    for name, value in variables.items():
        _check_variable(name, value)
    _demand(isinstance(values, dict), "it has no settings")
    try:
        starts_of(meta.get("history"))
    except ValueError as error:
        raise Wrong(str(error)) from error
    inputs = meta.get("inputs")
    _demand(
        isinstance(inputs, dict) and all(isinstance(digest, str) for digest in inputs.values()),
        "what was in the model's files is no text",
    )


def _check_origin(origin: Any, step: int) -> None:
    _demand(
        isinstance(origin, dict)
        and set(origin) == {"step", "time_ps"}
        and _is_count(origin["step"])
        and origin["step"] <= step
        and type(origin["time_ps"]) is float
        and 0 <= origin["time_ps"] < INFINITY,
        "the origin of its times is none",
    )


def checked_settings(values: dict[str, Any]) -> Settings:
    """The options of the run that wrote it, all of which this version knows.

    Raises:
        Wrong: one is of the wrong type, missing or out of range.
    """
    hints = typing.get_type_hints(Settings)
    for f in fields(Settings):
        _demand(f.name in values, f"its option {f.name} is missing")
        _demand(fits(values[f.name], hints[f.name]), f"its option {f.name} is {str(values[f.name])[:40]!r}")
    try:
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        settings = Settings(**given)
        settings.check()
    except (InputError, ArithmeticError) as error:
        raise Wrong(f"its options won't do: {error}") from error
    return settings


def check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    """Types, shapes and ranges of every array that a run goes on with.

    Raises:
        Wrong: naming the array.
    """
    numbers = _of(arrays, "numbers", "iu", (None,))
    _demand(len(numbers) > 0 and bool(((numbers > 0) & (numbers < 119)).all()), "numbers are no atomic numbers")
    n_atoms = len(_of(arrays, "ids", "i", (None,)))
    for name, width, kind in (*((f.name, f.width, _kind(f.dtype)) for f in FIELDS), (THEN, (3,), "f")):
        _of(arrays, name, kind, (n_atoms, *width))
    _demand(n_atoms > 0 and np.array_equal(arrays["ids"], np.arange(n_atoms)), "ids are not those of all atoms")
    types = arrays["types"]
    _demand(bool(((types >= 0) & (types < len(numbers))).all()), "types are beyond its species")
    _demand(bool((arrays["masses"] > 0).all()), "masses are not above 0")
    _demand(
        bool((np.abs(arrays["momenta"]) < LIGHT * arrays["masses"][:, None]).all()),
        "momenta are of more than light's speed",
    )
    for name in ("positions", THEN):
        _demand(bool((np.abs(arrays[name]) < FARTHEST).all()), f"{name} are beyond {FARTHEST:g} Å")
    _of(arrays, "pbc", "b", (3,))
    for name in ("cell", "cell_then"):
        cell = _of(arrays, name, "f", (3, 3))
        fault = fault_of_cell(cell, arrays["pbc"])
        _demand(not fault and bool((np.abs(cell) < FARTHEST).all()), f"{name}: {fault or 'an open axis is too long'}")
    _of(arrays, "since_rebuild", "f", (5,))
    _of(arrays, "fresh_imbalance", "f", ())
    _check_partition(arrays)
    _check_averages(arrays)
    n_ranks = len(_of(arrays, "rank_figures", "f", (None, N_FIGURES)))
    _of(arrays, "rank_shares", "f", (n_ranks, None))
    _demand(n_ranks == len(arrays["partition_cut"]) + 1, "its ranks are not those of its partition")
    for name in ("rank_figures", "since_rebuild"):
        _demand(bool((np.abs(arrays[name]) < LARGEST).all()), f"{name} are no counts")


def _check_partition(arrays: Mapping[str, np.ndarray]) -> None:
    """A tree: a walk from its root comes to every node and to every rank once."""
    n = len(_of(arrays, "partition_cut", "f", (None,)))
    axis, lower, upper = (_of(arrays, f"partition_{name}", "i", (n,)) for name in ("axis", "lower", "upper"))
    _demand(bool(((axis >= 0) & (axis < 3)).all()), "partition_axis is no axis")
    found: list[int] = []
    waiting = [0] if n else [-1]
    while waiting and len(found) <= 2 * n + 1:
        node = waiting.pop()
        found.append(node)
        if 0 <= node < n:
            waiting += [int(lower[node]), int(upper[node])]
    _demand(sorted(found) == list(range(-1 - n, n)), "its partition is no tree of its ranks")


def _check_averages(arrays: Mapping[str, np.ndarray]) -> None:
    counts = _of(arrays, "averages_counts", "i", (3,))
    kept, each, summed = (int(count) for count in counts)
    _demand(
        0 <= kept < MOST_AVERAGED and 0 <= summed < each < LARGEST and each.bit_count() == 1,
        "averages_counts are no counts of rows",
    )
    _of(arrays, "averages_rows", "f", (kept, len(AVERAGED)), may_be_nan=True)
    _of(arrays, "averages_sum", "f", (len(AVERAGED),), may_be_nan=True)


def _kind(dtype: Any) -> str:
    return "b" if not dtype.is_floating_point and dtype.itemsize == 1 else "f" if dtype.is_floating_point else "i"


def _of(
    arrays: Mapping[str, np.ndarray], name: str, kinds: str, shape: tuple[int | None, ...], may_be_nan: bool = False
) -> np.ndarray:
    """The array of that name, of one of NumPy's kinds of types, with None in ``shape`` for any length."""
    _demand(name in arrays, f"{name} is missing")
    values = arrays[name]
    is_kind = (
        values.dtype.kind in kinds and values.dtype.isnative and (values.dtype.kind != "f" or values.itemsize == 8)
    )
    _demand(is_kind, f"{name} is of type {values.dtype}")
    is_shape = values.ndim == len(shape) and all(b in (a, None) for a, b in zip(values.shape, shape, strict=False))
    _demand(is_shape, f"{name} has shape {values.shape}")
    _demand(may_be_nan or values.dtype.kind != "f" or bool(np.isfinite(values).all()), f"{name} is not finite")
    return values


def _check_variable(name: str, value: Any) -> None:
    """A number, or a list of lists of them of one shape."""
    try:
        numbers = np.asarray(value)
        finite = numbers.dtype.kind in "fiub" and numbers.ndim <= 3 and bool(np.isfinite(numbers).all())
    except (ValueError, TypeError, OverflowError):
        finite = False
    _demand(finite, f"the integrator's {name[:40]} is not of finite numbers")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Wrong(otherwise)
