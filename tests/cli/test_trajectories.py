"""Trajectories in every format at once, by the command line: on any number of ranks, and on a disk that is full."""

from __future__ import annotations

import json
from pathlib import Path

import ase.io
import numpy as np
import pytest

from mdrun.run.trajectories.frames import Frame
from mdrun.run.trajectories.reading import read_frames
from tests.cli.conftest import CASEBOOK_ARGON
from tests.cli.launcher import MDRUN, Program, call, srun, wait_all
from tests.systems import pfcc

NAMES = ("t.extxyz", "t.traj", "t.h5md", "t.dump")
OPTIONS = ("--model", CASEBOOK_ARGON, "--init-temperature", 60, "--seed", 4, "--steps", 20, "--trajectory-every", 10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A tilted crystal two domains long, run on 1 and on 3 ranks with every format at once."""
    path = tmp_path_factory.mktemp("trajectories")
    atoms = pfcc(8, 2, 2)
    atoms.set_cell(atoms.cell.array @ [[1, 0, 0], [0.05, 1, 0], [0.02, 0.03, 1]], scale_atoms=True)
    ase.io.write(path / "argon.xyz", atoms)
    names = [word for name in NAMES for word in ("--trajectory", name)]
    options = (
        "simulate",
        "argon.xyz",
        *OPTIONS,
        *names,
        "--trajectory-atoms",
        "3-60",
        "--wrap",
    )
    call(*options, "--out", "one", cwd=path).expect(0)
    for end in wait_all(srun(3, *options, "--out", "three", cwd=path)):
        end.expect(0)
    return path


def frames(path: Path) -> list[Frame]:
    return list(read_frames(path))


@pytest.mark.parametrize("name", NAMES)
def test_no_format_depends_on_the_number_of_ranks(folder, name):
    one, three = frames(folder / "one" / name), frames(folder / "three" / name)
    assert [f.step for f in one] == [f.step for f in three] == [0, 10, 20]
    for a, b in zip(one, three, strict=True):
        assert len(a) == 58
        assert set(a.columns) == set(b.columns)
        for column, values in a.columns.items():
            np.testing.assert_allclose(b.columns[column], values, rtol=0, atol=3e-8)


@pytest.mark.parametrize("name", NAMES[1:])
def test_all_formats_of_a_run_say_the_same(folder, name):
    for a, b in zip(frames(folder / "three" / NAMES[0]), frames(folder / "three" / name), strict=True):
        for column in ("positions", "momenta", "forces"):
            np.testing.assert_allclose(b.columns[column], a.columns[column], rtol=0, atol=1e-6)
        np.testing.assert_allclose(b.cell, a.cell, rtol=0, atol=1e-12)


def test_a_trajectory_is_converted_and_a_run_starts_from_it(folder):
    told = call("convert", "three/t.extxyz", "new.h5md", "--frames", "1:", cwd=folder).expect(0)
    assert told.out == "2 frames of 58 atoms: new.h5md\n"
    assert told.err == ""
    assert [f.step for f in frames(folder / "new.h5md")] == [10, 20]
    call("simulate", "new.h5md", "--model", CASEBOOK_ARGON, "--steps", 0, "--out", "on", cwd=folder).expect(0)
    (start,) = frames(folder / "on" / "trajectory.extxyz")
    last = frames(folder / "new.h5md")[-1]
    for column in ("positions", "momenta"):
        np.testing.assert_allclose(start.columns[column], last.columns[column], rtol=0, atol=2e-8)


@pytest.mark.parametrize("names", [("a.gro", "b.xyz"), ("three/t.traj", "b.dcd")])
def test_an_extension_that_is_not_known_is_refused_with_those_that_are(folder, names):
    told = call("convert", *names, cwd=folder).expect(2)
    assert told.err.count("mdrun:") == 1
    assert ".extxyz, .xyz, .traj, .h5md, .dump, .lammpstrj" in told.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.dump", "t.h5md"])
def test_a_trajectory_that_cannot_be_written_ends_the_run_with_one_message(folder, name):
    """No file may pass 200 kB, and the signal of it is passed over: writing fails as on a full disk."""
    command = f'trap "" XFSZ; ulimit -f 200; exec "{MDRUN}" "$@"'
    options = (
        "simulate",
        "argon.xyz",
        *OPTIONS[:-1],
        1,
        "--checkpoint-every",
        0,
        "--trajectory",
        name,
        "--out",
        f"full-{name}",
    )
    told = Program("bash", "-c", command, "bash", *options, cwd=folder).wait().expect(1)
    assert told.err.count("mdrun:") == 1
    assert f"{name} can't be written" in told.err
    assert json.loads((folder / f"full-{name}" / "status.json").read_text())["state"] == "failed"
