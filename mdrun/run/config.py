"""A TOML file of options, read as untrusted: each mistake is told with its line, the key, and what the key takes."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mdrun.errors import InputError
from mdrun.run.settings import Kind, Settings, make_settings

MOST_BYTES = 1024**2
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}


FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)")


class Spot(NamedTuple):
    """Where a file gives an option: its key as it is spelled there, and the line, from 1."""

    key: str
    line: int


def settings_from(
    config: Path | None,
    flags: Mapping[str, Any],
    kind: type[Kind] = Settings,  # type: ignore[assignment]
) -> Kind:
    """A command's settings; flags win over the file, the file over the defaults.

    Raises:
        InputError: of ``read_config``, or an option is out of range, with its line where it is the file's.
    """
    if config is None:
        return make_settings({}, flags, kind)
    spots: dict[str, Spot] = {}
    options = read_config(config, kind, spots)
    try:
        return make_settings(options, flags, kind)
    except InputError as error:
        in_force = {name: spot for name, spot in spots.items() if name not in flags}
        raise InputError(_as_in_the_file(str(error), config, in_force)) from error


def _as_in_the_file(message: str, path: Path, spots: Mapping[str, Spot]) -> str:
    """A message that names options as flags, with the file's lines and spelling for those that are in it."""
    lines = set()

    def spelled(flag: re.Match[str]) -> str:
        spot = spots.get(flag[1].replace("-", "_"))
        if spot is None:
            return flag[0]
        lines.add(spot.line)
        return spot.key

    message = FLAG.sub(spelled, message)
    if not lines:
        return message
    *others, last = map(str, sorted(lines))
    return f"{path}, line{'s ' + ', '.join(others) + ' and' if others else ''} {last}: {message}"


def read_config(path: Path, kind: type[Settings] = Settings, spots: dict[str, Spot] | None = None) -> dict[str, Any]:
    """Options of a command from a TOML file whose keys are the flags' names, with - or _.

    Args:
        spots: filled with where the options are.

    Raises:
        InputError: the file can't be read, a key is unknown or there twice, a value is of the wrong type.
    """
    text = _text(path)
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:  # a number of thousands of digits
        raise InputError(f"the configuration {path} is not TOML: {str(error).rstrip('.')}.") from error
    hints = {name: hint for name, hint in typing.get_type_hints(kind).items() if name in kind.options()}
    options: dict[str, Any] = {}
    for key, value in raw.items():
        name, line = key.replace("-", "_"), _line_of(key, text)
        place = f"{path}, line {line}"
        if name in getattr(kind, "flags_alone", ()):
            raise InputError(f"{place}: {key} is only a flag: give it as --{name.replace('_', '-')}.")
        if name not in hints:
            near = difflib.get_close_matches(name.lower(), hints, n=1)
            shown = key if len(key) <= 40 else key[:39] + "…"
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(hints))}."
            raise InputError(f"{place}: {shown!r} is no option of {kind.command}; {advice}")
        if name in options:
            raise InputError(f"{place}: {key} is given twice, with - and with _. Keep one.")
        options[name] = _converted(place, key, value, hints[name])
        if spots is not None:
            spots[name] = Spot(key, line)
    return options


def _text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            kind = "a directory" if path.is_dir() else "not a regular file"
            raise InputError(f"the configuration {path} is {kind}; give a TOML file.")
        if path.stat().st_size > MOST_BYTES:
            raise InputError(
                f"the configuration {path} is larger than {MOST_BYTES // 1024**2} MiB: is it another file?"
            )
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InputError(f"the configuration {path} can't be read: {error.strerror}.") from error


def _line_of(key: str, text: str) -> int:
    """Where a key of the top level stands, from 1: the first line that starts with it and is not inside a value."""
    lines = text.split("\n")
    start = re.compile(rf"\s*(\[\s*)*[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
    found = [number for number, line in enumerate(lines) if start.match(line)]
    for number in found[:100]:
        try:
            tomllib.loads("\n".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue  # inside a text of several lines
        return number + 1
    return found[0] + 1 if found else 1


def _converted(place: str, key: str, value: Any, hint: Any) -> Any:
    kinds = _kinds(hint)
    for kind in kinds:
        if not _is_of(value, kind):
            continue
        if typing.get_origin(kind) is not tuple:
            return _plain(value, kind)
        return tuple(_plain(v, k) for v, k in zip(value, _due(value, kind), strict=True))
    wanted = " or ".join(_in_words(kind) for kind in kinds if kind is not type(None))
    shown = repr(value)
    raise InputError(f"{place}: {key} takes {wanted}, not {shown if len(shown) <= 60 else shown[:59] + '…'}.")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value, as TOML or JSON gives it, is one for an option with that type; None where the type has it."""
    return any(value is None if kind is type(None) else _is_of(value, kind) for kind in _kinds(hint))


def _kinds(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _is_of(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is not tuple:
        return _fits(value, kind)
    if not isinstance(value, list):
        return False
    due = _due(value, kind)
    return len(value) == len(due) and all(_fits(v, k) for v, k in zip(value, due, strict=True))


def _due(value: list, kind: Any) -> tuple[Any, ...]:
    """The types of a tuple's items, as many as there are values where the tuple has any length."""
    items = typing.get_args(kind)
    return items[:1] * len(value) if items[-1] is Ellipsis else items


def _fits(value: Any, kind: Any) -> bool:
    """``true`` is no number; a whole number is one, where it is not too large for a float."""
    return type(value) is kind or (kind is float and type(value) is int and abs(value) < 1e300)


def _plain(value: Any, kind: Any) -> Any:
    if kind is float:
        return float(value)
    # TOML is UTF-8 whatever the locale, in which a file's name may be spelled otherwise.
    return os.fsdecode(value.encode("utf-8", "surrogateescape")) if isinstance(value, str) else value


def _in_words(kind: Any) -> str:
    if typing.get_origin(kind) is not tuple:
        return WORDS[kind]
    items = typing.get_args(kind)
    if items[-1] is Ellipsis:
        return f"a list, each {WORDS[items[0]]}"
    return f"a list of {'three' if len(items) == 3 else len(items)}, each {WORDS[items[0]]}"
