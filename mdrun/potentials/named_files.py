"""The files that the text of a model names: where they stand in it, and what is in them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from mdrun import digests
from mdrun.potentials.catalogue import IN_PACKAGES

SCRIPT = re.compile(r"((?!ase:).+\.py):([A-Za-z_]\w*)(?:,(.*))?")
# What may stand behind the colon of a built-in model: a file and nothing else; a file, or weights of a package by their
# name; no file. Of a plug-in it may be anything.
FILE = frozenset({"lj", "morse", "buck", "yukawa", "table", "eam", "sw", "tersoff", "metatomic"})
FILE_OR_NAME = frozenset(IN_PACKAGES)
NO_FILE = frozenset({"emt", "zbl", "dsf"})
WORD = re.compile(r"[^,]+")


class Named(NamedTuple):
    """Where a word stands in a term that names a file, or may: then the disk must tell whether it does."""

    start: int
    end: int
    is_surely: bool


def terms_of(spec: str) -> list[str]:
    """Of a sum."""
    return [term.strip() for term in re.split(r"\s\+\s", spec)]


def with_absolute_paths(spec: str) -> str:
    """The same models, from whatever directory they are loaded."""

    def absolute(file: str, is_surely: bool) -> str:
        path = os.path.abspath(file)
        would_come_back = not re.search(r"[,=]|\s\+\s", path)
        return path if would_come_back and (is_surely or os.path.isfile(file)) else file

    return _changed(spec, absolute)


def digests_of(spec: str) -> dict[str, str]:
    """What is in each file that ``spec`` names, by the name there; none of what can't be read, which loading tells.

    Weights that come with a package are the package's, and a file that a file names is not looked at.
    """
    found: dict[str, str] = {}

    def look(file: str, is_surely: bool) -> str:
        if file not in found and os.path.isfile(file):
            with contextlib.suppress(OSError):
                found[file] = digests.of_file(file)
        return file

    _changed(spec, look)
    return found


def by_content(spec: str, digest_of: Mapping[str, str]) -> str:
    """``spec`` with what is in its files in place of their names: equal for the same models, wherever the files lie."""
    return _changed(spec, lambda file, _: digest_of.get(file, file))


def _changed(spec: str, change: Callable[[str, bool], str]) -> str:
    """With another word for each that names a file, or may."""
    made = []
    for term in terms_of(spec):
        parts, at = [], 0
        for start, end, is_surely in _named(term):
            parts += [term[at:start], change(term[start:end], is_surely)]
            at = end
        made.append("".join(parts) + term[at:])
    return " + ".join(made)


def _named(term: str) -> Iterator[Named]:
    """Of a term, in order: ``eam:FILE``, ``FILE.py:FUNCTION,weights=FILE``, ``ase:FILE.py:CLASS,toml=FILE``."""
    script = SCRIPT.fullmatch(term)
    name = "" if script else term.partition(":")[0]
    if script:
        yield Named(*script.span(1), True)
    takes_argument = not script and name not in NO_FILE | {"ase"}
    runs_code = name not in FILE | FILE_OR_NAME | NO_FILE  # the user's, whose options may be files
    for number, word in enumerate(WORD.finditer(term, script.end(2) if script else len(name) + 1)):
        key, equals, value = word.group().partition("=")
        text = value if equals else key
        start = word.end() - len(text.lstrip())
        place = start, start + len(text.strip())
        if name == "ase" and number == 0 and ".py:" in text:
            yield Named(start, start + text.rindex(":"), True)
        elif equals and name == "ase" and key.strip() == "toml":
            yield Named(*place, True)
        elif (equals and runs_code and re.search(r"[/.]", text)) or (not equals and number == 0 and takes_argument):
            yield Named(*place, name in FILE)
