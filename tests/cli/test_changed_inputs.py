"""Runs that go on while the files that they began with were changed, moved or lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase.build import bulk
from ase.constraints import FixAtoms, FixBondLengths, FixCartesian

from mdrun.npz import checksum
from mdrun.structures.kept import read_kept
from tests.cli.launcher import call
from tests.systems import DATA, pfcc

POTENTIALS = DATA / "potentials"
LJ = "cutoff = 8.5\n[species.Ar]\nepsilon = 0.0103\nsigma = 3.4\n"
PLUG_IN = """
from pathlib import Path
from mdrun.potentials.registry import load_model
Path("ran").touch()
def make(numbers, weights=None):
    return load_model("lj", numbers)
"""


def table() -> str:
    r = np.linspace(1.0, 8.0, 200)
    rows = "".join(f"{k} {x:.6f} {x**-6:.9f} {6 * x**-7:.9f}\n" for k, x in enumerate(r, 1))
    return f"# UNITS: metal\nAr-Ar\nN {len(r)} R 1.0 8.0\n\n{rows}"


def crystal(symbol: str) -> ase.Atoms:
    atoms = bulk(symbol, cubic=True) * (3, 3, 3) if symbol != "Si" else bulk(symbol, cubic=True) * 2
    atoms.rattle(0.05, seed=1)
    return atoms


# The model's text with {} before each file, the species, and what is in the files.
KINDS: dict[str, tuple[str, str, dict[str, str]]] = {
    "lj": ("lj:{}a.toml", "Ar", {"a.toml": LJ}),
    "morse": ("morse:{}a.toml", "Cu", {"a.toml": "cutoff = 9\n[species.Cu]\nD = 0.34\na = 1.36\nr0 = 2.87\n"}),
    "table": ("table:{}a.table,cutoff=7", "Ar", {"a.table": table()}),
    "setfl": ("eam:{}Cu_mishin1.eam.alloy", "Cu", {}),
    "funcfl": ("eam:{}Cu_u3.eam", "Cu", {}),
    "eam.fs": ("eam:{}Fe_mm.eam.fs", "Fe", {}),
    "sw": ("sw:{}Si.sw", "Si", {}),
    "tersoff": ("tersoff:{}Si.tersoff", "Si", {}),
    "sum": ("zbl:inner=1,outer=2 + lj:{}a.toml", "Ar", {"a.toml": LJ}),
    "plug-in": ("{}mine.py:make", "Ar", {"mine.py": PLUG_IN}),
    "weights of a plug-in": ("{}mine.py:make,weights={}w.pt", "Ar", {"w.pt": "1", "mine.py": PLUG_IN}),
    "ase": ("ase:ase.calculators.lj:LennardJones,toml={}a.toml", "Ar", {"a.toml": "sigma = 3.4\nrc = 5.0\n"}),
}


@pytest.fixture(params=KINDS)
def began(request, tmp_path) -> tuple[Path, str, list[Path]]:
    """A run of five steps, its model with {} before each file, and those files in the directory ``was``."""
    spec, symbol, texts = KINDS[request.param]
    (tmp_path / "was").mkdir()
    for name, text in texts.items():
        (tmp_path / "was" / name).write_text(text)
    if not texts:
        shutil.copy(POTENTIALS / spec.partition("{}")[2], tmp_path / "was")
    ase.io.write(tmp_path / "atoms.xyz", pfcc(3, 3, 3) if symbol == "Ar" else crystal(symbol))
    model = spec.replace("{}", "was/")
    call("simulate", "atoms.xyz", "--model", model, "--steps", 5, "--out", "run", cwd=tmp_path).expect(0)
    return tmp_path, spec, sorted((tmp_path / "was").glob("*.*"))


def test_a_file_of_the_model_that_changed_is_a_change_of_the_model(began):
    folder, _, files = began
    (folder / "ran").unlink(missing_ok=True)
    for file in files:
        content = file.read_bytes()
        file.write_bytes(content + b"\n")
        before = {path.name: path.read_bytes() for path in (folder / "run").iterdir()}
        refused = call("resume", "run", "--steps", 8, cwd=folder).expect(2)
        assert f"the model's file {file} is not the one that the run began with" in refused.err
        assert "--allow-changes model" in refused.err
        assert {path.name: path.read_bytes() for path in (folder / "run").iterdir()} == before
        assert not (folder / "ran").exists()  # what it was changed to is not run unasked
        file.write_bytes(content)
    files[0].write_bytes(files[0].read_bytes() + b"\n")
    allowed = call("resume", "run", "--steps", 8, "--allow-changes", "model", cwd=folder).expect(0)
    assert "changed at step 5: the model's file" in " ".join(allowed.out.split())
    call("resume", "run", "--steps", 9, cwd=folder).expect(0)  # from now on it is this one


def test_a_file_of_the_model_that_is_gone_or_back_and_the_same_content_elsewhere(began):
    folder, spec, files = began
    (folder / "was").rename(folder / "now")
    call("resume", "run", "--steps", 6, cwd=folder).expect(2)
    moved = spec.replace("{}", "now/")
    call("resume", "run", "--steps", 6, "--model", moved, cwd=folder).expect(0)
    files = sorted((folder / "now").glob("*.*"))
    files[0].write_bytes(files[0].read_bytes() + b"\n")
    refused = call("resume", "run", "--steps", 7, cwd=folder).expect(2)
    assert f"the model's file {files[0]} is not the one" in refused.err


def test_a_checkpoint_that_does_not_tell_of_the_model_s_files_is_of_another_format(tmp_path):
    ase.io.write(tmp_path / "atoms.xyz", pfcc(3, 3, 3))
    call("simulate", "atoms.xyz", "--steps", 2, "--out", "run", cwd=tmp_path).expect(0)
    path = tmp_path / "run/checkpoint.npz"
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "checksum"}
    meta = json.loads(str(arrays["meta"]))
    del meta["inputs"]
    for changes, words in (({}, "no whole checkpoint|no checkpoint to go on from"), ({"format": 3}, "of format 3")):
        arrays["meta"] = np.array(json.dumps(meta | changes))
        np.savez(path, **arrays, checksum=np.array(checksum(arrays)))
        refused = call("resume", "run", "--steps", 5, cwd=tmp_path).expect(2)
        assert any(word in refused.err for word in words.split("|"))


def rich() -> ase.Atoms:
    """Argon with columns and words that mean nothing to a run, and with all that means something."""
    atoms = pfcc(3, 3, 3)
    rng, n = np.random.default_rng(4), len(atoms)
    atoms.numbers[::5] = 36
    atoms.set_masses(rng.uniform(30, 90, n))
    atoms.set_initial_charges(rng.normal(size=n))
    atoms.set_momenta(rng.normal(0, 1.5, (n, 3)))
    atoms.set_array("label", np.array([f"A{i}" for i in range(n)]))
    atoms.set_array("flag", np.arange(n) % 2 == 0)
    atoms.set_array("color", rng.normal(size=(n, 3)))
    atoms.set_array("layer", np.arange(n) // 7)
    atoms.info = {"name": "argon and krypton", "note": "a b", "k": 3, "x": 0.1, "ok": True, "v": np.arange(3) / 7}
    atoms.set_constraint([FixAtoms([7, 9]), FixCartesian(11, [True, False, False])])
    return atoms


LOST = {
    "extxyz": (rich, "a.extxyz", ()),
    "traj with bonds": (rich, "a.traj", ("--freeze", "3-5", "--replicate", 1, 1, 2)),
    "cif": (lambda: bulk("Cu", cubic=True) * (3, 3, 3), "a.cif", ("--constrain-bonds", "none")),
    "lammps": (lambda: pfcc(3, 3, 3), "a.lmp", ("--species", "Ar", "--format", "lammps-data")),
    "several frames": (lambda: [rich(), rich(), pfcc(2, 2, 2)], "a.extxyz", ("--index", 1, "--init-temperature", 50)),
}


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("fate", ["gone", "changed"])
def test_a_run_goes_on_without_its_structure_s_file_to_the_last_bit(kind, fate, tmp_path):
    make, name, words = LOST[kind]
    atoms = make()
    if kind == "traj with bonds":
        atoms.constraints.append(FixBondLengths([[i, i + 1] for i in range(20, 60, 2)]))
    words = () if "none" in words else words
    writing = {"format": "lammps-data", "masses": True} if kind == "lammps" else {}
    ase.io.write(tmp_path / name, atoms, **writing)
    trajectories = [word for n in ("a.extxyz", "a.dump", "a.traj") for word in ("--trajectory", n)]
    bath = ("--ensemble", "nvt", "--temperature", 40, "--seed", 1, "--trajectory-every", 5, "--log-every", 5)
    words = (name, *words, *bath, *trajectories)
    call("simulate", *words, "--steps", 23, "--out", "whole", cwd=tmp_path).expect(0)
    call("simulate", *words, "--steps", 12, "--out", "parts", cwd=tmp_path).expect(0)
    path = tmp_path / name
    path.unlink() if fate == "gone" else ase.io.write(path, pfcc(2, 2, 2), format="extxyz")
    on = call("resume", "parts", "--steps", 23, cwd=tmp_path).expect(0)
    out = " ".join(on.out.split())
    assert ("is not there any more: going on with the structure" if fate == "gone" else "has changed since") in out
    for file in ("thermo.csv", "a.extxyz", "a.dump", "a.traj"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes(), file


def test_the_structure_that_a_run_keeps_is_checked_and_the_file_serves_without_it(tmp_path):
    ase.io.write(tmp_path / "atoms.extxyz", rich())
    call("simulate", "atoms.extxyz", "--steps", 3, "--out", "run", cwd=tmp_path).expect(0)
    kept = tmp_path / "run/structure.npz"
    content = kept.read_bytes()
    for damaged in (b"", content[:-40], content[:300] + b"X" + content[301:]):
        kept.write_bytes(damaged)
        refused = call("resume", "run", "--steps", 5, cwd=tmp_path).expect(2)
        assert "run/structure.npz" in refused.err
        assert "Remove it, and the structure is read from" in refused.err
    kept.unlink()
    call("resume", "run", "--steps", 5, cwd=tmp_path).expect(0)
    assert read_kept(kept).structure.atoms == read_kept_from(content, tmp_path)  # as it has been read again
    kept.unlink()
    (tmp_path / "atoms.extxyz").unlink()
    assert "there is no file" in call("resume", "run", "--steps", 7, cwd=tmp_path).expect(2).err


def read_kept_from(content: bytes, folder: Path) -> ase.Atoms:
    (folder / "copy.npz").write_bytes(content)
    return read_kept(folder / "copy.npz").structure.atoms


def test_a_file_named_anew_may_differ_in_what_the_run_has_taken_over_since(tmp_path):
    """Positions are the checkpoint's; frames keep the columns that the run began with."""
    ase.io.write(tmp_path / "atoms.extxyz", rich())
    words = ("simulate", "atoms.extxyz", "--resume", "--trajectory-every", 1)
    call(*words, "--steps", 6, "--out", "whole", cwd=tmp_path).expect(0)
    call(*words, "--steps", 3, "--out", "run", cwd=tmp_path).expect(0)
    moved = rich()
    moved.positions += 0.01
    del moved.arrays["label"]
    ase.io.write(tmp_path / "atoms.extxyz", moved)
    on = call(*words, "--steps", 6, "--out", "run", cwd=tmp_path).expect(0)
    assert "has changed since" in " ".join(on.out.split())
    (tmp_path / "atoms.extxyz").unlink()
    call(*words, "--steps", 6, "--out", "run", cwd=tmp_path).expect(0)
    name = "trajectory.extxyz"
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_what_is_read_of_the_file_may_change_where_that_is_allowed(tmp_path):
    water = pfcc(3, 3, 3)
    ase.io.write(tmp_path / "atoms.extxyz", water)
    call("simulate", "atoms.extxyz", "--steps", 3, "--out", "run", cwd=tmp_path).expect(0)
    change = ("--constrain-bonds", "Ar", "--allow-changes", "constrain-bonds")
    refused = call("simulate", "atoms.extxyz", "--resume", "--out", "run", *change, cwd=tmp_path).expect(2)
    assert "there is no such bond" in refused.err  # it was looked for in the file


def test_a_relaxation_keeps_no_structure_and_a_new_run_replaces_the_old_one_s(tmp_path):
    ase.io.write(tmp_path / "atoms.extxyz", rich())
    ase.io.write(tmp_path / "other.extxyz", pfcc(2, 2, 2))
    call("relax", "atoms.extxyz", "--fmax", 10, "--out", "relaxed", cwd=tmp_path).expect(0)
    assert not (tmp_path / "relaxed/structure.npz").exists()
    call("simulate", "atoms.extxyz", "--steps", 1, "--out", "run", cwd=tmp_path).expect(0)
    before = (tmp_path / "run/structure.npz").read_bytes()
    words = ("simulate", "other.extxyz", "--model", "lj:sigma=9,epsilon=1", "--out", "run", "--overwrite")
    call(*words, "--steps", 0, "--trajectory-atoms", "Xe", cwd=tmp_path).expect(2)
    assert (tmp_path / "run/structure.npz").read_bytes() == before
    call("simulate", "other.extxyz", "--steps", 1, "--out", "run", "--overwrite", cwd=tmp_path).expect(0)
    assert len(read_kept(tmp_path / "run/structure.npz").structure.atoms) == 32
