"""What a run leaves behind: the casebook's argon crystal from rest, and the same run again from its directory alone."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase.build import bulk

from tests.cli.conftest import CASEBOOK_ARGON
from tests.cli.launcher import call
from tests.systems import pfcc
from tests.test_thermo import HEADER

OPTIONS = (
    "--model", f"{CASEBOOK_ARGON},shift=true", "--steps", 100, "--log-every", 10, "--trajectory-every", 50,
    "--checkpoint-every", 40, "--out", "first",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("directory")
    ase.io.write(path / "argon.xyz", pfcc(4, 4, 4))
    call("simulate", "argon.xyz", *OPTIONS, cwd=path).expect(0)
    return path


@pytest.fixture(scope="module")
def rows(folder) -> list[dict[str, float]]:
    with (folder / "first" / "thermo.csv").open() as file:
        assert file.readline() == HEADER + "\n"
        file.seek(0)
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def frames(folder) -> list:
    return ase.io.read(folder / "first" / "trajectory.extxyz", ":")


def test_thermo_has_a_row_at_the_start_and_at_each_interval(rows):
    assert [row["step"] for row in rows] == [*range(0, 101, 10)]
    assert [row["time_ps"] for row in rows] == pytest.approx([step / 1000 for step in range(0, 101, 10)])


def test_thermo_has_the_numbers_of_the_casebook(rows):
    first, at_10, at_100 = rows[0], rows[1], rows[10]
    assert first["potential_eV"] == pytest.approx(-18.309479224755, abs=1e-8)
    assert first["pressure_GPa"] == pytest.approx(0.158325114, abs=1e-8)
    assert first["volume_A3"] == pytest.approx(21.04**3)
    assert first["kinetic_eV"] == first["temperature_K"] == 0
    assert at_10["kinetic_eV"] == pytest.approx(0.021140516, abs=1e-8)
    assert at_100["kinetic_eV"] == pytest.approx(1.150966098, abs=1e-8)
    assert at_100["total_eV"] == pytest.approx(-18.30952, abs=6e-6)
    for row in rows:
        assert row["total_eV"] == pytest.approx(row["potential_eV"] + row["kinetic_eV"], abs=1e-12)
        assert row["temperature_K"] == pytest.approx(2 * row["kinetic_eV"] / (765 * 8.617333262e-5), rel=1e-6)


def test_frames_are_read_by_ase_with_everything(frames):
    assert [frame.info["step"] for frame in frames] == [0, 50, 100]
    start, end = frames[0], frames[2]
    assert start.positions == pytest.approx(pfcc(4, 4, 4).positions, abs=1e-8)
    assert start.get_potential_energy() == pytest.approx(-18.309479224755, abs=1e-8)
    assert start.get_forces()[0] == pytest.approx([1.99257689e-3, -2.33093324e-3, -1.40555588e-5], abs=1e-8)
    assert start.get_stress()[:3] == pytest.approx([-8.9653e-4, -1.04367e-3, -1.02436e-3], abs=1e-8)
    assert not start.get_velocities().any()
    assert end.positions[0] == pytest.approx([0.01652522, 0.02526623, 0.04411494], abs=2e-8)
    assert end.get_kinetic_energy() == pytest.approx(1.150966098, abs=1e-6)
    for frame in frames:
        assert frame.pbc.all()
        assert frame.cell.lengths() == pytest.approx([21.04] * 3)
        assert frame.get_chemical_formula() == "Ar256"


def test_status_says_how_it_went(folder):
    status = json.loads((folder / "first" / "status.json").read_text())
    assert status["state"] == "finished"
    assert (status["step"], status["exit_code"], status["n_atoms"], status["ranks"]) == (100, 0, 256, 1)
    assert status["reason"]
    assert status["threads"] >= 1
    assert status["loop_seconds"] > 0
    assert status["atom_steps_per_second"] == pytest.approx(256 * 100 / status["loop_seconds"])
    assert status["peak_memory_bytes"] > 1e7
    assert {"mdrun", "python", "torch", "numpy", "numba", "ase"} <= set(status["versions"])


def test_ranks_has_a_row_for_each_rank_at_each_interval(folder):
    with (folder / "first" / "ranks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["step"], row["rank"]) for row in rows] == [(str(step), "0") for step in range(0, 101, 10)]
    last = {name: float(value) for name, value in rows[-1].items()}
    assert last["owned"] == last["owned_min"] == last["owned_mean"] == last["owned_max"] == 256
    assert last["ghosts"] > 256
    assert [last[f"box_{axis}"] for axis in "abc"] == pytest.approx([21.04] * 3, abs=3)
    assert last["bytes_per_step"] == last["migrations"] == last["dangerous_builds"] == 0
    for section in ("force", "neighbor", "communication", "integration", "output"):
        assert last[f"{section}_s"] >= 0


def test_checkpoints_hold_no_pickle_and_two_generations(folder):
    steps = []
    for name in ("checkpoint.previous.npz", "checkpoint.npz"):
        with np.load(folder / "first" / name, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file}
        steps.append(json.loads(str(arrays["meta"]))["step"])
        assert arrays["positions"].shape == (256, 3)
    assert steps == [80, 100]


def test_the_frames_of_a_run_start_another(folder):
    again = call("simulate", "first/trajectory.extxyz", *OPTIONS[:2], "--steps", 0, "--out", "onward", cwd=folder)
    assert "velocities: from the file" in again.expect(0).out
    with (folder / "onward" / "thermo.csv").open() as file:
        row = next(csv.DictReader(file))
    assert float(row["kinetic_eV"]) == pytest.approx(1.150966098, abs=1e-6)


def test_the_directory_alone_repeats_the_run(folder, tmp_path):
    """From elsewhere too, although the names given were relative; the first run stays as it is."""
    config = folder / "first" / "config.toml"
    before = config.read_bytes()
    refused = call("simulate", "--config", config, cwd=tmp_path).expect(2)
    assert f"{folder / 'first'} exists" in refused.err
    call("simulate", "--config", config, "--out", "second", cwd=tmp_path).expect(0)
    for name in ("thermo.csv", "trajectory.extxyz"):
        assert (tmp_path / "second" / name).read_bytes() == (folder / "first" / name).read_bytes()
    assert config.read_bytes() == before
    kept = tomllib.loads((tmp_path / "second" / "config.toml").read_text())
    assert kept | {"out": str(folder / "first")} == tomllib.loads(before.decode())


def test_a_run_is_replaced_only_on_request_and_wholly(folder, tmp_path):
    words = ("simulate", folder / "argon.xyz", "--steps", 3, "--out", "a.run")
    call(*words, "--log-every", 1, "--checkpoint-every", 1, cwd=tmp_path).expect(0)
    (tmp_path / "a.run" / "notes.txt").write_text("mine")
    seen = {path.name: path.read_bytes() for path in (tmp_path / "a.run").iterdir()}
    assert "--overwrite" in call(*words, cwd=tmp_path).expect(2).err
    assert {path.name: path.read_bytes() for path in (tmp_path / "a.run").iterdir()} == seen
    call(*words, "--overwrite", "--checkpoint-every", 0, cwd=tmp_path).expect(0)
    names = {path.name for path in (tmp_path / "a.run").iterdir()}
    own = {"thermo.csv", "trajectory.extxyz", "ranks.csv", "status.json", "config.toml", "structure.npz"}
    assert names == own | {"notes.txt"}
    assert (tmp_path / "a.run" / "thermo.csv").read_text().count("\n") == 2


def test_a_run_never_writes_over_what_it_reads(folder, tmp_path):
    call("simulate", folder / "argon.xyz", "--steps", 0, "--out", "a.run", cwd=tmp_path).expect(0)
    before = (tmp_path / "a.run" / "trajectory.extxyz").read_bytes()
    words = ("simulate", "a.run/trajectory.extxyz", "--steps", 1, "--out", tmp_path / "a.run", "--overwrite")
    assert "is an input of this run" in call(*words, cwd=tmp_path).expect(2).err
    assert (tmp_path / "a.run" / "trajectory.extxyz").read_bytes() == before
    ended = call("simulate", folder / "argon.xyz", "--out", folder / "argon.xyz", "--overwrite", cwd=tmp_path).expect(2)
    assert "is a file" in ended.err


def test_missing_parents_are_made_and_impossible_ones_refused(folder, tmp_path):
    call("simulate", folder / "argon.xyz", "--steps", 0, "--out", "x/y/z.run", cwd=tmp_path).expect(0)
    assert (tmp_path / "x" / "y" / "z.run" / "status.json").exists()
    ended = call("simulate", folder / "argon.xyz", "--out", folder / "argon.xyz" / "z", cwd=tmp_path).expect(2)
    assert "can't be made" in ended.err


def test_a_primitive_cell_is_left_as_it_lies_and_a_barostat_keeps_its_shape(tmp_path):
    primitive = bulk("Si", a=5.46)
    ase.io.write(tmp_path / "silicon.xyz", primitive)
    words = ("simulate", "silicon.xyz", "--init-temperature", 300, "--steps", 1, "--trajectory-every", 1)
    for ensemble in (("--ensemble", "nve"), ("--ensemble", "npt", "--temperature", 300, "--pressure", 1)):
        call(*words, *ensemble, "--out", ensemble[1], cwd=tmp_path).expect(0)
        before, after = ase.io.read(tmp_path / ensemble[1] / "trajectory.extxyz", ":")
        assert np.array_equal(before.cell.array, primitive.cell.array)
        scale = after.cell.array[primitive.cell.array > 0] / 2.73
        assert scale == pytest.approx(np.full(6, scale[0]), rel=1e-12)
        assert after.cell.array[primitive.cell.array == 0] == pytest.approx(0, abs=1e-12)
        assert (scale[0] == 1) == (ensemble[1] == "nve")
    assert before.cell.volume == pytest.approx(40.692834, abs=1e-6)
