"""What a run keeps of the structure that it began with comes back as it was, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.constraints import FixAtoms, FixBondLengths, FixCartesian
from ase.spacegroup import crystal

from mdrun import npz
from mdrun.npz import Damaged
from mdrun.structures import Structure, load_structure
from mdrun.structures.kept import FORMAT as STRUCTURE_FORMAT
from mdrun.structures.kept import Unkeepable, keep, read_kept


def rich() -> Atoms:
    """Columns and words of every type that a trajectory can carry."""
    atoms = Atoms("OHHOHHAr", cell=[[9, 0, 0], [1, 9, 0], [0, 2, 9]], pbc=[True, True, False])
    atoms.positions = np.random.default_rng(1).uniform(0, 9, (7, 3))
    atoms.positions[[1, 2, 4, 5]] = atoms.positions[[0, 0, 3, 3]] + [[0.96, 0, 0], [0, 0.96, 0]] * 2
    atoms.set_masses(np.linspace(1, 20, 7))
    atoms.set_initial_charges(np.linspace(-1, 1, 7))
    atoms.set_momenta(np.random.default_rng(2).normal(size=(7, 3)))
    atoms.set_tags(range(7))
    atoms.set_array("label", np.array(["O1", "H", "é", "O2", "", "H b", "Ar"]))
    atoms.set_array("flags", np.arange(14).reshape(7, 2) % 3 == 0)
    atoms.set_array("narrow", np.linspace(0, 1, 7, dtype=np.float32))
    atoms.set_array("turned", np.asfortranarray(np.random.default_rng(3).normal(size=(7, 3))))
    atoms.info = {
        "none": None, "flag": True, "count": 7, "real": 0.1, "word": "an é", "list": [1, [2.5, "x"]], "pair": (1, 2),
        "array": np.eye(3), "words": np.array(["a", "bc"]), "number": np.float32(0.1), "whole": np.int64(3),
        "table": {"a": 1, 2: {"b": np.arange(3)}}, "nan": float("nan"), 7: "a number names it",
    }  # fmt: skip
    atoms.set_constraint([FixAtoms([6]), FixCartesian(3, [True, False, True]), FixBondLengths([[0, 1], [0, 2]])])
    return atoms


def salt() -> Atoms:
    return crystal("NaCl", [(0, 0, 0), (0.5, 0.5, 0.5)], spacegroup=225, cellpar=[5.64] * 3 + [90] * 3)


STRUCTURES: dict[str, tuple[Any, str]] = {
    "rich": (rich, "a.traj"),
    "rich text": (rich, "a.extxyz"),
    "space group": (salt, "a.cif"),
    "molecule": (lambda: molecule("H2O"), "a.extxyz"),
    "protein": (lambda: molecule("CH3CH2OH", vacuum=4), "a.pdb"),
    "one atom": (lambda: Atoms("Ar", cell=[6, 6, 6], pbc=True), "a.vasp"),
}  # fmt: skip


@pytest.fixture(params=STRUCTURES)
def structure(request, tmp_path) -> Structure:
    make, name = STRUCTURES[request.param]
    atoms = make()
    if name == "a.extxyz" and request.param != "molecule":
        atoms.info = {}
        atoms.set_array("label", np.array(["O1", "H", "é", "O2", "x", "H_b", "Ar"]))
        atoms.set_constraint(atoms.constraints[:2])
    ase.io.write(tmp_path / name, atoms)
    found = load_structure(tmp_path / name, freeze=None if request.param == "one atom" else "0")
    if "rich" in request.param:  # no file has all of it
        found.atoms.info = make().info
    return found


def same(one: Any, other: Any) -> bool:
    """In type, order and value."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return len(one) == len(other) and all(same(a, b) for a, b in pairs)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and one.dtype.hasobject:
        return one.dtype == other.dtype and same(one.tolist(), other.tolist())
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other) or (one != one and other != other)


def test_it_comes_back_as_it_was(structure, tmp_path):
    path = tmp_path / "structure.npz"
    keep(path, structure, "ab", {"index": 3})
    kept = read_kept(path)
    assert (kept.digest, kept.reading) == ("ab", {"index": 3})
    back = kept.structure
    assert kept.digest == "ab"
    assert same(back.atoms.arrays, structure.atoms.arrays)
    assert same(back.atoms.info, structure.atoms.info)
    assert np.array_equal(back.atoms.cell.array, structure.atoms.cell.array)
    assert same(back.atoms.pbc, structure.atoms.pbc)
    for name in ("masses", "charges", "mobile"):
        assert same(getattr(back, name), getattr(structure, name)), name
    for name in ("pairs", "shifts", "lengths", "molecules"):
        assert same(getattr(back.bonds, name), getattr(structure.bonds, name)), name
    assert repr(back.atoms.constraints) == repr(structure.atoms.constraints)
    assert back.has_velocities == structure.has_velocities
    assert back.species == structure.species


@pytest.mark.parametrize("what", ["info", "deep", "column", "objects", "name"])
def test_what_has_no_place_without_pickle_is_not_kept(what, tmp_path):
    ase.io.write(tmp_path / "a.extxyz", molecule("H2O"))
    structure = load_structure(tmp_path / "a.extxyz")
    if what == "column":
        structure.atoms.arrays["odd"] = np.array(["a", "b\0", "c"], dtype=object)
    elif what == "objects":
        structure.atoms.arrays["odd"] = np.array(["a", None, Path()], dtype=object)
    else:
        value = {"info": Path(), "deep": [1, {"a": {1, 2}}], "name": 1}[what]
        structure.atoms.info[Path() if what == "name" else "odd"] = value
    with pytest.raises(Unkeepable):
        keep(tmp_path / "structure.npz", structure, "", {})
    assert not (tmp_path / "structure.npz").exists()


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("pairs", np.array([[0, 9]]), "between no atoms"),
        ("pairs", np.array([[1, 1]]), "between no atoms"),
        ("shifts", np.array([[2**40, 0, 0]]), "reach too far"),
        ("lengths", np.array([np.nan]), "no lengths"),
        ("mobile", np.ones((3, 2), bool), "mobile is of type bool and shape"),
        ("masses", np.zeros(3), "masses must be positive"),
        ("masses", np.full(3, np.nan), "not finite"),
        ("charges", np.zeros(3, "f4"), "charges is of type float32"),
        ("cell", np.ones((3, 3)), "span no volume"),
        ("column_0", np.array([8, 1, 200]), "no element"),
        ("column_1", np.full((3, 3), np.inf), "not finite"),
        ("column_1", np.zeros((2, 3)), "has shape"),
        ("pbc", None, "pbc"),
    ],
)
def test_a_whole_file_of_hostile_contents_is_refused(name, values, words, tmp_path):
    atoms = molecule("H2O", cell=[9, 9, 9], pbc=True)
    atoms.set_constraint(FixBondLengths([[0, 1]]))
    ase.io.write(tmp_path / "a.traj", atoms)
    path = tmp_path / "structure.npz"
    keep(path, load_structure(tmp_path / "a.traj"), "", {})
    meta, arrays = npz.read(path, "structure", STRUCTURE_FORMAT)
    assert meta["columns"][:2] == ["numbers", "positions"]
    arrays = {**arrays, name: values} if values is not None else {n: v for n, v in arrays.items() if n != name}
    npz.write(path, meta, arrays)
    with pytest.raises(Damaged, match=words):
        read_kept(path)
