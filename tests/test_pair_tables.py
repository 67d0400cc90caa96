"""Options, TOML tables and table files of pair potentials: what is given is what is used, and the rest is refused."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdrun.errors import InputError
from mdrun.potentials.base import UnknownSpecies
from mdrun.potentials.buckingham import BUCKINGHAM
from mdrun.potentials.lennard_jones import LENNARD_JONES
from mdrun.potentials.morse import MORSE
from mdrun.potentials.registry import load_model
from mdrun.potentials.tabulated import read_table_file
from mdrun.potentials.yukawa import YUKAWA

SYMBOLS = {11: "Na", 17: "Cl", 19: "K"}
FAMILIES = {family.word: family for family in (LENNARD_JONES, MORSE, YUKAWA, BUCKINGHAM)}
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


@st.composite
def tables(draw):
    """A family, its species, and values for each pair."""
    family = FAMILIES[draw(st.sampled_from(["lj", "morse", "yukawa"]))]
    numbers = tuple(sorted(draw(st.sets(st.sampled_from(sorted(SYMBOLS)), min_size=1))))
    value = st.floats(0.01, 5)
    values = {
        pair: tuple(draw(value) for _ in family.parameters)
        for pair in itertools.combinations_with_replacement(range(len(numbers)), 2)
    }
    return family, numbers, values, draw(st.floats(0.5, 20)), draw(st.booleans())


@given(tables(), st.randoms(use_true_random=False))
@in_one_folder
def test_a_table_gives_each_pair_its_own_values_whatever_the_order(tmp_path, case, random):
    family, numbers, values, cutoff, shift = case
    document: dict = {"cutoff": cutoff, "shift": shift, "species": {}, "pairs": {}}
    for (a, b), own in values.items():
        entry = dict(zip((p.name for p in family.parameters), own, strict=True))
        x, y = random.sample([SYMBOLS[numbers[a]], SYMBOLS[numbers[b]]], 2)
        if a == b and random.random() < 0.5:
            document["species"][x] = entry
        else:
            document["pairs"][f"{x}-{y}"] = entry
    (tmp_path / "table.toml").write_text(tomli_w.dumps(document))
    model = load_model(f"{family.word}:{tmp_path / 'table.toml'}", numbers)
    assert model.cutoff == pytest.approx(cutoff)
    for (a, b), own in values.items():
        for row in (model.table[a, b], model.table[b, a]):
            assert row[:-1] == pytest.approx((cutoff**2, *family.row(*own)))
            at_cutoff = family.formula(cutoff**2, np.array([*row[:-1], 0.0]))[0]
            assert row[-1] == pytest.approx(at_cutoff if shift else 0.0)


def test_mixing_is_geometric_and_harmonic_for_buckingham_when_it_is_asked_for(tmp_path):
    path = tmp_path / "table.toml"
    sections = "[species.Na]\nA = 400\nrho = 0.2\nC = 1\n[species.Cl]\nA = 900\nrho = 0.3\nC = 4\n"
    path.write_text(f"cutoff = 8\n{sections}")
    with pytest.raises(InputError, match=r"lacks \[pairs.Na-Cl\]; give these sections, or a mixing rule \(williams\)"):
        load_model(f"buck:{path}", (11, 17))
    model = load_model(f"buck:{path},mixing=williams", (11, 17))
    assert model.table[0, 1, 1:4] == pytest.approx([600, (1 / 0.2 + 1 / 0.3) / 2, 2])


def test_a_section_of_a_pair_wins_over_the_mixing_rule(tmp_path):
    (tmp_path / "table.toml").write_text(
        "cutoff = 8\n[species.Na]\nepsilon = 1\nsigma = 2\n[species.Cl]\nepsilon = 4\nsigma = 3\n"
        "[pairs.Cl-Na]\nepsilon = 0.5\nsigma = 2.2\n"
    )
    model = load_model(f"lj:{tmp_path / 'table.toml'}", (11, 17))
    assert model.table[0, 1, 1:3] == pytest.approx([2.0, 2.2**2])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("morse", "morse needs its parameters: morse:D=...,a=...,r0=...,cutoff=..."),
        ("morse:D=1,a=1", "takes all of D= (eV), a= (1/Å), r0= (Å)"),
        ("morse:D=1,a=1,r0=2", "morse needs a cutoff"),
        ("morse:D=1,a=0,r0=2,cutoff=8", "a must be a positive number, not '0'"),
        ("morse:D=-1,a=1,r0=2,cutoff=8", "D must be a number not below 0, not '-1'"),
        ("morse:D=nan,a=1,r0=2,cutoff=8", "D must be"),
        ("morse:D=1,a=1,r0=2,cutoff=-8", "cutoff must be a positive number"),
        ("morse:D=1,a=1,r0=2,cutoff=inf", "cutoff must be a positive number"),
        ("morse:D=1,a=1,r0=2,cutoff=8,shift=perhaps", "shift must be true or false"),
        ("morse:D=1,a=1,r0=2,cutoff=8,mixing=geometric", "morse has no 'mixing'; it takes D, a, r0, cutoff, shift"),
        ("morse:D=1,alpha=1,r0=2,cutoff=8", "morse has no 'alpha'"),
        ("yukawa:A=x,kappa=1,cutoff=8", "A must be a finite number, not 'x'"),
        ("morse:D=1,a=100,r0=300,cutoff=8", "give no finite energy at the cutoff, 8 Å"),
        ("lj:epsilon=1,sigma=3,cutoff=1e-320", "give no finite energy at the cutoff"),
        ("yukawa:A=1,kappa=1,cutoff=1e-320", "give no finite energy at the cutoff"),
        ("buck:A=1000,rho=0.3,C=-1,cutoff=8", "C must be a number not below 0"),
        ("buck:missing.toml", "missing.toml can't be read"),
        ("zbl", "zbl takes both inner= and outer= (Å)"),
        ("zbl:inner=3", "zbl takes both inner= and outer= (Å)"),
        ("zbl:inner=4,outer=3", "inner (4 Å) must be below outer (3 Å)"),
        ("zbl:inner=3,outer=4,cutoff=5", "zbl has no 'cutoff'"),
        ("dsf", "dsf takes both alpha= (1/Å) and cutoff= (Å)"),
        ("dsf:charges.txt,alpha=0.2,cutoff=9", "dsf takes both"),
        ("dsf:alpha=-0.2,cutoff=9", "alpha must be a number not below 0"),
        ("dsf:alpha=0.2,cutoff=9,erfc=fast", "erfc must be lammps or exact"),
        ("dsf:alpha=0.2,cutoff=9,shift=true", "dsf has no 'shift'"),
        ("table", "table needs a file"),
        ("table:missing.table", "missing.table can't be read"),
        ("table:missing.table,shift=true", "table has no 'shift'"),
    ],
)
def test_a_wrong_option_is_refused_and_named(spec, message):
    with pytest.raises(InputError) as error:
        load_model(spec, (18,))
    assert message in str(error.value)


MORSE_NA = "[species.Na]\nD = 0.3\na = 1.3\nr0 = 3\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cutoff = ", "is not TOML"),
        (f"cutoff = 8\nskin = 1\n{MORSE_NA}", "has no 'skin'; it takes cutoff, shift, species, pairs"),
        (MORSE_NA, "morse needs a cutoff"),
        (f'cutoff = "wide"\n{MORSE_NA}', "cutoff must be a positive number, not 'wide'"),
        (f"cutoff = true\n{MORSE_NA}", "cutoff must be a positive number, not True"),
        ("cutoff = 8\nspecies = 3\n", "species must be sections"),
        ("cutoff = 8\n[species.Na]\nD = 0.3\n", "[species.Na] must hold D (eV), a (1/Å), r0 (Å), and nothing else"),
        (f"cutoff = 8\n{MORSE_NA}x = 1\n", "[species.Na] must hold"),
        ("cutoff = 8\n[species]\nNa = 3\n", "[species.Na] must hold"),
        (f"cutoff = 8\n{MORSE_NA}".replace("0.3", "true"), "species.Na.D must be a number not below 0, not True"),
        (f"cutoff = 8\n{MORSE_NA}".replace("species.Na", "species.Sodium"), "'Sodium', which is no chemical symbol"),
        (f"cutoff = 8\n{MORSE_NA}".replace("species.Na", "pairs.Na"), "must name two species"),
        (f"cutoff = 8\n{MORSE_NA}".replace("species.Na", "pairs.Na-X"), "'X', which is no chemical symbol"),
        (
            "cutoff = 8\n"
            + MORSE_NA.replace("species.Na", "pairs.Na-K")
            + MORSE_NA.replace("species.Na", "pairs.K-Na"),
            "[pairs.K-Na] stands there twice",
        ),
    ],
)
def test_a_wrong_table_is_refused_and_the_place_is_named(tmp_path, text, message):
    (tmp_path / "table.toml").write_text(text)
    with pytest.raises(InputError) as error:
        load_model(f"morse:{tmp_path / 'table.toml'}", (11,))
    assert message in str(error.value)


def test_a_species_that_a_table_lacks_is_told_as_such(tmp_path):
    (tmp_path / "table.toml").write_text(f"cutoff = 8\n{MORSE_NA}")
    with pytest.raises(UnknownSpecies) as error:
        load_model(f"morse:{tmp_path / 'table.toml'}", (11, 17))
    assert error.value.numbers == (17,)
    with pytest.raises(InputError, match="by numbers covers one species; the structure has Na, Cl"):
        load_model("morse:D=1,a=1,r0=2,cutoff=8", (11, 17))


scraps = st.sampled_from(
    ["[species.Na]", "[pairs.Na-K]", "D = 1", "a = 1e400", "r0 = -0.0", "cutoff = 8", "[[species]]", "shift = 2"]
) | st.sampled_from(["pairs = []", '"" = 1', "x.y.z = nan", "\x00", "é", "[species.Na.D]"])


@given(st.one_of(st.text(), st.lists(scraps).map("\n".join)))
@in_one_folder
def test_no_text_breaks_the_reader_of_tables(tmp_path, text):
    (tmp_path / "table.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        model = load_model(f"morse:{tmp_path / 'table.toml'}", (11,))
    except InputError:
        return
    assert np.isfinite(model.table).all()


# Table files

GOOD = ["# by hand", "", "Na-Na", "N 4 R 1.0 4.0", "", "1 1.0 6.0 4.0", "2 2.0 3.0 2.0", "3 3.0 1.5 1.0",
        "4 4.0 1.0 0.2"]  # fmt: skip


def read(tmp_path: Path, lines: list[str]):
    (tmp_path / "pair.table").write_text("\n".join(lines))
    return read_table_file(tmp_path / "pair.table")


def edited(line: int, text: str) -> list[str]:
    return [*GOOD[: line - 1], text, *GOOD[line:]]


def test_what_a_file_says_is_what_is_read(tmp_path):
    section = read(tmp_path, GOOD)["Na-Na"]
    assert section.distances.tolist() == [1, 2, 3, 4]
    assert section.energies.tolist() == [6, 3, 1.5, 1]
    assert section.forces.tolist() == [4, 2, 1, 0.2]
    assert read(tmp_path, edited(4, "N 4"))["Na-Na"].distances.tolist() == [1, 2, 3, 4]
    assert read(tmp_path, edited(4, "N 4 FP 4 0.2 R 1 4"))["Na-Na"].distances.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "holds no table"),
        (["# UNITS: real", *GOOD], "is in units 'real'"),
        (GOOD[:3], "line 3: a name alone"),
        (GOOD[:-1], "section Na-Na announces 4 rows and holds 3"),
        ([*GOOD, *GOOD], "line 12: section Na-Na stands there twice"),
        (edited(4, "N"), "line 4: 'N' should be N, then R, RSQ or FP"),
        (edited(4, "N 4 R 1.0"), "line 4"),
        (edited(4, "N 4 BITMAP 1 2"), "line 4"),
        (edited(4, "N 4 R 1 4 RSQ 1 4"), "R or RSQ, not both"),
        (edited(4, "N 1"), "N must be a whole number from 2 to 1000000, not 1"),
        (edited(4, "N 2.5"), "N must be a whole number"),
        (edited(4, "N 99999999999"), "N must be a whole number"),
        (edited(4, "N 4 R 4 1"), "must be above 0 and grow"),
        (edited(4, "N 4 R 0 3"), "must be above 0 and grow"),
        (edited(4, "N 4 RSQ 1.0 4.0"), "line 7: r = 2 Å is not where rows that are even in r² have it, at 2.44949"),
        (edited(7, "2 2.1 3.0 2.0"), "line 7: r = 2.1 Å is not where rows that are even in r have it, at 2"),
        (edited(7, "2 2.0 3.0"), "line 7: a row is index, r, energy and force"),
        (edited(7, "2 2.0 three 2.0"), "line 7: 'three' is no finite number"),
        (edited(7, "2 2.0 inf 2.0"), "line 7: 'inf' is no finite number"),
        (
            [*GOOD[:5], "1 1 6 -4", "2 2 3 -2", "3 3 1.5 -1", "4 4 1 -0.2"],
            "first between r = 1 and 2 Å: -4 and -2 eV/Å",
        ),
    ],
)
def test_a_wrong_table_file_is_refused_with_its_line(tmp_path, lines, message):
    with pytest.raises(InputError) as error:
        read(tmp_path, lines)
    assert message in str(error.value)


def test_a_cutoff_beyond_the_rows_is_refused(tmp_path):
    read(tmp_path, GOOD)
    for cutoff in (0.9, 4.1):
        with pytest.raises(InputError, match="cutoff must be within the rows of Na-Na"):
            load_model(f"table:{tmp_path / 'pair.table'},cutoff={cutoff}", (11,))
    assert load_model(f"table:{tmp_path / 'pair.table'},cutoff=3.5", (11,)).cutoff == pytest.approx(3.5)
    assert load_model(f"table:{tmp_path / 'pair.table'}", (11,)).cutoff == pytest.approx(4)


words = st.sampled_from(["N", "R", "RSQ", "FP", "4", "-1", "0", "1e309", "nan", "1.0", "Na-Na", "Na-", "#", "x", ""])


@given(
    st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.lists(words, max_size=6)), max_size=4), st.text(max_size=20)
)
@in_one_folder
def test_no_text_breaks_the_reader_of_table_files(tmp_path, changes, tail):
    lines = GOOD.copy()
    for where, new in changes:
        lines[where] = " ".join(new)
    (tmp_path / "pair.table").write_bytes("\n".join([*lines, tail]).encode("utf-8", "surrogatepass"))
    try:
        sections = read_table_file(tmp_path / "pair.table")
    except InputError:
        return
    for section in sections.values():
        assert np.isfinite(section.row(math.inf)[1:]).all()
        assert (np.diff(section.distances) > 0).all()
