"""Checkpoints and H5MD files that were tampered with, and checkpoints that are whole but were made by an enemy."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from mdrun.errors import InputError
from mdrun.run.checkpoint import FORMAT, DamagedCheckpoint, read_checkpoint, write_whole
from mdrun.run.checkpoint_contents import N_FIGURES
from mdrun.run.resume import as_it_was, newest_checkpoint, refuse_changes
from mdrun.run.settings import Settings
from mdrun.run.trajectories.files import open_writer
from mdrun.run.trajectories.h5md import cut
from mdrun.run.trajectories.names import Precision
from mdrun.run.trajectories.reading import read_frames
from tests.mutations import feed, hostile, mutations
from tests.trajectories.test_formats import frame

SETTINGS = Settings(structure="/a.xyz", out="/a.run", model="lj", seed=3, steps=100, precision="double")
META: dict[str, Any] = {
    "format": FORMAT, "step": 40, "origin": {"step": 10, "time_ps": 0.5}, "settings": asdict(SETTINGS),
    "outputs": {"thermo.csv": 100}, "variables": {"x": [1.0]},
}  # fmt: skip


def contents() -> dict[str, np.ndarray]:
    """Of two atoms on two ranks."""
    return {
        "ids": np.arange(2), "types": np.array([0, 1], np.int32), "charges": np.zeros(2), "masses": np.ones(2),
        "mobile": np.ones((2, 3), bool), "positions": np.eye(2, 3) * 4, "momenta": np.zeros((2, 3)),
        "positions_then": np.eye(2, 3) * 4, "cell": np.eye(3) * 9, "cell_then": np.eye(3) * 9,
        "pbc": np.ones(3, bool), "numbers": np.array([18, 36]), "since_rebuild": np.zeros(5),
        "fresh_imbalance": np.array(1.0), "partition_axis": np.array([0]), "partition_cut": np.array([0.5]),
        "partition_lower": np.array([-1]), "partition_upper": np.array([-2]), "averages_rows": np.zeros((1, 8)),
        "averages_sum": np.zeros(8), "averages_counts": np.array([1, 1, 0]), "rank_figures": np.zeros((2, N_FIGURES)),
        "rank_shares": np.zeros((2, 0)),
    }  # fmt: skip


def written(path: Path, arrays: dict[str, np.ndarray], meta: Any = META) -> Path:
    path.unlink(missing_ok=True)
    write_whole(path, meta=np.array(json.dumps(meta)), **arrays)
    return path


def go_on(directory: Path) -> None:
    """What a run that goes on does with what it read, before it has atoms of its own."""
    found = newest_checkpoint(directory)
    if found is None:
        return
    checkpoint, _ = found
    refuse_changes(as_it_was(Settings(structure="/a.xyz", out="/a.run"), checkpoint), checkpoint, ["timestep", "model"])


def test_a_good_checkpoint_is_read(tmp_path):
    assert read_checkpoint(written(tmp_path / "checkpoint.npz", contents())).step == 40
    go_on(tmp_path)


@hostile
def test_a_checkpoint_that_was_tampered_with_is_refused(n_inputs, tmp_path):
    path = written(tmp_path / "checkpoint.npz", contents())

    def read(made: bytes) -> None:
        path.write_bytes(made)
        go_on(tmp_path)

    feed(read, mutations(path.read_bytes()), n_inputs)


FILL = [0, -1, -2, 1, 3, 2**31 - 1, -(2**31)]
ODD = [None, True, -1, 0, 10**30, 1.5, float("nan"), 1e308, "", "x", "lj", "é\0", [], [1], [[1, 2], [3]], {}, {"a": {}}]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(list(contents())),
        st.sampled_from(["fill", "nan", "huge", "dtype", "longer", "shorter", "flat", "gone", "text", "one"]),
        st.sampled_from(FILL),
        st.sampled_from(["f4", "f8", "i1", "i8", ">i8", "b1", "c16", "U3", "M8[s]", "V4"]),
    ),
    max_size=2,
)
META_CHANGES = st.lists(
    st.tuples(
        st.sampled_from([*META, *(f"settings.{name}" for name in META["settings"]), "settings.odd",
                         "outputs.thermo.csv", "variables.x", "origin.step", "origin.time_ps"]),
        st.sampled_from([*ODD, "gone"]),
    ),
    max_size=2,
)  # fmt: skip


def changed(arrays: dict[str, np.ndarray], name: str, how: str, fill: int, dtype: str) -> None:
    values = arrays.get(name)
    if values is None:
        return
    made: Any = values.copy()
    if how == "gone":
        del arrays[name]
        return
    if how == "fill" and made.dtype.kind not in "USMV":
        made[...] = fill > 0 if made.dtype == bool else fill
    elif how in ("nan", "huge") and made.dtype.kind not in "USMV":
        made = made.astype(float)
        made[...] = np.nan if how == "nan" else 1e308
    elif how == "dtype":
        made = np.zeros(made.shape, dtype)
    elif how == "longer":
        made = np.concatenate([np.atleast_1d(made)] * 3)
    elif how == "shorter":
        made = np.atleast_1d(made)[:0]
    elif how == "flat":
        made = made.ravel()
    elif how == "text":
        made = np.array("x" * 1000)
    else:
        np.atleast_1d(made).flat[-1:] = fill > 0 if made.dtype == bool else fill
    arrays[name] = made


def changed_meta(name: str, value: Any, meta: Any) -> None:
    owner, _, key = name.partition(".")
    inside = meta.get(owner) if key else meta
    if not isinstance(inside, dict):
        return
    if value == "gone":
        inside.pop(key or owner, None)
    else:
        inside[key or owner] = value


@hostile
def test_a_whole_checkpoint_of_hostile_contents_is_refused_or_can_be_gone_on_with(n_inputs, tmp_path):
    def read(made: tuple[list, list]) -> None:
        arrays, meta = contents(), copy.deepcopy(META)
        for change in made[0]:
            changed(arrays, *change)
        for name, value in made[1]:
            changed_meta(name, value, meta)
        written(tmp_path / "checkpoint.npz", arrays, meta)
        go_on(tmp_path)

    feed(read, st.tuples(CHANGES, META_CHANGES), n_inputs)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("partition_lower", np.array([0]), "no tree"),  # an endless walk
        ("partition_upper", np.array([7]), "no tree"),  # beyond the array, in compiled code
        ("partition_axis", np.array([3]), "no axis"),
        ("types", np.array([0, 9], np.int32), "beyond its species"),
        ("ids", np.array([0, 5]), "not those of all atoms"),
        ("positions", np.full((2, 3), 1e300), "beyond 1e\\+12"),
        ("momenta", np.full((2, 3), np.nan), "not finite"),
        ("averages_counts", np.array([1, 0, 0]), "no counts"),
        ("since_rebuild", np.full(5, 1e300), "no counts"),
        ("cell", np.eye(3, dtype="f4"), "of type float32"),
    ],
)
def test_arrays_that_compiled_code_would_trust_are_refused(name, values, words, tmp_path):
    with pytest.raises(DamagedCheckpoint, match=words):
        read_checkpoint(written(tmp_path / "checkpoint.npz", contents() | {name: values}))


@pytest.mark.parametrize("meta", [[], "x", 3, {**META, "settings": []}, {**META, "step": True}, {**META, "step": -1}])
def test_a_description_of_another_kind_is_refused(meta, tmp_path):
    with pytest.raises(DamagedCheckpoint, match="no checkpoint to go on from"):
        read_checkpoint(written(tmp_path / "checkpoint.npz", contents(), meta))


def test_options_of_wrong_types_in_a_checkpoint_are_refused(tmp_path):
    for name, value in (("timestep", 0), ("timestep", "x"), ("ramp_steps", "x"), ("replicate", [1]), ("seed", 1.5)):
        written(tmp_path / "checkpoint.npz", contents(), {**META, "settings": {**META["settings"], name: value}})
        with pytest.raises(InputError, match=r"can't be gone on from"):
            go_on(tmp_path)


@hostile
def test_an_h5md_file_that_was_tampered_with_is_read_or_refused(n_inputs, tmp_path):
    path = tmp_path / "a.h5md"
    writer = open_writer(path, Precision(), False)
    for k in range(3):
        writer.write(frame(k, n=4))
    writer.close()
    good = path.read_bytes()

    def read(made: bytes) -> None:
        path.write_bytes(made)
        for number, found in enumerate(read_frames(path)):
            assert number < 10_000
            found.atoms()
        cut(path, 2)

    feed(read, mutations(good), n_inputs)
