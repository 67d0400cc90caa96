"""Trajectories that were tampered with, of every format: converted, and cut back and gone on with, or refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import strategies as st

from mdrun.errors import InputError
from mdrun.run.trajectories.converting import Conversion, convert
from mdrun.run.trajectories.files import open_writer
from mdrun.run.trajectories.names import Precision
from mdrun.run.trajectories.reading import read_frames
from mdrun.structures.damaged_hdf5 import lookup3
from mdrun.structures.h5md import GROUP
from mdrun.structures.readers import read_frame
from tests.mutations import answers_or_refuses_in_a_child, feed, hostile, mutations
from tests.trajectories.test_formats import KINDS, frame

ODD = [0, 1, -1, 2, 7, 8, 47, 48, 49, 2**20, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
PLACES = [0, 1, 2, 3, 4, 9, 10, 100, 1000, 2**31, 2**52]


def write(path: Path, steps: range, at: int | None = None) -> int:
    """Where the file ends."""
    writer = open_writer(path, Precision(), False, at)
    try:
        for k in steps:
            writer.write(frame(k, n=4))
        writer.flush()
        return writer.position()
    finally:
        writer.close()


@st.composite
def with_odd_numbers(draw: st.DrawFn, good: bytes) -> bytes:
    """One to four of the eight-byte words, in which binary files keep counts and places, are others; half of them are
    among the first or the last, where the tables are."""
    words = np.frombuffer(good[: len(good) // 8 * 8], "<i8").copy()
    last = len(words) - 1
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.one_of(st.integers(0, last), st.integers(0, 8), st.integers(last - 8, last)))
        words[at] = draw(st.one_of(st.sampled_from(ODD), st.integers(0, len(good)), st.just(int(words[at]) ^ 8)))
    return words.tobytes() + good[len(words) * 8 :]


def inputs(path: Path) -> tuple[st.SearchStrategy[bytes], int]:
    """Files made from one of three frames, and where its second ends."""
    middle = write(path, range(2))
    write(path, range(3))
    good = path.read_bytes()
    binary = path.suffix in (".traj", ".h5md")
    return st.one_of(mutations(good), with_odd_numbers(good)) if binary else mutations(good), middle


def assert_a_trajectory(path: Path, n_frames: int | None = None) -> None:
    """Or refused, as one whose frames were spoiled may be when they are read."""
    n = 0
    for n, found in enumerate(read_frames(path), 1):
        assert n < 10_000
        found.atoms()
    assert n_frames in (None, n)


@pytest.mark.parametrize("name", KINDS)
@hostile
def test_a_hostile_trajectory_is_converted_or_refused(name, n_inputs, tmp_path):
    path = tmp_path / name
    made_of, _ = inputs(path)

    def read(made: tuple[bytes, str]) -> None:
        content, target = made
        path.write_bytes(content)
        done = convert(Conversion(path, tmp_path / f"new.{target}", overwrite=True), lambda n: None)
        assert_a_trajectory(tmp_path / f"new.{target}", done.n_frames)

    feed(read, st.tuples(made_of, st.sampled_from(["extxyz", "traj", "h5md", "dump"])), n_inputs)


@pytest.mark.parametrize("name", KINDS)
@hostile
def test_a_hostile_trajectory_is_cut_back_and_gone_on_with_or_refused(name, n_inputs, tmp_path):
    path = tmp_path / name
    made_of, middle = inputs(path)

    def go_on(made: tuple[bytes, int]) -> None:
        content, at = made
        path.write_bytes(content)
        write(path, range(2, 3), at)
        assert_a_trajectory(path)

    feed(go_on, st.tuples(made_of, st.one_of(st.just(middle), st.sampled_from(PLACES))), n_inputs)


def left_open(path: Path) -> bytes:
    """A file as a kill leaves it in the middle of a frame."""
    write(path, range(3))
    with h5py.File(path, "r+", libver="latest") as file:
        file.swmr_mode = True
        file[f"{GROUP}/position/value"].resize(4, axis=0)
        file.flush()
        return path.read_bytes()


def way_out(target: Path) -> dict[str, Callable[[Path], object]]:
    """All that opens H5MD files."""
    return {
        "convert": lambda path: convert(Conversion(path, target, overwrite=True), lambda n: None),
        "structure": lambda path: read_frame(str(path)),
        "cut": lambda path: write(path, range(2, 3), 2),
        "go on": lambda path: write(path, range(3, 4), 3),
    }


WAYS = ("convert", "structure", "cut", "go on")


@pytest.mark.parametrize("way", WAYS)
@hostile
def test_a_hostile_h5md_file_that_was_left_open_is_read_or_refused(way, n_inputs, tmp_path):
    path = tmp_path / "a.h5md"
    good = left_open(path)
    use = way_out(tmp_path / "new.extxyz")[way]

    def read(content: bytes) -> None:
        path.write_bytes(content)
        use(path)

    made_of = st.one_of(mutations(good), with_odd_numbers(good))
    feed(read, made_of, n_inputs, answers_or_refuses_in_a_child)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sign", ["OHDR", "EAHD", "EAIB", "GCOL"])
@pytest.mark.parametrize("is_open", [True, False])
def test_damage_that_hdf5_would_sleep_or_spin_over_is_refused(is_open, sign, way, tmp_path):
    path = tmp_path / "a.h5md"
    content = left_open(path)
    if not is_open:
        write(path, range(3))
        content = path.read_bytes()
    made = bytearray(content)
    at = content.index(sign.encode())
    if sign == "GCOL":
        made[at + 16 : at + 32] = bytes(16)  # free space of no size
    else:
        made[at + 8] ^= 1
    path.write_bytes(made)
    use = way_out(tmp_path / "new.extxyz")[way]

    def read(path: Path) -> None:
        with pytest.raises(InputError, match=r"a\.h5md"):
            use(path)

    answers_or_refuses_in_a_child(read, path)


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_was_left_open_is_read_as_any(way, tmp_path):
    path = tmp_path / "a.h5md"
    path.write_bytes(left_open(path))
    use = way_out(tmp_path / "new.extxyz")[way]
    use(path)
    assert_a_trajectory(path, 4 if way == "go on" else 3)


def test_a_reader_that_holds_the_file_does_not_end_the_run(tmp_path):
    path = tmp_path / "a.h5md"
    write(path, range(1))
    code = "import h5py, sys; f = h5py.File(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout.readline()
        write(path, range(1, 3), 1)
        reader.stdin.close()
    assert reader.returncode == 0
    assert_a_trajectory(path, 3)


def test_the_checksum_is_that_of_its_author():
    """The example in lookup3.c, ``driver5``."""
    assert lookup3(b"Four score and seven years ago") == 0x17770551


@pytest.mark.parametrize("name", KINDS)
def test_the_trajectory_that_is_mutated_is_valid(name, tmp_path):
    path = tmp_path / name
    _, middle = inputs(path)
    write(path, range(2, 3), middle)
    assert_a_trajectory(path, 3)


@pytest.mark.parametrize(
    ("at", "value"), [(24, 9), (32, 2**60), (32, -1), (40, -8), (40, 2**60), (48, 2**60), (48, -1), (40, 5)]
)
def test_tables_of_a_traj_file_that_lead_nowhere_are_refused_and_the_file_is_left_alone(at, value, tmp_path):
    path = tmp_path / "a.traj"
    write(path, range(1))
    made = bytearray(path.read_bytes())
    made[at : at + 8] = np.array([value], "<i8").tobytes()
    path.write_bytes(made)
    with pytest.raises(InputError, match=r"a\.traj"):
        write(path, range(1, 2), 1)
    assert path.read_bytes() == made
