"""EAM files: what is accepted, and that everything else is told with its line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import Polynomial as Poly

from mdrun.errors import InputError
from mdrun.potentials import eam_files
from mdrun.potentials.eam import EAM
from mdrun.potentials.eam_files import EamTables, read_eam
from tests.eam_writer import FUNCFL_COULOMB, Polynomials, made_up, written


def small(symbols: tuple[str, ...] = ("Cu", "Ni"), finnis_sinclair: bool = False) -> Polynomials:
    """Of a line for each function: lines 1 to 3 are comments, 4 the elements, 5 the grid, 6 the first element."""
    made = made_up(symbols, finnis_sinclair)
    made.n_rho = made.n_r = made.words_a_line = 8
    made.d_r = 0.7
    return made


def same_tables(a: EamTables, b: EamTables) -> None:
    assert (a.symbols, a.d_rho, a.d_r, a.cutoff) == (b.symbols, b.d_rho, b.d_r, b.cutoff)
    for name in ("embedding", "density", "r_phi"):
        assert np.array_equal(getattr(a, name), getattr(b, name))


# What is read


def test_setfl_is_read_as_it_was_written(tmp_path):
    made = small()
    tables = read_eam(written(tmp_path / "x.eam.alloy", made.setfl(False)))
    assert tables.symbols == ("Cu", "Ni")
    assert (tables.d_rho, tables.d_r, tables.cutoff) == (1.0, 0.7, 5.0)
    rho, r = np.arange(8) * 1.0, np.arange(8) * 0.7
    for a in range(2):
        assert np.array_equal(tables.embedding[a], made.embedding[a](rho))
        for b in range(2):
            assert np.array_equal(tables.density[a, b], made.density[a][0](r))
            assert np.array_equal(tables.r_phi[a, b], made.r_phi[a][b](r))


def test_the_second_density_of_finnis_sinclair_is_that_at_the_second_element(tmp_path):
    made = small(("Cu", "Ni", "Al"), finnis_sinclair=True)
    tables = read_eam(written(tmp_path / "x.eam.fs", made.setfl(True)))
    r = np.arange(8) * 0.7
    for a in range(3):
        for b in range(3):
            assert np.array_equal(tables.density[a, b], made.density[a][b](r))
    assert not np.array_equal(tables.density[0, 1], tables.density[1, 0])


def test_funcfl_is_read_and_loses_its_last_points_as_in_lammps(tmp_path):
    charge = Poly([4.0, -0.5])
    tables = read_eam(written(tmp_path / "anything", small(("Ag",)).funcfl(charge)))
    assert tables.symbols == ("Ag",)
    assert tables.embedding.shape == (1, 7)
    np.testing.assert_allclose(tables.r_phi[0, 0], FUNCFL_COULOMB * charge(np.arange(7) * 0.7) ** 2, rtol=1e-15)


LAYOUTS = {
    "one_number_a_line": {"words_a_line": 1},
    "seven_numbers_a_line": {"words_a_line": 7},
    "everything_on_one_line": {"words_a_line": 100},
    "fortran_exponents": {"exponent": "D"},
    "small_fortran_exponents": {"exponent": "d"},
    "remark_after_the_grid": {"grid_end": "   # n_rho, d_rho, n_r, d_r, cutoff"},
    "units_that_are_read": {"first_line": "DATE: 2014-07-11 UNITS: metal CONTRIBUTOR: nobody"},
    "a_comment_in_latin_1": {"comments": ("\N{LATIN SMALL LETTER O WITH DIAERESIS}", "")},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("finnis_sinclair", [False, True], ids=["alloy", "fs"])
def test_the_layout_of_numbers_does_not_matter(tmp_path, layout, finnis_sinclair):
    name = "x.eam.fs" if finnis_sinclair else "x.eam.alloy"
    usual, other = small(finnis_sinclair=finnis_sinclair), small(finnis_sinclair=finnis_sinclair)
    for key, value in LAYOUTS[layout].items():
        setattr(other, key, value)
    expected = read_eam(written(tmp_path / name, usual.setfl(finnis_sinclair)))
    (tmp_path / name).write_bytes(other.setfl(finnis_sinclair).encode("latin-1"))
    same_tables(read_eam(tmp_path / name), expected)


def test_blank_lines_carriage_returns_and_a_farewell_are_no_matter(tmp_path):
    text = small().setfl(False)
    expected = read_eam(written(tmp_path / "x.eam.alloy", text))
    lines = text.splitlines()
    loose = "\r\n".join([*lines[:4], "", lines[4], "  # a remark", *lines[5:], "", "end of the potential", ""])
    (tmp_path / "x.eam.alloy").write_bytes(loose.encode())
    same_tables(read_eam(tmp_path / "x.eam.alloy"), expected)


def test_a_line_may_end_one_function_and_start_the_next(tmp_path):
    made = small(("Cu",))
    expected = read_eam(written(tmp_path / "Cu.eam", made.funcfl(Poly([4.0, -0.5]))))
    lines = made.funcfl(Poly([4.0, -0.5])).splitlines()
    text = "\n".join([*lines[:3], " ".join(lines[3:])])
    same_tables(read_eam(written(tmp_path / "Cu.eam", text)), expected)


# What is refused


def replaced(number: int, line: str | None):
    """A change that puts ``line`` in place of the numbered one, or takes it away."""

    def change(text: str) -> str:
        lines = text.splitlines()
        lines[number - 1 : number] = [] if line is None else [line]
        return "\n".join(lines)

    return change


GRID = "n_rho, d_rho, n_r, d_r, cutoff was expected"
ELEMENT = "a line of atomic number, mass, lattice constant, lattice was expected"
# Lines of the setfl: 6 Cu, 7 F, 8 density, 9 Ni, 10 F, 11 density, 12 to 14 r φ.
BROKEN = {
    "no_elements": (replaced(4, "Cu Ni"), "line 4: the number of elements and their names"),
    "too_many_elements": (replaced(4, "2000 Cu"), "line 4: the number of elements"),
    "superscripts": (replaced(4, "² Cu Ni"), "line 4: the number of elements"),
    "other_number_of_elements": (replaced(4, "3 Cu Ni"), "line 4: 3 different elements were announced, and Cu Ni"),
    "the_same_element_twice": (replaced(4, "2 Cu Cu"), "line 4: 2 different elements"),
    "short_grid": (replaced(5, "8 1.0 8 0.7"), f"line 5: a line of {GRID}"),
    "grid_in_words": (replaced(5, "8 1.0 eight 0.7 5.0"), f"line 5: a line of {GRID}"),
    "grid_of_fractions": (replaced(5, "8.0 1.0 8 0.7 5.0"), f"line 5: a line of {GRID}"),
    "grid_that_is_nan": (replaced(5, "8 nan 8 0.7 5.0"), f"line 5: a line of {GRID}"),
    "few_densities": (replaced(5, "5 1.0 8 0.7 5.0"), "line 5: n_rho is 5; it must lie between 6 and"),
    "many_distances": (replaced(5, "8 1.0 99999999 0.7 5.0"), "line 5: n_r is 99999999; it must lie"),
    "negative_count": (replaced(5, "8 1.0 -8 0.7 5.0"), "line 5: n_r is -8"),
    "negative_spacing": (replaced(5, "8 1.0 8 -0.7 5.0"), "line 5: d_r is -0.7; it must be positive"),
    "no_spacing": (replaced(5, "8 0 8 0.7 5.0"), "line 5: d_rho is 0.0; it must be positive"),
    "no_cutoff": (replaced(5, "8 1.0 8 0.7 0"), "line 5: the cutoff is 0.0; it must be positive"),
    "cutoff_behind_the_table": (replaced(5, "8 1.0 8 0.7 6.4"), "line 5: the cutoff 6.4 lies behind the end .* 4.9 Å"),
    "element_without_a_mass": (replaced(6, "29"), f"line 6: {ELEMENT}"),
    "element_by_name": (replaced(9, "Ni 58.7 3.5 fcc"), f"line 9: {ELEMENT}"),
    "a_word_among_numbers": (replaced(7, "0 1 2 3 4 five 6 7"), "line 7: a finite number was expected"),
    "a_nan_among_numbers": (replaced(8, "0 1 2 3 4 nan 6 7"), "line 8: a finite number was expected"),
    "an_infinity_among_numbers": (replaced(14, "0 1 2 3 4 5 6 -Inf"), "line 14: a finite number was expected"),
    "a_number_too_many": (replaced(13, "0 1 2 3 4 5 6 7 8"), "line 13: 9 numbers where 8 end a block"),
    "a_number_too_few": (replaced(11, "0 1 2 3 4 5 6"), "line 12: 23 numbers where 16 end a block"),
    "a_function_too_few": (replaced(14, None), "line 13: the file ends too early"),
    "a_function_too_many": (lambda text: text + "0 1 2 3 4 5 6 7\n", "line 15: numbers follow what should be the last"),
    "other_units": (replaced(1, "DATE: 2020-01-01 UNITS: real"), "line 1: UNITS: real; mdrun reads files in eV"),
    "nothing": (lambda text: "", "line 0: the file ends too early"),
    "comments_alone": (lambda text: "a\nb\nc\n", "line 3: the file ends too early"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_refused_with_its_line(tmp_path, how):
    change, message = BROKEN[how]
    path = written(tmp_path / "x.eam.alloy", change(small().setfl(False)))
    with pytest.raises(InputError, match=message) as caught:
        read_eam(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (2, "x", "line 2: a line of atomic number"),
        (2, "0 50.0 3.6 fcc", "line 2: the line starts with no atomic number"),
        (2, "-3 50.0 3.6 fcc", "line 2: the line starts with no atomic number"),
        (2, "119 50.0 3.6 fcc", "line 2: the line starts with no atomic number"),
        (6, "1 2 3 4 5 6 7 8 9", "line 6: 25 numbers where 24 end a block"),
        (6, None, "line 5: the file ends too early"),
    ],
)
def test_a_broken_funcfl_is_refused_with_its_line(tmp_path, line, text, message):
    path = written(tmp_path / "Cu.eam", replaced(line, text)(small(("Cu",)).funcfl(Poly([4.0, -0.5]))))
    with pytest.raises(InputError, match=message):
        read_eam(path)


@pytest.mark.parametrize(("name", "finnis_sinclair"), [("x.eam.alloy", True), ("x.eam.fs", False)])
def test_a_file_under_the_name_of_the_other_format_is_refused(tmp_path, name, finnis_sinclair):
    """Read wrongly, their numbers would still make a potential."""
    for symbols in (("Cu", "Ni"), ("Cu", "Ni", "Al")):
        with pytest.raises(InputError, match="line"):
            read_eam(written(tmp_path / name, small(symbols, finnis_sinclair).setfl(finnis_sinclair)))


def test_an_adp_file_is_not_read_as_eam(tmp_path):
    """It is a setfl with more functions at its end."""
    text = small(("Cu",)).setfl(False)
    with pytest.raises(InputError, match="numbers follow what should be the last function"):
        read_eam(written(tmp_path / "Cu.adp", text + "0 1 2 3 4 5 6 7\n" * 2))


def test_files_that_cannot_be_opened_are_refused(tmp_path):
    with pytest.raises(InputError, match="can't be read: No such file"):
        read_eam(tmp_path / "absent.eam")
    with pytest.raises(InputError, match="can't be read: Is a directory"):
        read_eam(tmp_path)


def test_huge_files_and_tables_are_refused_before_they_take_memory(tmp_path, monkeypatch):
    path = written(tmp_path / "x.eam.alloy", small().setfl(False))
    monkeypatch.setattr(eam_files, "MOST_BYTES", 100)
    with pytest.raises(InputError, match="larger than"):
        read_eam(path)
    monkeypatch.undo()
    many = " ".join(f"X{k}" for k in range(100))
    written(path, f"\n\n\n100 {many}\n8 1.0 1000000 0.7 5.0\n")
    with pytest.raises(InputError, match="line 5: the tables would take more than 1 GiB"):
        read_eam(path)


# Any damage

TEXTS = {
    "x.eam.alloy": small().setfl(False),
    "x.eam.fs": small(finnis_sinclair=True).setfl(True),
    "Cu.eam": small(("Cu",)).funcfl(Poly([4.0, -0.5])),
}
JUNK = st.sampled_from(
    [b"", b"nan", b"1e999", b"-1", b"0", b"1D3", b"#", b"\n", b"\x00", b"\xff", b"9" * 5000, b"UNITS: real", b" 2 "]
) | st.binary(max_size=6)  # fmt: skip


@given(name=st.sampled_from(sorted(TEXTS)), end=st.floats(0, 1), changes=st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 30), JUNK), max_size=4))  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_a_damaged_file_ends_in_a_refusal_or_a_sound_potential(tmp_path_factory, name, end, changes):
    content = TEXTS[name].encode()
    for place, length, junk in changes:
        start = int(place * len(content))
        content = content[:start] + junk + content[start + length :]
    if end < 0.5:
        content = content[: int(2 * end * len(content))]
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    try:
        tables = read_eam(path)
    except InputError:
        return
    assert len(tables.symbols) == len(tables.embedding) == len(tables.density) == len(tables.r_phi)
    assert 0 < tables.cutoff <= (tables.r_phi.shape[-1] + 1.5) * tables.d_r
    for table in (tables.embedding, tables.density, tables.r_phi):
        assert np.isfinite(table).all()
    if "Cu" in tables.symbols:
        model = EAM.from_tables(tables, (29,), name)
        assert model.density.shape == model.r_phi.shape
        assert model.r_phi.shape[-2] >= tables.r_phi.shape[-1]
        assert all(np.isfinite(table).all() for table in (model.density, model.r_phi, model.embedding))
