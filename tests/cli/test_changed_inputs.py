"""Runs that go on while the files that they began with were changed, moved or lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase.build import bulk

from mdrun.npz import checksum
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
