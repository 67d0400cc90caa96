"""Hostile structures, configurations, and expressions of the command line end in a value or in one paragraph."""

from __future__ import annotations

import pytest
from ase import Atoms
from ase.build import bulk

from mdrun.run.config import read_config
from mdrun.run.relax_settings import RelaxSettings
from mdrun.run.settings import Settings, make_settings
from mdrun.structures import load_structure
from mdrun.structures.bonds import bonds_of_kinds
from mdrun.structures.frame import Place
from mdrun.structures.selection import select
from mdrun.validate.verdict import names_in
from tests.mutations import feed, feed_files, hostile, mutations, texts

EXTXYZ = """2
Lattice="6 0 0 0 6 0 0 0 6" Properties=species:S:1:pos:R:3:momenta:R:3:move_mask:L:1 pbc="T T F" energy=-1.5
Ar 0.0 0.0 0.0 0.1 0.2 0.3 T
D 3.8 0.5 0.25 -0.1 0.0 1e-3 F
"""
XYZ = "3\nwater\nO 0.0 0.0 0.12\nH 0.0 0.76 -0.48\nH 0.0 -0.76 -0.48\n"
CIF = """data_NaCl
_cell_length_a 5.64
_cell_length_b 5.64
_cell_length_c 5.64
_cell_angle_alpha 90
_cell_angle_beta 90
_cell_angle_gamma 90
_symmetry_space_group_name_H-M 'F m -3 m'
_symmetry_Int_Tables_number 225
loop_
_symmetry_equiv_pos_as_xyz
'x, y, z'
'-x, -y, z'
loop_
_atom_site_label
_atom_site_type_symbol
_atom_site_occupancy
_atom_site_fract_x
_atom_site_fract_y
_atom_site_fract_z
Na1 Na 1.0 0.0 0.0 0.0
Cl1 Cl 1.0 0.5 0.5 0.5
"""
POSCAR = """NaCl
1.0
5.64 0 0
0 5.64 0
0 0 5.64
Na Cl
1 2
Selective dynamics
Direct
0.0 0.0 0.0 T T F
0.5 0.5 0.5 T T T
0.5 0.0 0.0 F F F
Cartesian
0.1 0.0 0.0
0.0 0.1 0.0
0.0 0.0 0.1
"""
LAMMPS = """LAMMPS data file via write_data, units = metal

2 atoms
2 atom types
0 10 xlo xhi
0 10 ylo yhi
0 10 zlo zhi
1.0 0.0 0.0 xy xz yz

Masses

1 39.948 # Ar
2 63.546

Atoms # atomic

1 1 0.0 0.0 0.0 0 0 0
2 2 3.0 3.0 3.0 0 0 1

Velocities

1 0.1 0.2 0.3
2 0.1 0.2 0.3
"""
DUMP = """ITEM: TIMESTEP
0
ITEM: NUMBER OF ATOMS
2
ITEM: BOX BOUNDS xy xz yz pp pp ff
0.0 11.0 1.0
0.0 10.0 0.0
0.0 10.0 0.0
ITEM: ATOMS id type element mass x y z vx vy vz q
1 1 Ar 39.948 0.0 0.0 0.0 0.1 0.2 0.3 0.0
2 2 Cu 63.546 3.0 3.0 3.0 0.1 0.2 0.3 1.0
"""
PDB = """CRYST1   20.000   20.000   20.000  90.00  90.00  90.00 P 1
ATOM      1  O   HOH     1       0.000   0.000   0.120  1.00  0.00           O
ATOM      2  H   HOH     1       0.000   0.760  -0.480  1.00  0.00           H
ENDMDL
"""
FILES = {
    "a.extxyz": EXTXYZ,
    "a.xyz": XYZ,
    "a.cif": CIF,
    "POSCAR": POSCAR,
    "a.data": LAMMPS,
    "a.dump": DUMP,
    "a.pdb": PDB,
}
BINARY = ["a.traj", "a.json"]


def valid(name: str, tmp_path) -> bytes:
    if name in FILES:
        return FILES[name].encode()
    bulk("Cu", cubic=True).write(tmp_path / name)
    return (tmp_path / name).read_bytes()


@pytest.mark.parametrize("name", [*FILES, *BINARY])
@hostile
def test_a_hostile_structure_is_read_or_refused(name, n_inputs, tmp_path):
    content = valid(name, tmp_path)
    (tmp_path / name).write_bytes(content)
    form = {"a.dump": "lammps-dump-text"}.get(name)
    assert load_structure(tmp_path / name, format=form).n_atoms >= 2
    feed_files(lambda path: load_structure(path, format=form), tmp_path / name, mutations(content), n_inputs)


CONFIG = """steps = 100
time = 1.0
temperature = 300.0
ensemble = "nvt"
replicate = [2, 2, 2]
species = ["Ar", "Cu"]
model = "lj:epsilon=0.01,sigma=3.4"
overwrite = false
out = "é"
"""


@pytest.mark.parametrize("kind", [Settings, RelaxSettings])
@hostile
def test_a_hostile_configuration_is_read_or_refused(kind, n_inputs, tmp_path):
    def read(path) -> None:
        make_settings(read_config(path, kind), {"structure": "a.xyz"}, kind)

    feed_files(read, tmp_path / "a.toml", mutations(CONFIG.encode()), n_inputs)


WATER = Atoms("OH2", [[0, 0, 0.12], [0, 0.76, -0.48], [0, -0.76, -0.48]], cell=[9, 9, 9], pbc=True)
EXPRESSIONS = {
    "atoms": (
        lambda text: select(text, WATER, "--freeze"),
        ["0-1,2", "O", "z<0 and x>=-5 or H", "0 - 2 , H and y<1e3"],
    ),
    "bonds": (lambda text: bonds_of_kinds(WATER, text, Place("a.xyz")), ["H", "O-H", "O - H, H"]),
    "checks": (names_in, ["forces,stress", "energy, list ,ensemble"]),
}


@pytest.mark.parametrize("what", EXPRESSIONS)
@hostile
def test_a_hostile_expression_is_understood_or_refused(what, n_inputs):
    read, examples = EXPRESSIONS[what]
    feed(read, texts(*examples), n_inputs)
