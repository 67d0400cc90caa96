"""Each format read back by others, cut back and gone on from, and left by a process that was killed."""

from __future__ import annotations

import errno
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from ase.geometry import cell_to_cellpar
from ase.io import read

from mdrun import units
from mdrun.errors import InputError, MdrunError
from mdrun.run.trajectories.files import open_writer
from mdrun.run.trajectories.frames import Frame, wrapped
from mdrun.run.trajectories.names import Precision, check_names, parse_precision
from mdrun.run.trajectories.reading import read_frames
from mdrun.run.trajectories.writing import WritingThread
from mdrun.structures.h5md import KJ_MOL

KINDS = ("t.extxyz", "t.traj", "t.h5md", "t.dump")
TILTED = np.array([[8.0, 0.0, 0.0], [-2.0, 9.0, 0.0], [1.0, 3.0, 10.0]])
TURNED = TILTED @ np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]


def frame(k: int, n: int = 40, cell: np.ndarray = TILTED, pbc: tuple[bool, bool, bool] = (True, True, True)) -> Frame:
    rng = np.random.default_rng(k)
    columns = {name: rng.normal(0, 8, (n, 3)) for name in ("positions", "momenta", "forces")}
    columns["masses"] = np.linspace(1.0, 40.0, n)
    columns["move_mask"] = np.arange(n) % 7 > 0
    info = {"step": 10 * k, "time_ps": 0.02 * k, "energy": -1.5 - k, "stress": np.eye(3) * k}
    numbers = np.where(np.arange(n) % 3, 18, 36).astype(np.uint8)
    return Frame(10 * k, 0.02 * k, cell, pbc, np.arange(n), numbers, columns, info)


def written(path: Path, steps: range, at: int | None = None, cell: np.ndarray = TILTED) -> int:
    writer = open_writer(path, Precision(), False, at)
    for k in steps:
        writer.write(frame(k, cell=cell))
    writer.flush()
    place = writer.position()
    writer.close()
    return place


def frames_in(path: Path) -> list:
    if path.suffix == ".h5md":
        return [f.atoms() for f in read_frames(path)]
    return read(path, ":", format="lammps-dump-text" if path.suffix == ".dump" else None)


def assert_is(atoms, k: int, is_turned: bool = False) -> None:
    mine = frame(k)
    np.testing.assert_allclose(atoms.positions, mine.columns["positions"], rtol=0, atol=6e-9)
    np.testing.assert_allclose(atoms.get_forces(apply_constraint=False), mine.columns["forces"], rtol=0, atol=6e-9)
    assert np.array_equal(atoms.numbers, mine.numbers)
    if not is_turned:
        np.testing.assert_allclose(atoms.cell.array, TILTED, rtol=0, atol=1e-9)
    assert atoms.pbc.all()


@pytest.mark.parametrize("name", KINDS)
def test_what_is_read_back_is_what_was_written(tmp_path, name):
    written(tmp_path / name, range(3))
    found = frames_in(tmp_path / name)
    assert len(found) == 3
    for k, atoms in enumerate(found):
        assert_is(atoms, k)
        if name != "t.dump":
            mine = frame(k)
            np.testing.assert_allclose(atoms.get_momenta(), mine.columns["momenta"], rtol=0, atol=6e-9)
            np.testing.assert_allclose(atoms.get_masses(), mine.columns["masses"], rtol=0, atol=6e-9)
            assert atoms.get_potential_energy() == pytest.approx(-1.5 - k)
            assert np.array_equal(atoms.constraints[0].index, np.flatnonzero(~mine.columns["move_mask"]))
            assert atoms.info["step"] == 10 * k


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("n_kept", "n_more"), [(0, 2), (1, 1), (2, 1), (42, 1), (43, 0), (43, 3)])
def test_a_file_cut_back_goes_on_as_if_it_had_never_been_longer(tmp_path, name, n_kept, n_more):
    """Past 42 frames ASE moves its table of offsets."""
    path, unbroken = tmp_path / name, tmp_path / f"unbroken{Path(name).suffix}"
    place = written(path, range(n_kept))
    written(path, range(n_kept, n_kept + 4), at=place)  # what a run wrote that was killed
    written(path, range(n_kept, n_kept + n_more), at=place)
    written(unbroken, range(n_kept + n_more))
    if name == "t.h5md":
        assert [a.info["step"] for a in frames_in(path)] == [10 * k for k in range(n_kept + n_more)]
        assert_is(frames_in(path)[-1], n_kept + n_more - 1)
    else:
        assert path.read_bytes() == unbroken.read_bytes()


@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_ends_before_its_place_is_refused(tmp_path, name):
    place = written(tmp_path / name, range(3))
    written(tmp_path / name, range(2))
    with pytest.raises(InputError, match="fewer than the"):
        open_writer(tmp_path / name, Precision(), False, place)


WRITE_ON = """
import sys
from pathlib import Path
from tests.trajectories.test_formats import Precision, frame, open_writer
writer = open_writer(Path(sys.argv[1]), Precision(), False)
for k in range(100000):
    writer.write(frame(k, n=4000))
    print(k, flush=True)
"""


@pytest.mark.parametrize("n_kills", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["t.traj", "t.h5md"])
def test_a_kill_at_any_moment_leaves_every_whole_frame(tmp_path, name, n_kills):
    path = tmp_path / name
    for again in range(n_kills):
        with (tmp_path / "told").open("w+") as told:
            process = subprocess.Popen([sys.executable, "-c", WRITE_ON, str(path)], stdout=told)
            limit = time.monotonic() + 60
            while not (tmp_path / "told").read_text().strip() and time.monotonic() < limit:
                time.sleep(0.01)
            time.sleep(0.1 + 0.0037 * again)
            process.kill()
            process.wait()
        n_told = len((tmp_path / "told").read_text().split("\n")) - 1
        found = frames_in(path)
        assert n_told <= len(found) <= n_told + 1
        for k in (0, len(found) - 1):
            np.testing.assert_allclose(found[k].positions, frame(k, n=4000).columns["positions"], rtol=0, atol=6e-9)
        writer = open_writer(path, Precision(), False, n_told)
        writer.write(frame(7, n=4000))
        writer.close()
        assert len(frames_in(path)) == n_told + 1


def test_mdanalysis_reads_what_the_h5md_file_holds(tmp_path):
    """Frames that a run added after it was cut back, too."""
    from MDAnalysis import Universe  # takes seconds to import

    written(tmp_path / "t.h5md", range(4))
    written(tmp_path / "t.h5md", range(2, 3), at=2)
    universe = Universe(str(tmp_path / "t.h5md"))
    assert len(universe.trajectory) == 3
    for k, moment in enumerate(universe.trajectory):
        mine = frame(k)
        velocities = mine.velocities() * units.PS
        np.testing.assert_allclose(moment.positions, mine.columns["positions"], rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(moment.velocities, velocities, rtol=1e-5, atol=1e-3)
        np.testing.assert_allclose(moment.forces, mine.columns["forces"] * KJ_MOL, rtol=1e-5, atol=1e-2)
        assert moment.time == pytest.approx(0.02 * k)
        assert moment.data["step"] == 10 * k
        np.testing.assert_allclose(moment.dimensions, cell_to_cellpar(TILTED), rtol=1e-6)


def test_a_dump_keeps_the_frame_of_a_cell_that_is_not_lower_triangular(tmp_path):
    written(tmp_path / "t.dump", range(1), cell=TURNED)
    assert "BOX BOUNDS abc origin pp pp pp" in (tmp_path / "t.dump").read_text()
    (atoms,) = frames_in(tmp_path / "t.dump")
    np.testing.assert_allclose(atoms.cell.array, TURNED, rtol=0, atol=1e-12)
    assert_is(atoms, 0, is_turned=True)


def test_a_dump_has_the_columns_and_units_of_lammps(tmp_path):
    written(tmp_path / "t.dump", range(1))
    lines = (tmp_path / "t.dump").read_text().splitlines()
    assert lines[:2] == ["ITEM: UNITS", "metal"]
    assert "ITEM: BOX BOUNDS xy xz yz pp pp pp" in lines
    assert "ITEM: ATOMS id type element xu yu zu vx vy vz fx fy fz mass" in lines
    row = lines[lines.index("ITEM: ATOMS id type element xu yu zu vx vy vz fx fy fz mass") + 2].split()
    mine = frame(0)
    velocity = mine.columns["momenta"][1] / mine.columns["masses"][1] * units.PS
    assert row[:3] == ["2", "1", "Ar"]
    np.testing.assert_allclose([float(w) for w in row[6:9]], velocity, rtol=0, atol=6e-9)


def test_wrapped_positions_are_in_the_cell_by_whole_vectors():
    positions = frame(1).columns["positions"] * 5
    inside = wrapped(positions, TURNED, (True, True, False))
    turns = (positions - inside) @ np.linalg.inv(TURNED)
    np.testing.assert_allclose(turns, turns.round(), rtol=0, atol=1e-9)
    assert np.abs(turns[:, 2]).max() < 1e-9
    assert np.abs(turns[:, :2]).max() > 1


class Full:
    """A disk without room."""

    def write(self, frame):
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self): ...

    def close(self): ...


def test_what_the_thread_cannot_write_is_told_at_the_next_frame_and_nobody_waits():
    thread = WritingThread({"t.traj": Full()})
    thread.put(frame(0))
    with pytest.raises(MdrunError, match=r"t\.traj can't be written: No space left"):
        thread.flush()
    with pytest.raises(MdrunError, match=r"t\.traj can't be written: No space left"):
        thread.put(frame(1))
    thread.close()


@pytest.mark.parametrize("name", ["../t.traj", "a/t.traj", "/t.traj", "", ".t.traj", "t.dcd", "relaxed.extxyz"])
def test_a_name_is_that_of_a_free_file_in_the_run_directory(name):
    with pytest.raises(InputError, match="--trajectory"):
        check_names((name,), ("relaxed.extxyz",))


@pytest.mark.parametrize("text", ["0", "18", "float16", "5,x", ""])
def test_a_precision_that_is_not_understood_is_refused(text):
    with pytest.raises(InputError, match="--trajectory-precision"):
        parse_precision(text, ("t.extxyz", "t.h5md"))


@pytest.mark.parametrize(("text", "name"), [("5", "t.traj"), ("float32", "t.extxyz"), ("float32", "t.traj")])
def test_a_precision_that_no_file_looks_at_is_refused(text, name):
    with pytest.raises(InputError, match="means nothing for"):
        parse_precision(text, (name,))
