"""Every ensemble that can be asked for, stopped and gone on with: the same to the last bit on as many ranks as before,
and nearly the same on others."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase.constraints import FixBondLengths

from mdrun.run.ensemble_options import BAROSTATS, RESCALING, SCALING, THERMOSTATS
from tests.cli.launcher import call
from tests.cli.test_resume import COMMON, arrays, launch, same, steps_of
from tests.systems import pfcc

LONG = 60
RAMP = ("--temperature", "40:80", "--ramp-steps", LONG)
BOXES = {
    "iso": (), "xyz": ("--box", "xyz"), "z": ("--box", "z"), "triclinic": ("--box", "triclinic"),
    "coupled": ("--couple", "xy"),
}  # fmt: skip
EXTRAS = ((), ("--zero-momentum-every", 7), ("--freeze", "3-5"))


def at_constant_volume() -> dict[str, tuple]:
    held = {f"nvt {kind}": ("--ensemble", "nvt", "--thermostat", kind, *RAMP) for kind in THERMOSTATS}
    return {"nve": (), **held}


def under_pressure(box: str) -> dict[str, tuple]:
    pressed = ("--pressure", 0.1, *BOXES[box])
    found = {f"nph mtk {box}": ("--ensemble", "nph", *pressed)}
    for barostat in BAROSTATS:
        pace = ("--compressibility", 1) if barostat in RESCALING else ()
        for kind in THERMOSTATS if barostat in RESCALING else SCALING:
            words = ("--ensemble", "npt", "--barostat", barostat, "--thermostat", kind, *RAMP, *pressed, *pace)
            found[f"npt {barostat} {kind} {box}"] = words
    return found


def with_extras(ensembles: dict[str, tuple]) -> dict[str, tuple]:
    return {name: (*words, *extra) for (name, words), extra in zip(ensembles.items(), itertools.cycle(EXTRAS))}


VOLUME = with_extras(at_constant_volume())
PRESSURE = [with_extras(under_pressure(box)) for box in BOXES]
# Every thermostat and barostat once with one of the boxes; the whole product as slow.
ONCE = VOLUME | dict([*each.items()][k] for k, each in zip(range(len(PRESSURE[0])), itertools.cycle(PRESSURE)))
EVERY = VOLUME | {name: words for each in PRESSURE for name, words in each.items()}


def some(few: Iterable[str], every: Iterable[str]):
    """The argument ``name`` of a test: a few, and all others as slow."""
    slow = [pytest.param(name, marks=pytest.mark.slow) for name in every if name not in few]
    return pytest.mark.parametrize("name", [*few, *slow])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("ensembles")
    ase.io.write(path / "argon.xyz", pfcc(3, 3, 3))
    atoms = pfcc(3, 3, 3)
    atoms.set_constraint(FixBondLengths([[i, i + 1] for i in range(10, 60, 2)]))
    ase.io.write(path / "bonds.traj", atoms)
    return path


def stop_twice_and_compare(words: tuple, where: Path) -> None:
    call("simulate", *words, "--steps", LONG, "--out", "whole", cwd=where).expect(0)
    call("simulate", *words, "--steps", 17, "--out", "parts", cwd=where).expect(0)
    for steps in (34, LONG):
        call("resume", "parts", "--steps", steps, cwd=where).expect(0)
    same(where / "whole", where / "parts")


@some(ONCE, EVERY)
def test_a_run_that_stopped_twice_ends_as_one_that_did_not_to_the_last_bit(folder, tmp_path, name):
    stop_twice_and_compare((folder / "argon.xyz", *EVERY[name], *COMMON), tmp_path)


@pytest.mark.parametrize("name", VOLUME)
def test_bonds_of_fixed_length_and_fixed_atoms_go_on_to_the_last_bit(folder, tmp_path, name):
    words = at_constant_volume()[name]
    stop_twice_and_compare((folder / "bonds.traj", *words, *COMMON, "--freeze", "3-5"), tmp_path)


@some(["npt mtk bussi triclinic"], ONCE)
def test_a_run_goes_on_from_one_rank_on_three_and_then_on_two(folder, tmp_path, name):
    words = (folder / "argon.xyz", *EVERY[name], *COMMON)
    call("simulate", *words, "--steps", 40, "--out", "whole", cwd=tmp_path).expect(0)
    call("simulate", *words, "--steps", 13, "--out", "parts", cwd=tmp_path).expect(0)
    launch(3, "resume", "parts", "--steps", 27, cwd=tmp_path).expect(0)
    launch(2, "resume", "parts", "--steps", 40, cwd=tmp_path).expect(0)
    assert np.abs(arrays(tmp_path / "parts")["positions"] - arrays(tmp_path / "whole")["positions"]).max() < 1e-8
    assert steps_of(tmp_path / "parts") == steps_of(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("name", ONCE)
def test_two_ranks_go_on_to_the_last_bit(folder, tmp_path, name):
    words = (folder / "argon.xyz", *EVERY[name], *COMMON)
    launch(2, "simulate", *words, "--steps", 40, "--out", "whole", cwd=tmp_path).expect(0)
    launch(2, "simulate", *words, "--steps", 23, "--out", "parts", cwd=tmp_path).expect(0)
    launch(2, "resume", "parts", "--steps", 40, cwd=tmp_path).expect(0)
    same(tmp_path / "whole", tmp_path / "parts")
