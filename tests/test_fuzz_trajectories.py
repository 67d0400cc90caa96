"""Trajectories that were tampered with, of every format: converted, and cut back and gone on with, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from mdrun.errors import InputError
from mdrun.run.trajectories.converting import Conversion, convert
from mdrun.run.trajectories.files import open_writer
from mdrun.run.trajectories.names import Precision
from mdrun.run.trajectories.reading import read_frames
from tests.mutations import feed, hostile, mutations
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
