"""Cells, columns, atoms: what is sound comes through unchanged, and the rest is refused or told."""

from __future__ import annotations

import time
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms, FixCartesian, FixLinearTriatomic, FixScaled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdrun.errors import InputError
from mdrun.structures import Structure, load_structure
from mdrun.structures.checks import close_pairs
from tests.structures.texts import CUBE, PAIR, PLAIN, heard, refusal, xyz

# boundaries


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("", "TTT"),
        ('pbc="T F T"', "TFT"),
        ('pbc="t f t"', "TFT"),
        ('pbc="1 0 1"', "TFT"),
        ('pbc="true false true"', "TFT"),
        ("pbc=[T,F,T]", "TFT"),
        ('pbc="F F F"', "FFF"),
        ("pbc=F", "FFF"),
        ("pbc=1", "TTT"),
    ],
)
def test_every_spelling_of_pbc_is_honoured(write, spelling, expected):
    structure = load_structure(write(xyz(PAIR, f"{CUBE} {spelling}")))
    assert "".join("FT"[flag] for flag in structure.atoms.pbc.astype(int)) == expected


@pytest.mark.parametrize("spelling", ['pbc="x y z"', 'pbc="T F"', "pbc=2", 'pbc="yes no yes"', 'pbc="1.0 0 0"'])
def test_other_spellings_of_pbc_are_refused_not_guessed(write, spelling):
    assert "is not understood" in refusal(write(xyz(PAIR, f"{CUBE} {spelling}")))


def test_keys_in_the_wrong_case_are_refused(write):
    assert "Spell it 'Lattice='" in refusal(write(xyz(PAIR, 'lattice="9 0 0 0 9 0 0 0 9"')))
    assert "Spell it 'pbc='" in refusal(write(xyz(PAIR, f'{CUBE} PBC="T T F"')))
    assert "Spell it 'Properties='" in refusal(write(f"1\nproperties={PLAIN}\nAr 0 0 0\n"))


def test_a_remark_that_speaks_of_lattice_or_cell_is_a_remark(write):
    structure = load_structure(write("2\nfcc lattice, properties unknown\n" + "\n".join(PAIR)))
    assert not structure.atoms.pbc.any()
    ipi = load_structure(write("2\n# CELL(abcABC): 10 10 10 90 90 90 Step: 0\n" + "\n".join(PAIR)))
    assert heard(ipi, "speaks of a cell")


def test_no_lattice_means_open_and_periodic_axes_without_a_vector_are_refused(write):
    assert not load_structure(write(xyz(PAIR))).atoms.pbc.any()
    message = refusal(write(xyz(PAIR, 'pbc="T T T"')))
    assert "axis a is periodic but has no cell vector" in message


def test_vec_lines_give_a_cell(write):
    path = write("1\nPBC=x\nAr 0 0 0\nVEC1 5 0 0\nVEC2 0 6 0\n")
    assert load_structure(path).atoms.pbc.tolist() == [True, True, False]


@pytest.mark.parametrize("cell", ["1 0 0 0 1 0 0 0 1", "1 0 0 1 0 0 1 0 0", "0 0 0 0 0 0 0 0 0"])
def test_the_cell_of_open_boundaries_does_not_matter(write, cell):
    rows = [*PAIR, "Ar 0 3.9 0", "Ar 0 0 4"]
    assert load_structure(write(xyz(rows, f'Lattice="{cell}" pbc="F F F"'))).notes == ()


@pytest.mark.parametrize(
    ("cell", "pbc", "words"),
    [
        ("5 0 0 5 0 0 0 0 5", "T T F", "span no volume"),
        ("5 0 0 0 5 0 5 5 0", "T T T", "span no volume"),
        ("5 0 0 0 5 0 0 0 0.01", "T T T", "only 0.01 Å thick"),
        ("5 0 0 0 nan 0 0 0 5", "T T T", "not finite"),
        ("5 0 0 0 inf 0 0 0 5", "T F T", "not finite"),
        ("5 0 0 0 1e200 0 0 0 5", "T T T", "larger than"),
    ],
)
def test_cells_without_a_volume_are_refused_with_their_vectors(write, cell, pbc, words):
    message = refusal(write(xyz(["Ar 0 0 0"], f'Lattice="{cell}" pbc="{pbc}"')))
    assert words in message
    assert "a = (5, 0, 0)" in message


def test_skewed_and_left_handed_cells_come_through_unchanged(write):
    left = load_structure(write(xyz(["Ar 0 0 0"], 'Lattice="2.63 0 2.63 0 2.63 2.63 2.63 2.63 0"')))
    assert np.linalg.det(left.atoms.cell.array) == pytest.approx(-36.382894)
    silicon = load_structure(write(xyz(["Si 0 0 0"], 'Lattice="0 2.73 2.73 2.73 0 2.73 2.73 2.73 0"')))
    assert silicon.atoms.cell.array.tolist() == [[0, 2.73, 2.73], [2.73, 0, 2.73], [2.73, 2.73, 0]]


# columns


def test_masses_are_used_and_a_column_named_mass_is_reported(write):
    header = f"{PLAIN}:masses:R:1:momenta:R:3"
    used = load_structure(write(xyz(["H 0 0 0 2.0141 0.2 0 0"], "", header)))
    assert used.masses.tolist() == [2.0141]
    assert used.has_velocities
    assert used.notes == ()
    unused = load_structure(write(xyz(["H 0 0 0 2.0141"], "", f"{PLAIN}:mass:R:1")))
    assert unused.masses.tolist() == [1.008]
    assert heard(unused, "mass", "not used", "'masses'")


@pytest.mark.parametrize("name", ["vel", "velo", "velocities", "velocity", "Momenta"])
def test_velocity_like_columns_are_reported_and_not_used(write, name):
    structure = load_structure(write(xyz(["Ar 0 0 0 1 0 0"], "", f"{PLAIN}:{name}:R:3")))
    assert not structure.has_velocities
    assert heard(structure, name, "'momenta' would be read", "sqrt(eV")


def test_charges_are_read_and_columns_that_only_look_like_them_reported(write):
    used = load_structure(write(xyz(["Na 0 0 0 1"], "", f"{PLAIN}:initial_charges:R:1")))
    assert used.charges.tolist() == [1.0]
    for name in ("charge", "charges", "q"):
        unused = load_structure(write(xyz(["Na 0 0 0 1"], "", f"{PLAIN}:{name}:R:1")))
        assert unused.charges.tolist() == [0.0]
        assert heard(unused, "initial_charges")


def test_columns_without_a_name_are_reported(write):
    assert heard(load_structure(write("1\n\nAr 0 0 0 0.1 0.2 0.3\n")), "7 columns", "only 4")


@pytest.mark.parametrize("properties", [f"{PLAIN}:masses:R:2", "species:S:1", "pos:R:3", "species:S:1:pos:R", "a"])
def test_columns_of_the_wrong_shape_are_refused(write, properties):
    refusal(write(xyz(["Ar 1 2 3 4 5"], "", properties)))


def test_results_in_the_file_are_dropped_and_other_columns_kept(tmp_path):
    atoms = bulk("Cu", cubic=True)
    atoms.new_array("dft_force", np.ones((4, 3)))
    atoms.calc = SinglePointCalculator(atoms, energy=-3.0, forces=np.ones((4, 3)))
    for name in ("a.xyz", "a.traj"):
        ase.io.write(tmp_path / name, atoms)
        structure = load_structure(tmp_path / name)
        assert structure.atoms.calc is None
        assert "forces" not in structure.atoms.arrays
        assert "energy" not in structure.atoms.info
    assert "dft_force" in load_structure(tmp_path / "a.xyz").atoms.arrays


@pytest.mark.parametrize("share", ["0.5", "1.0"])
def test_sites_that_are_only_partly_occupied_are_reported(tmp_path, share):
    path = tmp_path / "a.cif"
    ase.io.write(path, bulk("NaCl", "rocksalt", 5.6, cubic=True))
    path.write_text(path.read_text().replace("1.0000\n", f"{share}\n"))
    assert heard(load_structure(path), "partly occupied") == (share == "0.5")


# symbols


def test_deuterium_and_tritium_are_heavy_hydrogen(write):
    structure = load_structure(write(xyz(["O 0 0 0", "D 0 0 1", "T 0 1 0", "H 1 0 0"])))
    assert structure.atoms.get_chemical_symbols() == ["O", "H", "H", "H"]
    assert structure.masses[1:] == pytest.approx([2.014, 3.016, 1.008], abs=1e-3)
    assert structure.species == (1, 8)
    assert structure.formula == "H3O"


@pytest.mark.parametrize("symbol", ["X", "Ar1", "18", "Xx"])
def test_unknown_symbols_are_refused_with_their_line(write, symbol):
    message = refusal(write(xyz(["Ar 0 0 0", f"{symbol} 3 0 0"])))
    assert "line 4" in message
    assert f"'{symbol}'" in message


@pytest.mark.parametrize("number", [0, -1, 119])
def test_atomic_numbers_of_no_element_are_refused(write, number):
    message = refusal(write(xyz(["18 0 0 0", f"{number} 3 0 0"], "", "Z:I:1:pos:R:3")))
    assert "atom 1" in message


# fixed atoms


def test_move_mask_becomes_mobile_and_is_written_again(write, tmp_path):
    path = write(xyz(["Ar 0 0 0 F", "Ar 3.6 0 0 T"], "", f"{PLAIN}:move_mask:L:1"))
    structure = load_structure(path)
    assert structure.mobile.tolist() == [[False] * 3, [True] * 3]
    ase.io.write(tmp_path / "b.xyz", structure.atoms)
    assert load_structure(tmp_path / "b.xyz").mobile.tolist() == structure.mobile.tolist()


def test_components_can_be_fixed_one_by_one(write):
    rows = ["Ar 0 0 0 F T T", "Ar 3.6 0 0 T F F", "Ar 9 0 0 F F F", "Ar 20 0 0 T T T"]
    structure = load_structure(write(xyz(rows, "", f"{PLAIN}:move_mask:L:3")))
    expected = [[False, True, True], [True, False, False], [False] * 3, [True] * 3]
    assert structure.mobile.tolist() == expected
    assert sum(c.get_removed_dof(structure.atoms) for c in structure.atoms.constraints) == 6


def test_a_move_mask_that_ase_would_take_for_fixed_is_refused(write):
    for flags in ("t", "1", "yes"):
        rows = ["Ar 0 0 0 T", f"Ar 3.6 0 0 {flags}"]
        assert "line 4" in refusal(write(xyz(rows, "", f"{PLAIN}:move_mask:L:1")))
    assert "move_mask:L:1" in refusal(write(xyz(["Ar 0 0 0 F"], "", f"{PLAIN}:move_mask:S:1")))
    assert not load_structure(write(xyz(["Ar 0 0 0 0"], "", f"{PLAIN}:move_mask:I:1"))).mobile.any()


def test_constraints_of_a_trajectory_are_honoured_and_other_kinds_refused(tmp_path):
    atoms = bulk("Cu", cubic=True)
    path = tmp_path / "a.traj"
    partly = [FixCartesian([1, 2], (False, True, False)), FixScaled([2], (True, False, False))]
    atoms.set_constraint([FixAtoms([0]), *partly])
    ase.io.write(path, atoms)
    assert load_structure(path).mobile.tolist() == [[False] * 3, [True, False, True], [False, False, True], [True] * 3]
    atoms.set_constraint(FixLinearTriatomic([(0, 1, 2)]))
    ase.io.write(path, atoms)
    assert "FixLinearTriatomic" in refusal(path)
    atoms.set_constraint(FixAtoms([99]))
    ase.io.write(path, atoms)
    assert "does not have" in refusal(path)


def test_momenta_of_fixed_atoms_are_set_to_zero_and_that_is_said(write):
    rows = ["Ar 0 0 0 F 1 1 1", "Ar 9 0 0 T 1 1 1"]
    structure = load_structure(write(xyz(rows, "", f"{PLAIN}:move_mask:L:1:momenta:R:3")))
    assert structure.atoms.arrays["momenta"].tolist() == [[0, 0, 0], [1, 1, 1]]
    assert heard(structure, "1 fixed atoms", "set to zero")


# overlaps


def test_an_atom_written_twice_is_refused_also_through_the_boundary(write):
    message = refusal(write(xyz(["Ar 0 0 0", "O 20 0 0"], 'Lattice="20 0 0 0 20 0 0 0 20"')))
    assert "atom 0 (Ar) and atom 1 (O)" in message
    assert "0 Å apart" in message
    assert load_structure(write(xyz(["Ar 0 0 0", "O 20 0 0"]))).notes == ()
    refusal(write(xyz(["Ar 1 1 1", "Ar 1 1 1.0005"])))
    refusal(write(xyz(["Ar -5e-17 0 0", "Ar 40 -20 20"], 'Lattice="20 0 0 0 20 0 0 0 20"')))


def test_atoms_that_are_too_close_are_reported(write):
    structure = load_structure(write(xyz(["H 0.1 0 0", "Ar 5 5 5", "H 11.8 0 0"], CUBE)))
    assert heard(structure, "atom 0 (H) and atom 2 (H)", "0.300 Å apart")
    images = load_structure(write(xyz(["H 0 0 0"], 'Lattice="0.4 0 0 0 9 0 0 0 9"')))
    assert heard(images, "a periodic image of itself", "0.400 Å")


def shortest(positions, cell, pbc, reach):
    """Every image within four cells: (number of pairs, shortest distance)."""
    spans = [range(-4, 5) if flag else [0] for flag in pbc]
    n, best = 0, np.inf
    for shift in np.array(np.meshgrid(*spans)).reshape(3, -1).T:
        for i in range(len(positions)):
            for j in range(i, len(positions)):
                forward = i != j or tuple(shift) > (0, 0, 0)
                distance = np.linalg.norm(positions[j] + shift @ cell - positions[i])
                if forward and distance < reach:
                    n, best = n + 1, min(best, distance)
    return n, best


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(1, 1, 1), (1, 0, 1), (0, 0, 1), (0, 0, 0), (1, 1, 0)]))
def test_close_pairs_are_those_of_brute_force(seed, pbc):
    rng = np.random.default_rng(seed)
    cell = np.diag(rng.uniform(0.4, 2.5, 3)) + np.tril(rng.uniform(-0.5, 0.5, (3, 3)), -1)
    if seed % 2:
        cell = cell[[1, 0, 2]]
    pbc = np.array(pbc, dtype=bool)
    positions = rng.uniform(0, 1, (6, 3)) @ cell
    n, best = shortest(positions, cell, pbc, 0.5)
    scattered = positions + (rng.integers(-50, 50, (6, 3)) * pbc) @ cell
    found = close_pairs(scattered, cell, pbc, 0.5)
    assert found.n_pairs == n
    if n:
        assert found.distance == pytest.approx(best)


def test_overlaps_cost_time_by_the_number_of_atoms_not_by_the_volume():
    far = np.array([[0, 0, 0], [1e9, 0, 0], [1e9, 0.2, 0]])
    assert close_pairs(far, np.zeros((3, 3)), np.zeros(3, bool), 0.5)[1:3] == (1, 2)
    rng = np.random.default_rng(1)
    grid = np.stack(np.meshgrid(*[np.arange(40)] * 3), -1).reshape(-1, 3) * 3.0
    crowd = rng.uniform(0, 1, (200_000, 3))  # scaled coordinates taken for Å
    start = time.perf_counter()
    assert close_pairs(grid, np.eye(3) * 120, np.ones(3, bool), 0.5).n_pairs == 0
    assert close_pairs(crowd, np.zeros((3, 3)), np.zeros(3, bool), 0.5).n_pairs > 200_000
    assert time.perf_counter() - start < 10


def test_coordinates_in_the_wrong_unit_are_reported_and_overlaps_among_them_still_found(tmp_path):
    rng = np.random.default_rng(2)
    atoms = Atoms("Ar3000", positions=rng.uniform(0, 1, (3000, 3)))
    ase.io.write(tmp_path / "a.traj", atoms)
    assert heard(load_structure(tmp_path / "a.traj"), "more than", "in Å?")
    atoms.positions[2999] = atoms.positions[2998]
    ase.io.write(tmp_path / "a.traj", atoms)
    assert "atom 2998 (Ar) and atom 2999 (Ar)" in refusal(tmp_path / "a.traj")


# Numbers


def test_the_first_atom_with_a_number_that_is_not_finite_is_named(write):
    path = write(xyz(["Ar 0 0 0", "Ar 1.2 nan 4", "Ar 9 9 9"]), "liquid.extxyz")
    assert refusal(path).startswith(
        f"atom 1 (Ar) in {path}, frame 0, has a position that is not finite: (1.200, nan, 4.000)."
    )
    assert "position that is beyond" in refusal(write(xyz(["Ar 0 0 1e13"])))
    for name, row in (("masses:R:1", "inf"), ("initial_charges:R:1", "nan"), ("momenta:R:3", "0 0 nan")):
        assert "not finite" in refusal(write(xyz([f"Ar 0 0 0 {row}"], "", f"{PLAIN}:{name}")))
    assert "masses must be positive" in refusal(write(xyz(["Ar 0 0 0 0"], "", f"{PLAIN}:masses:R:1")))
    assert "no atoms" in refusal(write("0\n\n"))


def test_atoms_outside_the_cell_stay_where_they_are(write):
    structure = load_structure(write(xyz(["Ar -30 0 50", "Ar 3.8 100 0"], CUBE)))
    assert structure.atoms.positions.tolist() == [[-30, 0, 50], [3.8, 100, 0]]


# Replicas


def test_replicas_carry_every_field(write):
    rows = ["Ar 0 0 0 F 0 0 0 0.5 7 30", "O 3.6 0 0 T 1 2 3 -0.5 8 16"]
    header = f"{PLAIN}:move_mask:L:1:momenta:R:3:initial_charges:R:1:label:I:1:masses:R:1"
    structure = load_structure(write(xyz(rows, f'{CUBE} pbc="T T F"', header)), replicate=(2, 3, 1))
    assert structure.n_atoms == 12
    assert structure.formula == "Ar6O6"
    assert structure.mobile.tolist() == [[False] * 3, [True] * 3] * 6
    assert structure.masses.tolist() == [30, 16] * 6
    assert structure.charges.tolist() == [0.5, -0.5] * 6
    assert structure.atoms.arrays["momenta"].tolist() == [[0, 0, 0], [1, 2, 3]] * 6
    assert structure.atoms.arrays["label"].tolist() == [7, 8] * 6
    assert structure.atoms.cell.lengths().tolist() == [24, 36, 12]
    assert sum(len(c.index) for c in structure.atoms.constraints) == 6


@pytest.mark.parametrize("replicate", [(0, 1, 1), (1, 1), (1.5, 1, 1), (1, -2, 1), (1, 1, 2), (10**5, 10**5, 1)])
def test_replicas_that_make_no_sense_are_refused(write, replicate):
    assert "--replicate" in refusal(write(xyz(PAIR, f'{CUBE} pbc="T T F"')), replicate=replicate)


# Anything at all

GOOD = xyz(
    ["Ar 1 1 1 T 0.1", "O 9 1 1 F 0.2", "D 1 9 1 T 0.3"],
    f'{CUBE} pbc="T F T" energy=-1.0',
    f"{PLAIN}:move_mask:L:1:masses:R:1",
)
DEBRIS = ["", "\n", "0", "-", "nan", ' "', "=", ":", "T", "1e309", "\x00", "é", "VEC1 1 0 0\n", "{", "_JSON ["]


def loaded(path: Path) -> Structure | str:
    try:
        return load_structure(path)
    except InputError as problem:
        return str(problem)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2 * len(GOOD)), st.integers(0, 8), st.sampled_from(DEBRIS)), max_size=4))
def test_a_damaged_file_ends_in_a_refusal_or_a_sound_structure(tmp_path, changes):
    text = GOOD + GOOD
    for place, removed, inserted in changes:
        text = text[:place] + inserted + text[place + removed :]
    path = tmp_path / "a.xyz"
    path.write_text(text)
    structure = loaded(path)
    if isinstance(structure, str):
        assert "\n" not in structure
        assert "a.xyz" in structure
        return
    n = structure.n_atoms
    assert n > 0
    assert structure.masses.shape == structure.charges.shape == (n,)
    assert structure.mobile.shape == (n, 3)
    assert np.isfinite(structure.atoms.positions).all()
    assert (structure.masses > 0).all()
