"""What structure files look like, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mdrun.errors import InputError
from mdrun.structures import Structure, load_structure

PAIR = ["Ar 0 0 0", "Ar 3.8 0 0"]
PLAIN = "species:S:1:pos:R:3"
CUBE = 'Lattice="12 0 0 0 12 0 0 0 12"'


def xyz(rows: list[str], header: str = "", properties: str = PLAIN) -> str:
    return "\n".join([str(len(rows)), f"{header} Properties={properties}".strip(), *rows]) + "\n"


def refusal(path: Path, **options) -> str:
    with pytest.raises(InputError) as caught:
        load_structure(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def heard(structure: Structure, *words: str) -> bool:
    return any(all(word in note for word in words) for note in structure.notes)
