"""Runs that become unphysical: exit code 3, one message, the last good frame and what lies around the culprits."""

from __future__ import annotations

import json
from pathlib import Path

import ase.io
import numpy as np
import pytest

from mdrun.comm import SHARED_MEMORY
from tests.cli.launcher import Ended, call, srun, wait_all
from tests.cli.test_rank_errors import PLUGIN, told
from tests.systems import pfcc

REACH = 5.0  # of the plug-in's cutoff and the skin


@pytest.fixture(scope="module")
def argon():
    return pfcc(4, 2, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, argon) -> Path:
    path = tmp_path_factory.mktemp("blowups")
    argon.set_masses(np.linspace(30, 50, len(argon)))
    ase.io.write(path / "argon.xyz", argon)
    return path


def on_one_rank(folder: Path, name: str, *options: object) -> Ended:
    return call("simulate", "argon.xyz", *options, "--out", name, cwd=folder).expect(3)


def check_message(folder: Path, name: str, message: str) -> None:
    status = json.loads((folder / name / "status.json").read_text())
    assert (status["state"], status["exit_code"]) == ("failed", 3)
    assert message in (status["reason"], f"mdrun: {status['reason']}\n")
    assert f"{name}/blowup.extxyz" in message
    assert f"{name}/last_good.extxyz" in message
    assert not [path.name for path in (folder / name).iterdir() if path.name.startswith(".")]


def test_a_force_that_is_not_finite_is_shown_with_all_that_is_near(folder, argon):
    ended = on_one_rank(folder, "nan", "--model", f"{PLUGIN},fails=nan,rank=0,call=7", "--steps", 20)
    check_message(folder, "nan", ended.err)
    around = ase.io.read(folder / "nan/blowup.extxyz")
    assert (around.info["step"], around.info["forces_of_step"], around.info["rank"]) == (7, 7, 0)
    offends = around.arrays["offends"]
    assert around.arrays["id"][offends].tolist() == [0]
    forces = around.get_forces()
    assert np.isnan(forces[offends]).all()
    assert (forces[around.arrays["owned"] & ~offends] == 0).all()
    seen = around.get_distances(int(np.flatnonzero(offends)[0]), range(len(around)))
    assert around.arrays["distance"][~offends] == pytest.approx(seen[~offends], abs=1e-7)
    there = np.sort(argon.get_all_distances(mic=True)[0])
    assert np.sort(seen) == pytest.approx(there[there < REACH], abs=1e-6)  # atoms at rest, that feel nothing
    good = ase.io.read(folder / "nan/last_good.extxyz")
    assert good.positions == pytest.approx(argon.positions, abs=1e-7)
    assert good.get_masses() == pytest.approx(argon.get_masses(), abs=1e-7)
    assert good.info["forces_are_good"]


def test_atoms_that_leap_are_shown_where_they_came_from_and_a_frame_before_it(folder):
    ended = on_one_rank(folder, "leap", "--timestep", 200, "--init-temperature", 300, "--seed", 1, "--steps", 20)
    assert "lost" in ended.err
    check_message(folder, "leap", ended.err)
    step = json.loads((folder / "leap/status.json").read_text())["step"]
    around, good = (ase.io.read(folder / "leap" / name) for name in ("blowup.extxyz", "last_good.extxyz"))
    assert (around.info["step"], around.info["forces_of_step"]) == (step + 1, step)
    assert not around.arrays["offends"].all()
    assert np.isfinite(around.get_forces()[around.arrays["owned"]]).all()  # those that made them leap
    assert good.info["step"] <= step
    assert np.isfinite(good.positions).all()


def test_a_run_that_is_too_hot_ends_with_its_present_state(folder):
    limit = ("--max-temperature", 25, "--log-every", 5)
    ended = on_one_rank(folder, "hot", "--init-temperature", 20, "--ensemble", "nvt", "--temperature", 2000,
                        "--friction", 50, "--seed", 1, "--steps", 100, *limit)  # fmt: skip
    assert "--max-temperature 25" in ended.err
    check_message(folder, "hot", ended.err)
    good, around = (ase.io.read(folder / "hot" / name) for name in ("last_good.extxyz", "blowup.extxyz"))
    last = (folder / "hot/thermo.csv").read_text().splitlines()[-1].split(",")
    assert good.info["step"] == int(last[0]) == json.loads((folder / "hot/status.json").read_text())["step"] > 0
    assert good.get_kinetic_energy() == pytest.approx(float(last[4]), rel=1e-6)
    kinetic = (good.get_momenta() ** 2).sum(axis=1) / good.get_masses()
    assert around.arrays["id"][around.arrays["offends"]].tolist() == [int(kinetic.argmax())]


def test_a_run_that_stays_cool_is_the_same_with_a_limit_and_without(folder):
    words = ("simulate", "argon.xyz", "--init-temperature", 20, "--seed", 1, "--steps", 20, "--log-every", 5)
    call(*words, "--out", "cool", cwd=folder).expect(0)
    call(*words, "--max-temperature", 25, "--out", "limited", cwd=folder).expect(0)
    one, other = ((folder / name / "thermo.csv").read_bytes() for name in ("cool", "limited"))
    assert one == other
    assert not (folder / "limited/blowup.extxyz").exists()


@pytest.mark.parametrize(
    ("options", "word"),
    [(["--max-temperature", -3], "--max-temperature -3"), (["--max-temperature", 9, "--log-every", 0], "--log-every")],
)
def test_a_limit_that_means_nothing_is_refused(folder, options, word):
    ended = call("simulate", "argon.xyz", *options, "--out", "refused", cwd=folder).expect(2)
    assert word in ended.err


def test_a_relaxation_leaves_the_same(folder):
    options = ("--model", f"lj + {PLUGIN},fails=nan,rank=0,call=3", "--out", "relax")
    ended = call("relax", "argon.xyz", *options, cwd=folder).expect(3)
    check_message(folder, "relax", ended.err)
    assert ase.io.read(folder / "relax/blowup.extxyz").info["step"] == 3


@pytest.mark.parametrize("shared_memory", ["1", pytest.param("0", marks=pytest.mark.slow)])
@pytest.mark.parametrize("trouble", ["nan", pytest.param("leap", marks=pytest.mark.slow), "hot"])
def test_on_two_ranks_one_tells_and_the_frame_is_of_all_atoms(folder, argon, trouble, shared_memory):
    options = {
        "nan": ("--model", f"{PLUGIN},fails=nan,rank=1,call=7", "--init-temperature", 20),
        "leap": ("--timestep", 200, "--init-temperature", 300),
        "hot": ("--init-temperature", 20, "--ensemble", "nvt", "--temperature", 2000, "--friction", 50,
                "--log-every", 5, "--max-temperature", 25),
    }[trouble]  # fmt: skip
    name = f"{trouble}-{shared_memory}"
    ranks = srun(2, "simulate", "argon.xyz", *options, "--seed", 1, "--steps", 100, "--out", name, cwd=folder,
                 env={SHARED_MEMORY: shared_memory})  # fmt: skip
    ends = wait_all(ranks)
    assert [ended.code for ended in ends] == [3, 3]
    message = told(ends)
    check_message(folder, name, message)
    good, around = (ase.io.read(folder / name / file) for file in ("last_good.extxyz", "blowup.extxyz"))
    assert good.get_masses() == pytest.approx(argon.get_masses(), abs=1e-7)  # by id, whoever owned them
    if trouble == "nan":
        assert around.info["rank"] == 1
    if trouble == "hot":
        one = ase.io.read(folder / "hot/last_good.extxyz")  # the same run on one rank
        assert good.positions == pytest.approx(one.positions, abs=1e-7)
        assert good.get_momenta() == pytest.approx(one.get_momenta(), abs=1e-7)
