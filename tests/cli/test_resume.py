"""Runs that stop and go on: as if they had never stopped, on as many ranks as before or on others."""

from __future__ import annotations

import json
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase.build import bulk, molecule

from tests.cli.launcher import call, torchrun
from tests.systems import pfcc

ENSEMBLES = {
    "nve": (),
    "langevin": ("--ensemble", "nvt", "--temperature", 40),
    "andersen": ("--ensemble", "nvt", "--temperature", 40, "--thermostat", "andersen", "--friction", 50),
    "nose-hoover ramp": ("--ensemble", "nvt", "--temperature", "40:80", "--thermostat", "nose-hoover"),
    "bussi": ("--ensemble", "nvt", "--temperature", 40, "--thermostat", "bussi"),
    "berendsen": ("--ensemble", "nvt", "--temperature", 40, "--thermostat", "berendsen", "--zero-momentum-every", 3),
    "npt mtk": ("--ensemble", "npt", "--temperature", 40, "--pressure", 0.1, "--box", "triclinic"),
    "nph": ("--ensemble", "nph", "--pressure", 0.1, "--box", "xyz"),
    "npt stochastic": (
        "--ensemble", "npt", "--temperature", 40, "--pressure", 0.1, "--barostat", "stochastic", "--thermostat",
        "langevin", "--compressibility", 1,
    ),
}  # fmt: skip
COMMON = (
    "--init-temperature", 60, "--seed", 5, "--timestep", 4, "--log-every", 3, "--trajectory-every", 5, "--skin", 0.15,
)  # fmt: skip
LONG = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("resume")
    ase.io.write(path / "argon.xyz", pfcc(3, 3, 3))
    return path


def arrays(run: Path) -> dict[str, np.ndarray]:
    with np.load(run / "checkpoint.npz", allow_pickle=False) as file:
        found = {name: file[name] for name in file.files if name not in ("meta", "checksum", "rank_figures")}
        meta = json.loads(str(file["meta"]))
    return found | {"step": np.array(meta["step"]), "variables": np.array(json.dumps(meta["variables"]))}


def same(one: Path, other: Path) -> None:
    for name in ("thermo.csv", "trajectory.extxyz"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    first, second = arrays(one), arrays(other)
    assert first.keys() == second.keys()
    for name, values in first.items():
        assert np.array_equal(values, second[name]), name


@pytest.mark.parametrize("name", ENSEMBLES)
def test_a_run_that_stopped_twice_ends_as_one_that_did_not_to_the_last_bit(folder, tmp_path, name):
    words = (folder / "argon.xyz", *ENSEMBLES[name], *COMMON)
    call("simulate", *words, "--steps", LONG, "--out", "whole", cwd=tmp_path).expect(0)
    ramp = ("--ramp-steps", LONG) if "ramp" in name else ()
    call("simulate", *words, *ramp, "--steps", 17, "--out", "parts", cwd=tmp_path).expect(0)
    for steps in (34, LONG):
        call("resume", "parts", "--steps", steps, cwd=tmp_path).expect(0)
    same(tmp_path / "whole", tmp_path / "parts")
