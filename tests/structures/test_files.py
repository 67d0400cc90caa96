"""Files and formats: what ASE passes on in silence is refused or told."""

from __future__ import annotations

import pickle
import resource
import subprocess
import sys
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.io.formats import ioformats

from mdrun.errors import InputError
from mdrun.structures import load_structure
from mdrun.structures.frame import asking_ase
from mdrun.structures.readers import READ
from tests.mutations import answers_or_refuses
from tests.structures.texts import PAIR, heard, refusal, xyz

# The file itself


def test_a_missing_or_empty_file_or_a_directory_is_refused_by_name(write, tmp_path):
    assert "there is no file" in refusal(tmp_path / "none.xyz")
    assert "is empty" in refusal(write("", "empty.xyz"))
    assert "is a directory" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["a.xyz", "a.traj", "a.cif", "POSCAR", "a.pdb", "a.json", "a.data", "a.pkl", "noname"])
def test_junk_is_refused_whatever_its_name(write, name):
    message = refusal(write("\x01junk\nthat nobody ( can read\n", name))
    assert name in message


def test_formats_that_run_programs_or_call_servers_are_refused(write):
    path = write("a")
    for name in ("castep-cell", "mysql", "postgresql", "py", "bundletrajectory", "lammps-dump-binary"):
        assert f"not read as {name}" in refusal(path, format=name)
    assert "knows no format" in refusal(path, format="nonsense")


class Trap:
    """Unpickled, it makes a file; so would it as a line of Python."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


def test_a_pickle_is_never_opened_whatever_its_name_and_format(tmp_path):
    trap, marker = pickle.dumps(Trap(tmp_path / "marker")), tmp_path / "marker"
    for name in (
        "a.traj",
        "a.trj",
        "a.pckl",
        "a.pkl",
        "a.xyz",
        "a.db",
        "a.bundle",
        "a.json",
        "a.gpw",
        "a.nc",
        "POSCAR",
    ):
        (tmp_path / name).write_bytes(trap)
        refusal(tmp_path / name)
    for name in sorted(ioformats):
        refusal(tmp_path / "a.pkl", format=name)
    assert not marker.exists()
    assert pickle.loads(trap) is None
    assert marker.exists()


def test_program_text_is_never_run(tmp_path):
    text = f"from pathlib import Path\nPath({str(tmp_path / 'marker')!r}).touch()\n"
    for name in ("a.py", "a.xyz", "a.in", "a.traj", "geometry.in", "inp"):
        (tmp_path / name).write_text(text)
        refusal(tmp_path / name)
    for name in sorted(ioformats):
        refusal(tmp_path / "a.py", format=name)
    assert not (tmp_path / "marker").exists()


def test_a_format_that_no_list_names_is_refused_with_those_that_are_read(write):
    said = refusal(write("a"), format="dftb")
    assert "not read as dftb" in said
    assert "extxyz" in said
    assert "ase convert" in said


def test_a_large_file_is_refused_before_it_is_read_as_a_whole(tmp_path):
    with open(tmp_path / "a.cif", "wb") as fd:
        fd.truncate(5 * 1024**3)  # takes no room
    assert "has 5.0 GiB" in refusal(tmp_path / "a.cif", format="cif")


@pytest.mark.parametrize("text", ["3\nTitle 1 2 3\n 1 0 0\nCu 0 0 0\nend\n", "import os\nos\n"])
def test_the_reader_of_every_format_comes_to_an_end_on_another_ones_file(write, text):
    path = write(text, "a")
    for form in sorted(READ):
        answers_or_refuses(lambda path, form=form: load_structure(path, format=form), path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("POSCAR", "Cu\n1.0\n9 0 0\n0 9 0\n0 0 9\nCu\n99999999999\nDirect\n0 0 0\n"),
        ("POSCAR", "Cu\n1.0\n9 0 0\n0 9 0\n0 0 9\n99999999999\nDirect\n0 0 0\n"),
        ("a.dump", "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n99999999999\nITEM: BOX BOUNDS pp pp pp\n0 9\n0 9\n0 9\n"
                   "ITEM: ATOMS id element x y z\n1 Ar 0 0 0\n"),
        ("a.data", "t\n\n99999999999 atoms\n1 atom types\n0 9 xlo xhi\n0 9 ylo yhi\n0 9 zlo zhi\n\n"
                   "Masses\n\n1 39.948\n"),
    ],
)  # fmt: skip
def test_a_count_of_more_atoms_than_lines_is_refused(write, name, text):
    form = {"a.dump": "lammps-dump-text"}.get(name)
    assert "declares 99999999999 atoms but has only" in refusal(write(text, name), format=form)


def test_a_reader_gets_memory_in_proportion_to_the_file_and_no_longer_than_it_reads(write):
    path, before = str(write("a")), resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(InputError, match="far more memory"), asking_ase(path):
        np.empty(2**33)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_importing_the_module_does_not_import_ase():
    code = "import sys, mdrun.structures; sys.exit('ase' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_with_an_at_sign_and_greek_letters_is_a_name(write):
    assert load_structure(write(xyz(PAIR), "λ@1 b.xyz")).n_atoms == 2


# Frames


def frames(n: int) -> str:
    return "".join(xyz([f"Ar {i} 0 0"]) for i in range(n))


@pytest.mark.parametrize("name", ["a.xyz", "a.xyz.gz", "a.traj"])
def test_the_frame_can_be_chosen_and_the_last_one_is_announced(tmp_path, name):
    path = tmp_path / name
    ase.io.write(path, [Atoms("Ar", positions=[(i, 0, 0)]) for i in range(12)])
    last = load_structure(path)
    assert last.atoms.positions[0, 0] == 11
    assert heard(last, "frame 11 of 12 (the last); choose with --index")
    for index in (0, 5, 11, -1, -12):
        chosen = load_structure(path, index=index)
        assert chosen.atoms.positions[0, 0] == index % 12
        assert chosen.notes == ()
    for index in (12, -13, 10**30, -(10**30)):
        assert f"no frame {index}: it holds 12 frames, 0 to 11" in refusal(path, index=index)


def test_other_formats_with_frames_say_that_there_are_several(tmp_path):
    path = tmp_path / "a.json"
    ase.io.write(path, [Atoms("Ar", positions=[(i, 0, 0)]) for i in range(3)])
    assert load_structure(path).atoms.positions[0, 0] == 2
    assert heard(load_structure(path), "several frames")
    assert load_structure(path, index=1).atoms.positions[0, 0] == 1
    assert "no frame 3" in refusal(path, index=3)
    single = tmp_path / "POSCAR"
    ase.io.write(single, bulk("Cu"), format="vasp")
    assert load_structure(single, index=-1).n_atoms == 1
    assert "no frame 1" in refusal(single, index=1)


def test_blank_lines_between_frames_hide_nothing(write):
    path = write("\n" + frames(1) + "\n\n" + xyz(["Ar 7 0 0"]) + "\n")
    assert load_structure(path).atoms.positions[0, 0] == 7


def test_a_frame_that_is_cut_off_is_refused_and_earlier_ones_are_read(write):
    path = write(frames(2) + "3\n\nAr 0 0 0\n")
    assert "frame 2 is cut off: it holds 1 of 3 atoms" in refusal(path)
    assert load_structure(path, index=1).n_atoms == 1
    assert "cut off" in refusal(write("999999999999999\n"))
    assert "expected the number of atoms" in refusal(write("9" * 5000 + "\n"))


# POSCAR


def test_a_negative_scale_is_a_volume(write):
    rows = ["Ar", "-145.531576", "1 0 0", "0 1 0", "0 0 1", "Ar", "4", "Direct"]
    rows += ["0 0 0", "0 .5 .5", ".5 0 .5", ".5 .5 0"]
    structure = load_structure(write("\n".join(rows) + "\n", "POSCAR"))
    assert structure.atoms.get_volume() == pytest.approx(145.531576)


def poscar(*flags: str, selective: bool = True, cell=("6 0 0", "0 6 0", "0 0 6"), tail: str = "") -> str:
    rows = ["LiF", "1.0", *cell, "Li F", "1 1", *(["Selective dynamics"] if selective else []), "Direct"]
    return "\n".join([*rows, f"0 0 0 {flags[0]}", f"0.5 0.5 0.5 {flags[1]}"]) + "\n" + tail


def test_selective_dynamics_fixes_exactly_the_axes_that_it_says(write):
    free = load_structure(write(poscar("Li", "F", selective=False), "POSCAR"))
    assert free.mobile.all()
    some = load_structure(write(poscar("F F F", "T T F"), "POSCAR"))
    assert some.mobile.tolist() == [[False] * 3, [True, True, False]]
    assert int(some.mobile.sum()) == 2


def test_selective_dynamics_along_skewed_vectors_is_honoured_only_where_it_is_cartesian(write):
    hexagonal = ("3 0 0", "-1.5 2.6 0", "0 0 6")
    along_c = load_structure(write(poscar("T T T", "T T F", cell=hexagonal), "POSCAR"))
    assert along_c.mobile[1].tolist() == [True, True, False]
    in_plane = load_structure(write(poscar("T T T", "F F T", cell=hexagonal), "POSCAR"))
    assert in_plane.mobile[1].tolist() == [False, False, True]
    assert "not along x, y or z" in refusal(write(poscar("T T T", "F T T", cell=hexagonal), "POSCAR"))


def test_flags_and_velocities_that_ase_misreads_are_refused(write):
    assert "line 10: the flags" in refusal(write(poscar("f f f", "T T T"), "POSCAR"))
    assert "Direct" in refusal(write(poscar("", "", selective=False, tail="Direct\n1 0 0\n0 1 0\n"), "POSCAR"))
    moving = load_structure(write(poscar("", "", selective=False, tail="\n0.01 0 0\n0 0 0\n"), "POSCAR"))
    assert moving.has_velocities


# LAMMPS


def lammps(*sections: str, title: str = "LAMMPS data file", n_types: int = 2) -> str:
    box = "0 20 xlo xhi\n0 20 ylo yhi\n0 20 zlo zhi"
    return "\n\n".join([title, f"2 atoms\n{n_types} atom types", box, *sections]) + "\n"


ATOMS = "Atoms # atomic\n\n2 2 5 0 0\n1 1 0 0 0"
MASSES = "Masses\n\n2 15.9994\n1 39.948"


@pytest.mark.parametrize("name", ["a.data", "data.system", "a.lmp"])
def test_types_become_elements_by_mass_whatever_their_order(write, name):
    structure = load_structure(write(lammps(MASSES, ATOMS), name))
    assert structure.atoms.get_chemical_symbols() == ["Ar", "O"]
    assert structure.masses.tolist() == [39.948, 15.9994]
    assert heard(structure, "1 = Ar, 2 = O")


def test_types_without_masses_are_refused_unless_species_are_named(write):
    path = write(lammps(ATOMS), "a.data")
    assert "--species" in refusal(path)
    structure = load_structure(path, species=["Ar", "O"])
    assert structure.atoms.get_chemical_symbols() == ["Ar", "O"]
    assert "no element for type 2" in refusal(path, species=["Ar"])
    assert "'Xx' is no chemical element" in refusal(path, species=["Ar", "Xx"])


def test_type_labels_follow_their_atoms(write):
    labels = "Atom Type Labels\n\n1 O\n2 Ar"
    atoms = "Atoms # atomic\n\n2 Ar 5 0 0\n1 O 0 0 0"
    structure = load_structure(write(lammps(labels, atoms), "a.data"))
    assert structure.atoms.get_chemical_symbols() == ["O", "Ar"]
    assert structure.atoms.positions[:, 0].tolist() == [0, 5]


def test_masses_of_no_element_are_refused_and_odd_ones_reported(write):
    path = write(lammps("Masses\n\n1 72.0\n2 1.0", ATOMS), "a.data")
    assert "type 1 has mass 72" in refusal(path)
    structure = load_structure(path, species=["C", "H"])
    assert structure.masses.tolist() == [72.0, 1.0]
    assert heard(structure, "type 1 is C", "72")


def test_reduced_units_a_missing_box_and_double_ids_are_refused(write):
    assert "units 'lj'" in refusal(write(lammps(MASSES, ATOMS, title="x, units = lj"), "a.data"))
    assert "no box" in refusal(write(f"t\n\n2 atoms\n2 atom types\n\n{MASSES}\n\n{ATOMS}\n", "a.data"))
    twice = ATOMS.replace("2 2 5", "1 2 5")
    assert "same id" in refusal(write(lammps(MASSES, twice), "a.data"))
    short = lammps(MASSES, ATOMS).replace("2 atoms", "900000000000 atoms")
    assert "has only" in refusal(write(short, "a.data"))
    assert "ends too early" in refusal(write(lammps(MASSES, ATOMS).replace("2 atoms", "3 atoms"), "a.data"))


def test_dumps_by_type_need_species_and_dumps_by_element_do_not(write):
    head = "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n1\nITEM: BOX BOUNDS pp pp ff\n0 9\n0 9\n0 9\n"
    by_type = write(head + "ITEM: ATOMS id type x y z\n1 2 1 1 1\n", "a.dump")
    assert "--species" in refusal(by_type)
    structure = load_structure(by_type, species=["Ar", "O"])
    assert structure.species == (8,)
    assert structure.atoms.pbc.tolist() == [True, True, False]
    by_element = write(head + "ITEM: ATOMS id element x y z\n1 Ar 1 1 1\n", "b.dump")
    assert load_structure(by_element).species == (18,)
    assert "Leave" in refusal(by_element, species=["Ar"])


def test_species_for_a_file_that_names_its_elements_are_refused(write):
    assert "Leave the option out" in refusal(write(xyz(PAIR)), species=["Ar"])
