"""Bonds of fixed length: from a file's constraints, by elements, across the border, in copies of the cell."""

from __future__ import annotations

from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.constraints import FixAtoms, FixBondLength, FixBondLengths

from mdrun.errors import InputError
from mdrun.integrate.bonds import make_bonds, replicated
from mdrun.structures import Structure, load_structure


def waters() -> Atoms:
    """Two in a skewed cell, the second cut by the border."""
    one, other = molecule("H2O"), molecule("H2O")
    other.positions += [4.0, 3.9, 0.3]
    both = one + other
    both.set_cell([[4.0, 0, 0], [1.0, 8.0, 0], [0, 0.5, 7.0]])
    both.pbc = True
    both.wrap()
    return both


def held(atoms: Atoms, tmp_path: Path, name: str = "a.traj", **options) -> Structure:
    ase.io.write(tmp_path / name, atoms)
    return load_structure(tmp_path / name, **options)


def distances(structure: Structure) -> np.ndarray:
    atoms, bonds = structure.atoms, structure.bonds
    a, b = bonds.pairs.T
    return np.linalg.norm(atoms.positions[a] - atoms.positions[b] - bonds.shifts @ atoms.cell.array, axis=1)


@pytest.mark.parametrize("name", ["a.traj", "a.json"])
def test_the_constraints_of_a_file_are_honoured(tmp_path, name):
    atoms = waters()
    atoms.set_constraint([FixBondLengths([(0, 1), (2, 0)]), FixBondLength(3, 4), FixAtoms([5])])
    structure = held(atoms, tmp_path, name)
    assert structure.bonds.pairs.tolist() == [[0, 1], [0, 2], [3, 4]]
    assert structure.bonds.molecules.tolist() == [0, 0, 3]
    np.testing.assert_allclose(structure.bonds.lengths, molecule("H2O").get_distance(0, 1), atol=1e-12)
    assert (~structure.mobile).all(axis=1).tolist() == [False] * 5 + [True]


@pytest.mark.parametrize("kinds", ["H", "O-H", "H-O", "O", "H-O, O-H"])
def test_bonds_by_elements_are_those_of_the_molecules(tmp_path, kinds):
    structure = held(waters(), tmp_path, "a.xyz", constrain_bonds=kinds)
    assert structure.bonds.pairs.tolist() == [[0, 1], [0, 2], [3, 4], [3, 5]]
    np.testing.assert_allclose(structure.bonds.lengths, molecule("H2O").get_distance(0, 1), atol=1e-7)
    assert structure.bonds.shifts.any()  # one crosses the border


def test_those_of_the_file_and_those_by_elements_are_held_once(tmp_path):
    atoms = waters()
    atoms.set_constraint(FixBondLengths([(1, 2), (1, 0)]))
    structure = held(atoms, tmp_path, constrain_bonds="O-H")
    assert structure.bonds.pairs.tolist() == [[0, 1], [0, 2], [1, 2], [3, 4], [3, 5]]


@pytest.mark.parametrize("copies", [(2, 1, 1), (1, 3, 2), (2, 2, 2)])
def test_copies_of_the_cell_have_copies_of_the_bonds(tmp_path, copies):
    atoms = waters()
    structure = held(atoms, tmp_path, "a.xyz", constrain_bonds="H", replicate=copies)
    n = int(np.prod(copies))
    assert (len(structure.bonds), structure.bonds.n_molecules) == (4 * n, 2 * n)
    np.testing.assert_allclose(distances(structure), molecule("H2O").get_distance(0, 1), atol=1e-7)
    assert held(atoms * copies, tmp_path, "b.xyz", constrain_bonds="H").bonds.pairs.tolist() == (
        structure.bonds.pairs.tolist()
    )


def test_a_chain_without_end_stays_one(tmp_path):
    """Its last atom is bound to the first one's image."""
    chain = make_bonds([[0, 1], [1, 0]], [[0, 0, 0], [1, 0, 0]], [1.0, 1.0])
    assert replicated(chain, 2, (3, 1, 1)).n_molecules == 1
    assert replicated(chain, 2, (3, 2, 1)).n_molecules == 2


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ("N", ["N is not in the structure", "H, O"]),
        ("H-Qq", ["Qq is no element"]),
        ("h", ["'h' is not understood", "O-H"]),
        ("", ["not understood"]),
        ("H-H", ["no such bond"]),
        ("O-H-O", ["not understood"]),
    ],
)
def test_kinds_that_are_none_are_told(tmp_path, kinds, words):
    with pytest.raises(InputError) as told:
        held(waters(), tmp_path, "a.xyz", constrain_bonds=kinds)
    for word in ["--constrain-bonds", *words]:
        assert word in str(told.value)


def test_bonds_of_atoms_that_are_not_there_are_refused(tmp_path):
    atoms = waters()
    for pair, word in (((0, 9), "0-9"), ((2, 2), "itself")):
        atoms.set_constraint(FixBondLengths([pair]))
        with pytest.raises(InputError, match=word):
            held(atoms, tmp_path)


def test_molecules_are_what_bonds_connect():
    rng = np.random.default_rng(1)
    ids = rng.permutation(1000)
    chain = np.column_stack([ids[:-1], ids[1:]])
    assert make_bonds(chain, np.zeros((999, 3)), np.ones(999)).n_molecules == 1
    bonds = make_bonds(np.delete(chain, [100, 500], axis=0), np.zeros((997, 3)), np.ones(997))
    assert np.unique(bonds.molecules).tolist() == sorted(map(min, (ids[:101], ids[101:501], ids[501:])))
    assert (bonds.pairs[:, 0] < bonds.pairs[:, 1]).all()
    assert np.diff(bonds.starts).tolist() == np.bincount(bonds.molecules)[np.unique(bonds.molecules)].tolist()
