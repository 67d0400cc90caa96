"""Checks of models that ask for a strategy, a precision or compiling of their own get what a run would give them."""

from __future__ import annotations

import json
from pathlib import Path

import ase.io
import pytest
import torch
from ase import Atoms

from mdrun.compiler import why_eager
from mdrun.validate import ranks
from tests.cli.launcher import MDRUN, call, torchrun
from tests.systems import pfcc

MODEL = f"{Path(__file__).with_name('learned.py')}:make,kind="
SHORT = ("--short-steps", 60, "--samples", 2, "--seed", 3, "--timestep", 4, "--init-temperature", 40)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(ranks, "NUMBERS", (2,))
    cluster = pfcc(2, 2, 2)
    cluster.set_cell(None)
    cluster.pbc = False
    ase.io.write(tmp_path / "argon.xyz", pfcc(3, 2, 2))
    ase.io.write(tmp_path / "cluster.xyz", cluster)
    return tmp_path


def checked(path: Path) -> dict[str, dict]:
    return {check["name"]: check for check in json.loads((path / "validate.json").read_text())["checks"]}


def test_ranks_and_lists_of_a_wide_halo_are_those_of_a_run(folder):
    words = ("validate", "argon.xyz", "--model", f"{MODEL}wide", "--checks", "ranks,list", *SHORT, "--out", "x")
    torchrun(2, "--no-python", MDRUN, *words, cwd=folder).wait().expect(0)
    assert {name: check["verdict"] for name, check in checked(folder / "x").items()} == {
        "ranks": "pass",
        "list": "pass",
    }
    assert checked(folder / "x")["list"]["numbers"]["dangerous_builds"] == 0


def test_a_model_that_sees_all_atoms_gets_them_on_every_rank(folder):
    """One rank's, which the halo serves too, against two's, which it does not."""
    words = ("validate", "cluster.xyz", "--model", f"{MODEL}all", "--checks", "ranks", *SHORT, "--out", "x")
    call(*words, cwd=folder).expect(0)
    assert checked(folder / "x")["ranks"]["verdict"] == "pass"


def test_a_model_without_float64_is_judged_as_one_of_float32(folder):
    words = ("--checks", "forces,stress,ranks,list", *SHORT, "--out", "x")
    ended = call("validate", "argon.xyz", "--model", f"{MODEL}float32", "--precision", "double", *words, cwd=folder)
    ended.expect(0)
    assert (
        "--precision double is not granted by learned.py:make (float32), which computes in float32 alone" in ended.out
    )
    found = checked(folder / "x")
    assert (found["ranks"]["verdict"], found["list"]["verdict"]) == ("pass", "pass")
    assert found["ranks"]["limit"] >= 1e-4
    assert found["ranks"]["value"] < 1e-4
    assert "taken in double" not in found["forces"]["meaning"]


def test_compiled_is_checked_compiled(folder, monkeypatch):
    if why_eager("cpu"):
        pytest.skip("torch can't compile here")
    compiled = []

    def compile_nothing(function, **options):
        compiled.append(function)
        return function

    monkeypatch.setattr(torch, "compile", compile_nothing)
    words = ("validate", "argon.xyz", "--model", f"{MODEL}plain", "--checks", "forces", *SHORT, "--out", "x")
    call(*words, cwd=folder).expect(0)
    assert compiled == []
    call(*words, "--compile", cwd=folder).expect(0)
    assert len(compiled) == 1


def test_a_run_tells_of_a_precision_that_is_not_granted_and_a_sum_of_the_term(folder):
    atoms = Atoms("Ar2", [[1.0, 1, 1], [4.5, 1, 1]], cell=[20] * 3, pbc=True)
    ase.io.write(folder / "two.xyz", atoms)
    words = ("simulate", "two.xyz", "--steps", 1, "--model", f"lj + {MODEL}float32", "--overwrite", "--out", "x")
    told = call(*words, "--precision", "double", cwd=folder).expect(0).out
    assert "--precision double is not granted by learned.py:make (float32)" in told
    assert "is not granted" not in call(*words, "--precision", "mixed", cwd=folder).expect(0).out
