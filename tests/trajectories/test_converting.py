"""Each format into each other: what both can carry is the same, and what is wrong is said."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mdrun.errors import InputError, MdrunError
from mdrun.run.trajectories.converting import Conversion, convert
from mdrun.run.trajectories.files import open_writer
from mdrun.run.trajectories.frames import Frame
from mdrun.run.trajectories.names import Precision, parse_frames
from mdrun.run.trajectories.reading import read_frames
from tests.trajectories.test_formats import KINDS, TILTED, TURNED, frame

PAIRS = list(itertools.permutations(KINDS, 2))
DIGITS = 2e-8  # two roundings to eight decimals


def made(path: Path, n_frames: int = 3, n: int = 20, cell: np.ndarray = TILTED, shift: int = 0) -> list[Frame]:
    """A file of frames of ``n`` atoms, some of which are fixed, and the frames."""
    frames = [frame(k + shift, n=n, cell=cell) for k in range(n_frames)]
    writer = open_writer(path, Precision(), False)
    for each in frames:
        writer.write(each)
    writer.close()
    return frames


def converted(source: Path, target: Path, **options) -> list[Frame]:
    done = convert(Conversion(source, target, **options), lambda n: None)
    found = list(read_frames(target))
    assert done.n_frames == len(found)
    return found


def assert_same(found: Frame, mine: Frame, kinds: tuple[str, ...], atol: float = DIGITS) -> None:
    """In all that the formats on the way can carry."""
    assert (found.step, found.pbc) == (mine.step, mine.pbc)
    assert found.time_ps == pytest.approx(mine.time_ps, abs=1e-12)
    assert np.array_equal(found.numbers, mine.numbers)
    np.testing.assert_allclose(found.cell, mine.cell, rtol=0, atol=1e-12)
    names = ["positions", "forces", "masses"] + ["move_mask"] * ("t.dump" not in kinds)
    for name in names:
        np.testing.assert_allclose(found.columns[name], mine.columns[name], rtol=0, atol=atol)
    # A dump has velocities in Å/ps to so many digits.
    momenta = 3e-7 if "t.dump" in kinds else atol
    np.testing.assert_allclose(found.columns["momenta"], mine.columns["momenta"], rtol=0, atol=momenta)
    if "t.dump" in kinds:
        assert not {"energy", "stress"} & set(found.info)
    else:
        assert found.info["energy"] == pytest.approx(mine.info["energy"], abs=1e-12)
        np.testing.assert_allclose(found.info["stress"], mine.info["stress"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_what_both_formats_carry_comes_through(tmp_path, pair):
    frames = made(tmp_path / pair[0], 2, cell=TURNED)
    found = converted(tmp_path / pair[0], tmp_path / f"new{Path(pair[1]).suffix}")
    assert len(found) == 2
    for mine, other in zip(frames, found, strict=True):
        assert_same(other, mine, pair)


@pytest.mark.parametrize("name", KINDS)
def test_atoms_are_chosen_and_wrapped_on_the_way(tmp_path, name):
    frames = made(tmp_path / "t.h5md")
    found = converted(tmp_path / "t.h5md", tmp_path / f"new{Path(name).suffix}", atoms="2,5-8", is_wrapped=True)
    rows = [2, 5, 6, 7, 8]
    for mine, other in zip(frames, found, strict=True):
        inside = other.columns["positions"] @ np.linalg.inv(TILTED)
        assert inside.min() > -1e-8
        assert inside.max() < 1 + 1e-8
        turns = inside - mine.columns["positions"][rows] @ np.linalg.inv(TILTED)
        np.testing.assert_allclose(turns, turns.round(), rtol=0, atol=1e-8)
        np.testing.assert_allclose(other.columns["forces"], mine.columns["forces"][rows], rtol=0, atol=DIGITS)
        if name in ("t.h5md", "t.dump"):
            assert other.ids.tolist() == rows


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("text", ["1:4", "-2:", "::2", "3", "-1", ":-3", "2::2"])
def test_frames_are_chosen_as_slices_are(tmp_path, name, text):
    frames = made(tmp_path / name, 5, n=3)
    asked = parse_frames(text)
    assert [f.step for f in read_frames(tmp_path / name, asked)] == [f.step for f in frames[asked]]


@pytest.mark.parametrize("text", ["", "a", "1.5", "::0", "::-1", "1:2:3:4"])
def test_frames_that_are_not_understood_are_refused(text):
    with pytest.raises(InputError, match="--frames"):
        parse_frames(text)


@pytest.mark.parametrize("name", ["t.extxyz", "t.dump"])
def test_a_last_frame_that_is_cut_off_anywhere_is_told_and_the_whole_ones_are_kept(tmp_path, name):
    """A byte less than a whole row may still be a number, and another one."""
    source, target = tmp_path / name, tmp_path / "new.traj"
    made(source, 2, n=4)
    n_before = source.stat().st_size
    made(source, 3, n=4)
    text = source.read_bytes()
    for n in [*range(n_before + 1, n_before + 60, 7), *range(len(text) - 200, len(text) - 1, 9), len(text) - 2]:
        source.write_bytes(text[:n])
        with pytest.raises(InputError, match=r"frame 2 is cut off.* 2 whole frames were converted before it"):
            convert(Conversion(source, target, overwrite=True), lambda n: None)
        assert [f.step for f in read_frames(target)] == [0, 10]
    if name == "t.extxyz":
        source.write_bytes(text[:-1])  # without its last newline, as others end their files
        assert len(converted(source, target, overwrite=True)) == 3


@pytest.mark.parametrize("name", ["t.traj", "t.h5md"])
def test_a_file_that_was_cut_is_refused_with_the_number_of_frames_that_were_whole(tmp_path, name):
    source = tmp_path / name
    made(source, 8)
    text = source.read_bytes()
    for n in (100, len(text) // 3, 2 * len(text) // 3):
        source.write_bytes(text[:n])
        with pytest.raises(InputError, match=r"converted"):
            convert(Conversion(source, tmp_path / "new.extxyz", overwrite=True), lambda n: None)


def test_a_dump_of_lammps_in_real_units_is_understood(tmp_path):
    """As LAMMPS writes it: unsorted, fs, Å/fs, kcal/mol/Å, no step of ours."""
    (tmp_path / "t.dump").write_text(
        "ITEM: UNITS\nreal\nITEM: TIME\n500\nITEM: TIMESTEP\n250\nITEM: NUMBER OF ATOMS\n2\n"
        "ITEM: BOX BOUNDS pp pp ff\n-1 9\n0 10\n0 10\nITEM: ATOMS id type x y z vx vy vz fx fy fz\n"
        "7 2 1 2 3 0 0 0.01 0 0 23.060549\n3 1 4 5 6 0 0 0 0 0 0\n"
    )
    (found,) = converted(tmp_path / "t.dump", tmp_path / "t.h5md", species=["O", "Ar"])
    assert (found.step, found.pbc, found.ids.tolist()) == (250, (True, True, False), [2, 6])
    assert found.time_ps == pytest.approx(0.5)
    assert found.numbers.tolist() == [8, 18]
    assert found.columns["forces"][1, 2] == pytest.approx(1.0, abs=1e-6)
    velocities = found.velocities()
    assert velocities[1, 2] == pytest.approx(0.01 / 0.09822694788464063, rel=1e-6)  # ASE's unit of time is 10.18 fs


def test_what_a_format_has_no_place_for_is_named(tmp_path):
    mine = frame(0)
    mine = replace(mine, columns={**mine.columns, "site": np.arange(40.0)}, info={**mine.info, "origin": "melted"})
    writer = open_writer(tmp_path / "t.extxyz", Precision(), False)
    writer.write(mine)
    writer.close()
    lost = {}
    for name in ("n.dump", "n.h5md", "n.traj", "n.xyz"):
        lost[name] = set(convert(Conversion(tmp_path / "t.extxyz", tmp_path / name), lambda n: None).lost)
    assert lost["n.dump"] == {"energy", "stress", "move_mask", "site", "origin"}
    assert lost["n.h5md"] == {"site", "origin"}
    assert lost["n.traj"] == {"site"}
    assert lost["n.xyz"] == set()


def test_h5md_refuses_frames_of_other_atoms(tmp_path):
    writer = open_writer(tmp_path / "t.extxyz", Precision(), False)
    for n in (4, 4, 5):
        writer.write(frame(0, n=n))
    writer.close()
    with pytest.raises(InputError, match=r"other atoms .* 2 whole frames were converted"):
        convert(Conversion(tmp_path / "t.extxyz", tmp_path / "t.h5md"), lambda n: None)
    assert len(converted(tmp_path / "t.extxyz", tmp_path / "t.traj")) == 3


def test_a_file_in_the_way_is_kept(tmp_path):
    made(tmp_path / "t.extxyz")
    (tmp_path / "n.traj").write_text("mine")
    with pytest.raises(InputError, match="--overwrite"):
        convert(Conversion(tmp_path / "t.extxyz", tmp_path / "n.traj"), lambda n: None)
    with pytest.raises(InputError, match="is the file that is to be read"):
        convert(Conversion(tmp_path / "t.extxyz", tmp_path / "t.extxyz", overwrite=True), lambda n: None)
    (tmp_path / "bad.extxyz").write_text("no trajectory\n")
    with pytest.raises(InputError):
        convert(Conversion(tmp_path / "bad.extxyz", tmp_path / "n.traj", overwrite=True), lambda n: None)
    assert (tmp_path / "n.traj").read_text() == "mine"


def test_a_full_disk_is_told_with_the_number_of_frames(tmp_path):
    made(tmp_path / "t.traj")
    (tmp_path / "n.extxyz").symlink_to("/dev/full")
    with pytest.raises((MdrunError, InputError), match=r"n\.extxyz"):
        convert(Conversion(tmp_path / "t.traj", tmp_path / "n.extxyz", overwrite=True), lambda n: None)


@pytest.mark.parametrize("name", KINDS)
def test_many_frames_take_no_more_memory_than_two(name, tmp_path):
    """Python's own blocks; a frame of 600 atoms is 0.1 MB."""
    import tracemalloc

    peaks = []
    for n_frames in (2, 6):
        made(tmp_path / name, n_frames, n=600)
        tracemalloc.start()
        converted_to = Conversion(tmp_path / name, tmp_path / "new.dump", overwrite=True)
        convert(converted_to, lambda n: None)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("mass", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", ["t.dump", "t.extxyz"])
def test_atoms_without_mass_that_move_are_refused_by_name_whatever_the_formats(tmp_path, source, target, mass):
    dump = (
        "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n2\nITEM: BOX BOUNDS pp pp pp\n0 9\n0 9\n0 9\n"
        f"ITEM: ATOMS id element mass x y z vx vy vz\n1 Ar 39.9 1 2 3 1 0 0\n2 Ar {mass} 4 5 6 0 0 2\n"
    )
    head = "2\nProperties=species:S:1:masses:R:1:pos:R:3:momenta:R:3\n"
    extxyz = f"{head}Ar 39.9 1 2 3 1 0 0\nAr {mass} 4 5 6 0 0 2\n"
    text = dump if source == "t.dump" else extxyz
    (tmp_path / source).write_text(text)
    new = tmp_path / f"new{Path(target).suffix}"
    with pytest.raises(InputError, match=rf"atom 1 \(Ar\) in {tmp_path / source}, frame 0, has mass {mass:g}"):
        convert(Conversion(tmp_path / source, new), lambda n: None)
    assert not new.exists()


@pytest.mark.parametrize("target", KINDS)
def test_atoms_without_mass_that_are_not_said_to_move_are_converted(tmp_path, target):
    (tmp_path / "t.dump").write_text(
        "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n2\nITEM: BOX BOUNDS pp pp pp\n0 9\n0 9\n0 9\n"
        "ITEM: ATOMS id element mass x y z\n1 Ar 39.9 1 2 3\n2 Ar 0 4 5 6\n"
    )
    (found,) = converted(tmp_path / "t.dump", tmp_path / f"new{Path(target).suffix}")
    assert "momenta" not in found.columns
    assert found.columns["masses"].tolist() == [39.9, 0]
