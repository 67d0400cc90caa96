"""``mdrun relax`` from the shell: what it writes, says, refuses, and how it ends."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111
from ase.constraints import FixAtoms

from tests.cli.conftest import CASEBOOK_ARGON
from tests.cli.launcher import Ended, call, run, srun, wait_all
from tests.relaxing import disturbed
from tests.systems import pfcc

SPRING = """
from mdrun.potentials.base import Forces

class Spring:
    name, cutoff = "spring", 5.0

    def __call__(self, domain, totals):
        r = domain.positions[:, : domain.n_owned].T
        return Forces(-r, 0.5 * float(r.square().sum()) if totals else None)

def make(numbers):
    return Spring()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("relax")
    silicon = disturbed("Si", "diamond", 5.431, 2)
    silicon.set_momenta(np.ones((64, 3)))
    ase.io.write(path / "silicon.extxyz", silicon)
    slab = fcc111("Cu", (3, 3, 3), vacuum=8.0)
    slab.rattle(0.05, seed=1)
    slab.set_constraint(FixAtoms([0, 1, 2]))
    slab.pbc = (True, True, False)
    ase.io.write(path / "slab.extxyz", slab)
    ase.io.write(path / "cluster.extxyz", Atoms("Ar3", positions=[[0, 0, 0], [4, 0, 0], [0, 4, 0]]))
    ase.io.write(path / "crystal.extxyz", pfcc(2, 2, 2))
    return path


def rows(path: Path) -> list[dict[str, float]]:
    with (path / "thermo.csv").open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def piped(folder) -> Ended:
    words = ("--cell", "full", "--pressure", 2, "--trajectory-every", 10, "--threads", 1)
    return run("relax", "silicon.extxyz", *words, cwd=folder)


def test_a_crystal_relaxes_from_the_shell(piped, folder):
    piped.expect(0)
    out = folder / "silicon.run"
    files = {path.name for path in out.iterdir()}
    assert files == {
        "thermo.csv", "trajectory.extxyz", "ranks.csv", "config.toml", "status.json", "relaxed.extxyz"
    }  # fmt: skip
    table = rows(out)
    n_steps = len(table) - 1
    assert [row["step"] for row in table] == [*range(n_steps + 1)]
    assert table[-1]["fmax_eV_A"] <= 0.01 < table[0]["fmax_eV_A"]
    assert table[-1]["cell_stress_GPa"] <= 0.01
    assert table[-1]["pressure_GPa"] == pytest.approx(2, abs=0.02)
    assert table[-1]["enthalpy_eV"] - table[-1]["potential_eV"] == pytest.approx(
        2 * 0.006241509125883258 * table[-1]["volume_A3"]
    )
    status = json.loads((out / "status.json").read_text())
    assert (status["state"], status["exit_code"], status["step"]) == ("finished", 0, n_steps)
    assert status["reason"].startswith("converged: largest force 0.00")
    frames = ase.io.read(out / "trajectory.extxyz", ":")
    assert [frame.info["step"] for frame in frames] == [*range(0, n_steps, 10), n_steps]
    relaxed = ase.io.read(out / "relaxed.extxyz")
    assert relaxed == frames[-1]
    assert relaxed.get_potential_energy() == pytest.approx(table[-1]["potential_eV"])
    assert np.linalg.norm(relaxed.get_forces(), axis=1).max() == pytest.approx(table[-1]["fmax_eV_A"], abs=1e-7)
    assert np.abs(relaxed.get_momenta()).max() == 0


def test_a_pipe_gets_plain_lines(piped):
    assert piped.err == ""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", piped.out)
    lines = piped.out.splitlines()
    first = [line.split(maxsplit=1)[0] for line in lines]
    expected = (
        "structure: cell: model: kernels: search: strain: decomposition: output: note: note: step rank 0 rank 0 "
        "imbalance end: converged: finished"
    )
    assert first == expected.split()
    assert "note: the file's velocities are left out: what is relaxed is at rest" in lines
    assert "search: L-BFGS, 10 steps in memory, forces to 0.01 eV/Å, stress to 0.01 GPa, at most 1000 steps" in lines
    assert "strain: full, to 2 GPa" in lines


def test_the_directory_alone_repeats_the_relaxation(piped, folder, tmp_path):
    piped.expect(0)
    kept = tomllib.loads((folder / "silicon.run" / "config.toml").read_text())
    assert (kept["cell"], kept["pressure"], kept["model"]) == ("full", 2.0, "sw")
    assert "temperature" not in kept
    call("relax", "--config", folder / "silicon.run" / "config.toml", "--out", "again", cwd=tmp_path).expect(0)
    assert (tmp_path / "again/thermo.csv").read_bytes() == (folder / "silicon.run/thermo.csv").read_bytes()
    refused = call("simulate", "--config", folder / "silicon.run" / "config.toml", cwd=tmp_path).expect(2)
    assert "'optimizer' is no option" in refused.err


def test_too_few_steps_end_with_75_and_the_way_on(folder, tmp_path):
    words = ("--cell", "full", "--steps", 4, "--trajectory-every", 0)
    ended = call("relax", folder / "silicon.extxyz", *words, "--out", "short", cwd=tmp_path).expect(75)
    assert ended.err.startswith("mdrun: not converged after 4 steps: largest force ")
    assert ended.err.count("\n") == 1
    assert "short/relaxed.extxyz" in ended.err
    assert "stopped after 4 steps in" in ended.out
    status = json.loads((tmp_path / "short/status.json").read_text())
    assert (status["state"], status["exit_code"], status["step"]) == ("stopped", 75, 4)
    assert [f.info["step"] for f in ase.io.read(tmp_path / "short/trajectory.extxyz", ":")] == [4]
    on = call("relax", "short/relaxed.extxyz", "--cell", "full", "--out", "on", cwd=tmp_path).expect(0)
    assert "converged: " in on.out
    assert rows(tmp_path / "on")[0]["potential_eV"] == pytest.approx(rows(tmp_path / "short")[-1]["potential_eV"])


def test_a_relaxed_structure_needs_no_step(folder, tmp_path):
    call("relax", folder / "cluster.extxyz", "--fmax", 1e-3, "--out", "first", cwd=tmp_path).expect(0)
    call("relax", "first/relaxed.extxyz", "--out", "second", cwd=tmp_path).expect(0)
    assert [row["step"] for row in rows(tmp_path / "second")] == [0]


@pytest.mark.parametrize("optimizer", ["lbfgs", "fire"])
def test_fixed_atoms_stay_and_their_marks_too(folder, tmp_path, optimizer):
    call("relax", folder / "slab.extxyz", "--optimizer", optimizer, "--out", "a", cwd=tmp_path).expect(0)
    before, after = ase.io.read(folder / "slab.extxyz"), ase.io.read(tmp_path / "a/relaxed.extxyz")
    moved = np.abs(after.positions - before.positions).max(axis=1)
    assert (moved[:3] == 0).all()
    assert (moved[3:] > 0).all()
    assert after.constraints[0].index.tolist() == [0, 1, 2]
    assert after.cell.array == pytest.approx(before.cell.array)
    assert (
        rows(tmp_path / "a")[-1]["fmax_eV_A"]
        <= 0.01
        < np.linalg.norm(after.get_forces(apply_constraint=False), axis=1).max()
    )


def test_ranks_change_no_number(piped, folder, tmp_path):
    piped.expect(0)
    words = ("relax", folder / "silicon.extxyz", "--cell", "full", "--pressure", 2, "--out", "two")
    first, second = wait_all(srun(2, *words, cwd=tmp_path))
    first.expect(0)
    assert (second.expect(0).out, second.err) == ("", "")
    one, two = rows(folder / "silicon.run"), rows(tmp_path / "two")
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert b == pytest.approx(a, rel=1e-9, abs=1e-8)
    ends = [ase.io.read(path / "relaxed.extxyz") for path in (folder / "silicon.run", tmp_path / "two")]
    assert ends[1].positions == pytest.approx(ends[0].positions, abs=2e-8)


def test_all_ranks_end_with_75(folder, tmp_path):
    ends = wait_all(srun(2, "relax", folder / "silicon.extxyz", "--steps", 2, "--out", "two", cwd=tmp_path))
    assert [ended.code for ended in ends] == [75, 75]
    assert [ended.err.count("not converged") for ended in ends] == [1, 0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["silicon.extxyz", "--optimizer", "cg"], ["--optimizer cg", "lbfgs, fire"]),
        (["silicon.extxyz", "--fmax", 0], ["--fmax 0", "eV/Å"]),
        (["silicon.extxyz", "--stress-max", -1], ["--stress-max -1", "GPa"]),
        (["silicon.extxyz", "--steps", -1], ["--steps -1"]),
        (["silicon.extxyz", "--cell", "ortho"], ["--cell ortho", "isotropic"]),
        (["silicon.extxyz", "--cell-mask", "xx"], ["--cell-mask xx", "--cell full"]),
        (["silicon.extxyz", "--cell", "full", "--cell-mask", "xx,zy"], ["--cell-mask xx,zy", "xx,yy,zz,yz,xz,xy"]),
        (["silicon.extxyz", "--cell", "isotropic", "--cell-mask", "xx"], ["--cell-mask xx", "--cell full"]),
        (["silicon.extxyz", "--pressure", 1], ["--pressure 1", "--cell full"]),
        (["silicon.extxyz", "--cell", "shape", "--pressure", 1], ["--pressure 1", "--cell full"]),
        (["cluster.extxyz", "--cell", "full"], ["--cell full leaves no strain", "no axis"]),
        (["slab.extxyz", "--cell", "full"], ["3 of slab.extxyz are fixed (0, 1, 2)", "--cell none"]),
        ([], ["mdrun relax STRUCTURE"]),
    ],
)
def test_what_can_not_be_relaxed_is_told_before_anything_is_written(folder, words, told):
    before = set(folder.rglob("*"))
    ended = call("relax", *words, "--out", "refused", cwd=folder).expect(2)
    assert ended.err.startswith("mdrun: ")
    assert ended.err.count("\n") == 1
    for word in told:
        assert word in ended.err
    assert set(folder.rglob("*")) == before


def test_a_pressure_needs_a_volume(folder, tmp_path):
    loose = ase.io.read(folder / "slab.extxyz")
    loose.set_constraint()
    ase.io.write(tmp_path / "loose.extxyz", loose)
    ended = call("relax", "loose.extxyz", "--cell", "full", "--pressure", 1, cwd=tmp_path).expect(2)
    assert "--pressure 1: no volume bounds the matter of loose.extxyz, whose cell is open along c." in ended.err


def test_a_slab_keeps_its_vacuum_and_writes_the_cell_that_it_found(folder, tmp_path):
    loose = ase.io.read(folder / "slab.extxyz")
    loose.set_constraint()
    loose.set_cell(loose.cell.array * [[1.03], [1.03], [1]], scale_atoms=True)
    ase.io.write(tmp_path / "loose.extxyz", loose)
    call("relax", "loose.extxyz", "--cell", "full", "--fmax", 1e-3, "--stress-max", 1e-3, cwd=tmp_path).expect(0)
    found = ase.io.read(tmp_path / "loose.run/relaxed.extxyz")
    assert found.cell[2] == pytest.approx(loose.cell[2], abs=1e-12)
    assert (found.cell.lengths()[:2] < loose.cell.lengths()[:2] - 0.1).all()
    again = call("relax", "loose.run/relaxed.extxyz", "--cell", "full", "--fmax", 2e-3, "--stress-max", 2e-3,
                 "--out", "again", cwd=tmp_path).expect(0)  # fmt: skip
    assert "finished 0 steps" in again.out


@pytest.mark.parametrize("optimizer", ["lbfgs", "fire"])
def test_atoms_on_top_of_each_other_part(tmp_path, optimizer):
    """Steps are limited, so that this is no explosion; 10^32 eV/Å is felt at first."""
    ase.io.write(tmp_path / "near.extxyz", Atoms("Ar2", positions=[[0, 0, 0], [1e-2, 0, 0]]))
    words = ("--model", CASEBOOK_ARGON, "--optimizer", optimizer, "--fmax", 1e-5)
    call("relax", "near.extxyz", *words, cwd=tmp_path).expect(0)
    found = ase.io.read(tmp_path / "near.run/relaxed.extxyz")
    assert found.get_distance(0, 1) == pytest.approx(3.4 * 2 ** (1 / 6), abs=1e-3)


def test_a_model_without_virial_relaxes_positions_alone(folder, tmp_path):
    (tmp_path / "spring.py").write_text(SPRING)
    words = ("relax", folder / "cluster.extxyz", "--model", "spring.py:make", "--fmax", 1e-4)
    call(*words, "--out", "a", cwd=tmp_path).expect(0)
    assert rows(tmp_path / "a")[-1]["potential_eV"] < 1e-6
    words = ("relax", folder / "crystal.extxyz", "--model", "spring.py:make", "--cell", "full")
    ended = call(*words, "--out", "b", cwd=tmp_path).expect(2)
    assert "--cell needs the virial, which this model does not give" in ended.err


def test_help_names_every_option_and_its_unit():
    text = run("relax", "--help", env={"COLUMNS": "200"}).expect(0).out
    options = (
        "--optimizer --fmax --steps --cell --cell-mask --pressure --stress-max --model --replicate --format --index "
        "--species --device --backend --precision --threads --skin --out --overwrite --log-every --trajectory-every "
        "--comm-timeout --config --debug"
    )
    assert [option for option in options.split() if option not in text] == []
    for unit in ("eV/Å.", "GPa"):
        assert unit in text
    assert "--temperature" not in text


def test_atoms_that_a_selection_freezes_keep_their_bits(folder, tmp_path):
    words = ("--freeze", "Cu and z<9", "--fmax", 0.05, "--out", "frozen")
    ended = call("relax", folder / "slab.extxyz", *words, cwd=tmp_path).expect(0)
    before, after = ase.io.read(folder / "slab.extxyz"), ase.io.read(tmp_path / "frozen/relaxed.extxyz")
    held = before.positions[:, 2] < 9
    held[:3] = True
    assert 3 < held.sum() < len(before)
    assert (after.positions == before.positions)[held].all()
    assert (after.positions != before.positions)[~held].any()
    assert "converged: " in ended.out
    refused = call("relax", folder / "crystal.extxyz", "--freeze", "0", "--cell", "full", cwd=tmp_path).expect(2)
    assert "--cell none" in refused.err
