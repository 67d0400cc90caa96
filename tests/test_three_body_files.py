"""LAMMPS's three-body parameter files: what may stand in one, and what is said of a broken one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdrun.errors import InputError
from mdrun.potentials import tersoff_parameters
from mdrun.potentials.base import UnknownSpecies
from mdrun.potentials.stillinger_weber import COLUMNS, StillingerWeber
from mdrun.potentials.tersoff import Tersoff
from mdrun.potentials.three_body_files import parse_three_body, read_three_body
from tests.systems import DATA

SILICON = "Si Si Si 2.1683 2.0951 1.80 21.0 1.20 -0.333333333333 7.049556277 0.6022245584 4.0 0.0 0.0"


def parse(text: str):
    return parse_three_body(text, COLUMNS, "sw", "my.sw")


def with_value(name: str, value: str, line: str = SILICON) -> str:
    words = line.split()
    words[3 + [column.name for column in COLUMNS].index(name)] = value
    return " ".join(words)


def renamed(*elements: str, line: str = SILICON) -> str:
    return " ".join([*elements, *line.split()[3:]])


def all_of(*elements: str) -> list[str]:
    return [renamed(a, b, c) for a in elements for b in elements for c in elements]


@pytest.mark.parametrize(
    "text",
    [
        SILICON,
        f"# a comment\n\n   \n{SILICON}   # another\n#",
        SILICON.replace(" ", "\n"),
        SILICON.replace("21.0", "21.0 # lambda\n\n\t"),
        SILICON.replace(" ", "\t").replace("\n", "\r\n"),
        f"{SILICON}\nC C C {' '.join(SILICON.split()[3:])}",
    ],
)
def test_comments_blank_lines_and_line_breaks_do_not_matter(text):
    assert parse(text).entries["Si", "Si", "Si"].values == parse(SILICON).entries["Si", "Si", "Si"].values
    assert parse(text).entries["Si", "Si", "Si"].values[:3] == (2.1683, 2.0951, 1.8)


def test_an_entry_knows_the_line_where_it_starts():
    entries = parse(f"# comment\n\n{SILICON.replace('21.0', '21.0#' + chr(10))}\n\n{renamed('C', 'C', 'C')}").entries
    assert [entry.line for entry in entries.values()] == [3, 6]


def test_energies_in_kilocalories_are_converted_and_nothing_else():
    metal, real = (parse(f"# DATE: 2007-06-11 UNITS: {units}\n{SILICON}") for units in ("metal", "real"))
    expected = np.array(metal.entries["Si", "Si", "Si"].values)
    expected[0] *= 0.0433641
    np.testing.assert_allclose(real.entries["Si", "Si", "Si"].values, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no entry"),
        ("# nothing\n", "holds no entry"),
        (f"{SILICON}\n\nC C C 1 2", r"line 3: the entry has 5 words when the file ends, not 14"),
        (f"# x\n{SILICON} 7", r"line 2: 15 words where the entry that starts in line 2 has 14"),
        (SILICON.replace("21.0", "\n21.0") + " 7", r"line 2: 15 words where the entry that starts in line 1"),
        (f"{SILICON}\n{SILICON}", r"line 2: a second entry for Si Si Si; the first is in line 1"),
        (with_value("lambda", "many"), r"line 1, entry Si Si Si: lambda should be a number, not 'many'"),
        (with_value("lambda", "2_1"), "should be a number"),
        (with_value("sigma", "nan"), r"sigma is nan; it must lie at or above 0 and be finite"),
        (with_value("A", "inf"), r"A is inf; it must lie at or above 0"),
        (with_value("epsilon", "-1"), r"epsilon is -1; it must lie at or above 0"),
        (with_value("costheta0", "1.5"), r"costheta0 is 1\.5; it must lie between -1 and 1"),
        (f"# UNITS: lj\n{SILICON}", r"line 1: UNITS: lj can't be read"),
    ],
)
def test_a_broken_file_is_told_with_its_line(text, words):
    with pytest.raises(InputError, match=words) as error:
        parse(text)
    assert "my.sw" in str(error.value)


@pytest.mark.parametrize("missing", ["Si C Si", "C C Si"])
def test_a_missing_triplet_is_named(tmp_path, missing):
    path = tmp_path / "most.sw"
    path.write_text("\n".join(line for line in all_of("Si", "C") if not line.startswith(missing + " ")))
    with pytest.raises(InputError, match=rf"most\.sw has no entry for {missing}: 2 species need 8 entries"):
        StillingerWeber.load(path, (6, 14))
    assert StillingerWeber.load(path, (14,)).cutoff == pytest.approx(2.0951 * 1.8)


def test_a_missing_species_is_named_with_those_that_are_there(tmp_path):
    path = tmp_path / "two.sw"
    path.write_text("\n".join(all_of("Si", "C")))
    with pytest.raises(UnknownSpecies) as error:
        StillingerWeber.load(path, (14, 32))
    assert error.value.numbers == (32,)
    assert error.value.known == ("Si", "C")


def test_labels_choose_among_variants_of_an_element(tmp_path):
    path = tmp_path / "variants.sw"
    path.write_text(f"{renamed('Si(B)', 'Si(B)', 'Si(B)')}\n{with_value('a', '1.5', renamed(*['Si(C)'] * 3))}")
    with pytest.raises(UnknownSpecies):
        StillingerWeber.load(path, (14,))
    assert StillingerWeber.load(path, (14,), {"Si": "Si(C)"}).cutoff == pytest.approx(2.0951 * 1.5)
    with pytest.raises(InputError, match="no atom is Ge, the species of an option"):
        StillingerWeber.load(path, (14,), {"Ge": "Si(C)"})


@pytest.mark.parametrize("model", [StillingerWeber, Tersoff])
def test_a_file_that_is_not_there_or_is_no_text_is_an_input_error(tmp_path, model):
    for path in (tmp_path / "none.sw", tmp_path):
        with pytest.raises(InputError, match="can't be read"):
            model.load(path, (14,))
    (tmp_path / "bytes.sw").write_bytes(bytes(range(256)) * 4)
    with pytest.raises(InputError):
        model.load(tmp_path / "bytes.sw", (14,))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([with_value("sigma", "0")], r"line 1, entry Si Si Si: sigma and a of a pair must be positive"),
        ([with_value("tol", "0.01", with_value("a", "0.2"))], "tol is so large that no cutoff is left"),
        (
            [with_value("A", "6", line) if line.startswith("C Si Si") else line for line in all_of("Si", "C")],
            "line 5, entry C Si Si: A differs from that of the entry with centre and neighbours exchanged",
        ),
        (
            [with_value("lambda", "6", line) if line.startswith("C Si C") else line for line in all_of("Si", "C")],
            "line 7, entry C C Si: lambda epsilon or costheta0 differs",
        ),
    ],
)
def test_parameters_that_make_no_stillinger_weber_potential_are_refused(tmp_path, lines, words):
    path = tmp_path / "wrong.sw"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=words):
        StillingerWeber.load(path, (6, 14) if len(lines) > 1 else (14,))


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("m", "2", "line 1, entry Si Si Si: m must be 1 or 3"),
        ("m", "0", "m is 0; it must lie between 1 and 3"),
        ("D", "3.5", "D must not be greater than R"),
        ("D", "0", "D must be positive"),
        ("d", "0", "d must not be zero"),
        ("n", "0", "n must be positive"),
        ("n", "-1", "n is -1"),
        ("beta", "-1", "beta is -1"),
        ("A", "-1", "A is -1"),
    ],
)
def test_parameters_that_make_no_tersoff_potential_are_refused(tmp_path, column, value, words):
    names = [column.name for column in tersoff_parameters.COLUMNS]
    line = tersoff_parameters.SILICON.split()
    line[3 + names.index(column)] = value
    path = tmp_path / "wrong.tersoff"
    path.write_text(" ".join(line))
    with pytest.raises(InputError, match=words):
        Tersoff.load(path, (14,))


WORDS = st.sampled_from(["Si", "C", "1.0", "0", "-1", "3", "nan", "1e400", "#", "\n", "x", "1_0", "# UNITS: real\n"])


@settings(max_examples=200, deadline=None)
@given(st.lists(WORDS, max_size=60).map(" ".join) | st.text(max_size=200))
def test_any_text_is_parsed_or_refused_with_our_own_error(text):
    for columns, style in ((COLUMNS, "sw"), (tersoff_parameters.COLUMNS, "tersoff")):
        try:
            found = parse_three_body(text, columns, style, "fuzz")
        except InputError as error:
            is_told = str(error).startswith("fuzz")
        else:
            is_told = len(found.entries) > 0 and all(np.isfinite(e.values).all() for e in found.entries.values())
        assert is_told


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_changed_character_of_a_file_makes_a_model_or_our_own_error(tmp_path_factory, data):
    name, model = data.draw(st.sampled_from([("mixed.sw", StillingerWeber), ("mixed.tersoff", Tersoff)]))
    text = (DATA / "potentials" / name).read_text()
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(st.sampled_from(list("0-9.eE# \nS"))) + text[place + 1 :]
    path = tmp_path_factory.getbasetemp() / name
    path.write_text(changed)
    try:
        made = model.load(path, (6, 14, 32))
    except InputError:
        return
    assert 0 < made.cutoff < np.inf


def test_the_files_of_the_reference_set_hold_all_their_entries():
    assert len(read_three_body(DATA / "potentials" / "mixed.sw", COLUMNS, "sw").entries) == 27
    path: Path = DATA / "potentials" / "SiC.tersoff"
    assert len(read_three_body(path, tersoff_parameters.COLUMNS, "tersoff").entries) == 8
