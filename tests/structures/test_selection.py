"""Atoms chosen by words; what is not understood is told, whatever it is."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from hypothesis import example, given
from hypothesis import strategies as st

from mdrun.errors import InputError
from mdrun.structures.selection import select

ATOMS = Atoms(
    "CuCuArYAr", positions=[[0, 0, 0], [1, 0, 5], [2, 0, 2.5], [3, 9, -4], [4, 1, 1e-3]], cell=[5, 5, 5], pbc=True
)


def rows(text: str) -> list[int]:
    return np.flatnonzero(select(text, ATOMS, "--freeze")).tolist()


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("0", [0]),
        ("0-2,4", [0, 1, 2, 4]),
        (" 1 - 2 , 4 ", [1, 2, 4]),
        ("Cu", [0, 1]),
        ("Cu,Ar", [0, 1, 2, 4]),
        ("Cu or 3", [0, 1, 3]),
        ("z<2.5", [0, 3, 4]),
        ("z <= 2.5", [0, 2, 3, 4]),
        ("x>=3", [3, 4]),
        ("x>1 and z>0", [2, 4]),
        ("x>1 and z>0 or Y", [2, 3, 4]),
        ("Ar and x<3, y>5", [2, 3]),
        ("z<-1e-3", [3]),
        ("Y", [3]),  # the element; y is a place
        ("0-4 and Ar and z>1", [2]),
    ],
)
def test_atoms_elements_and_places(text, chosen):
    assert rows(text) == chosen


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5", ["no atom 5", "0 to 4"]),
        ("3-9", ["no atom 9"]),
        ("4-1", ["4-1", "backwards"]),
        ("Au", ["Au", "not in the structure", "Ar, Cu, Y"]),
        ("Xx", ["Xx", "no element"]),
        ("cu", ["'cu'", "elements (Cu)"]),
        ("z>100", ["no atom", "5"]),
        ("Cu and Ar", ["no atom"]),
        ("z<", ["'z<'"]),
        ("z<nan", ["'z<nan'"]),
        ("z<5 Cu", ["'z<5 Cu'"]),
        ("w<5", ["'w<5'"]),
        ("z=5", ["'z=5'"]),
        ("-1", ["'-1'"]),
        ("", ["condition is missing"]),
        ("0,", ["condition is missing"]),
        ("0 and", ["condition is missing"]),
    ],
)
def test_what_is_not_understood_is_told(text, words):
    with pytest.raises(InputError) as told:
        rows(text)
    assert "--freeze" in str(told.value)
    for word in words:
        assert word in str(told.value)


@given(st.text(alphabet="0123456789-,. xyz<>=CuArandor\n()\\٣", max_size=30))
@example("0" * 5000)
@example("٣")
@example("x<1e999")
def test_any_text_chooses_atoms_or_is_refused(text):
    try:
        chosen = select(text, ATOMS, "--freeze")
    except InputError:
        return
    assert chosen.any()
    assert chosen.shape == (5,)
