"""Checkpoints and structures that were tampered with, and those that are whole but were made by an enemy."""

from __future__ import annotations

import copy
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
import pytest
import torch
from ase.build import molecule
from ase.constraints import FixBondLengths
from hypothesis import strategies as st

from mdrun import npz
from mdrun.backends.on_cpu import NumbaBackend
from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.errors import InputError, SimulationError
from mdrun.integrate import kept
from mdrun.integrate.base import Integrator
from mdrun.run import setup, simulation
from mdrun.run.averages import Rows
from mdrun.run.changes import as_it_was, refuse_changes
from mdrun.run.checkpoint import FORMAT, DamagedCheckpoint, put_back, read_checkpoint, write_whole
from mdrun.run.checkpoint_contents import N_FIGURES
from mdrun.run.ensembles import make_integrator
from mdrun.run.history import MOST_STARTS, MOST_TEXT, Ending, Start
from mdrun.run.resume import newest_checkpoint, take_up
from mdrun.run.settings import Settings
from mdrun.run.simulation import Simulation
from mdrun.run.starting import give_velocities
from mdrun.run.thermo import Thermometer
from mdrun.scope import Scope
from mdrun.state import FIELDS, State
from mdrun.structures import load_structure
from mdrun.structures.kept import FORMAT as STRUCTURE_FORMAT
from mdrun.structures.kept import keep, read_kept
from tests.mutations import feed, feed_files, hostile, mutations
from tests.systems import argon

SETTINGS = Settings(
    structure="/a.xyz", out="/a.run", model="lj", seed=3, steps=100, precision="double", ensemble="npt",
    temperature=40.0, pressure=0.1, box="xyz",
)  # fmt: skip
COMM, MODEL = Comm(), argon(n_types=2)


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


def first_state() -> State:
    """What was read from the structure."""
    arrays = {f.name: torch.from_numpy(contents()[f.name]) for f in FIELDS}
    return State(cell=torch.eye(3, dtype=torch.float64) * 9, pbc=(True,) * 3, numbers=(18, 36), n_total=2, **arrays)


def integrator_of(state: State) -> Integrator:
    return make_integrator(SETTINGS, 3, COMM, state)


STARTS = (
    Start("2026-12-02T14:00:00+00:00", 0, "node1", 4, 2, "cpu", "numba", "1.0"),
    Start("2026-12-03T14:00:00+00:00", 20, "node2", 8, 1, "cuda", "torch", "1.1", ("--timestep from 1.0 to 2.0",),
          Ending("stopped", 20, "SIGTERM", 75)),
)  # fmt: skip
META: dict[str, Any] = {
    "format": FORMAT, "step": 40, "settings": asdict(SETTINGS), "outputs": {"thermo.csv": 100},
    "history": [asdict(start) for start in STARTS], "inputs": {"/a.eam": "0" * 64},
    "origin": {"step": 10, "time_ps": 0.02}, "variables": kept.variables(integrator_of(first_state())),
}  # fmt: skip


def written(path: Path, arrays: dict[str, np.ndarray], meta: Any = META) -> Path:
    path.unlink(missing_ok=True)
    write_whole(path, meta, **arrays)
    return path


def go_on(directory: Path) -> Simulation | None:
    """What a run that goes on does with what it read, up to its next step."""
    found = newest_checkpoint(directory)
    if found is None:
        return None
    checkpoint, _ = found
    refuse_changes(as_it_was(replace(SETTINGS, seed=None), checkpoint, {}), checkpoint, ["timestep", "model"])
    state = first_state()
    domain = Domain(COMM, MODEL.cutoff, 1.0, 1, NumbaBackend())
    with Scope(MODEL, domain, 2) as scope:
        sim = Simulation(state, domain, scope, integrator_of(state), 3, step=checkpoint.step)
        take_up(state, checkpoint, "/a.xyz")
        simulation.go_on(sim, checkpoint.arrays)
        put_back(checkpoint, sim, Rows(Thermometer(COMM)))
        simulation.run(sim, 1)
        assert state.n_owned == 2
    return sim


def test_a_good_checkpoint_is_read(tmp_path):
    assert read_checkpoint(written(tmp_path / "checkpoint.npz", contents())).step == 40
    sim = go_on(tmp_path)
    assert sim is not None
    assert sim.step == 41


def test_momenta_beyond_the_speed_of_light_are_refused(tmp_path):
    arrays = contents()
    arrays["momenta"][1, 0] = 1e200
    with pytest.raises(DamagedCheckpoint, match="speed"):
        read_checkpoint(written(tmp_path / "checkpoint.npz", arrays))


@hostile
def test_a_checkpoint_that_was_tampered_with_is_refused(n_inputs, tmp_path):
    path = written(tmp_path / "checkpoint.npz", contents())

    def read(made: bytes) -> None:
        path.write_bytes(made)
        go_on(tmp_path)

    feed(read, mutations(path.read_bytes()), n_inputs)


FILL = [0, -1, -2, 1, 3, 2**31 - 1, -(2**31)]
ODD = [None, True, -1, 0, 10**30, 1.5, float("nan"), 1e308, "", "x", "lj", "é\0", [], [1], [[1, 2], [3]], {}, {"a": {}}]
CHANGE = (
    st.sampled_from(list(contents())),
    st.sampled_from(["fill", "nan", "huge", "dtype", "longer", "shorter", "flat", "gone", "text", "one"]),
    st.sampled_from(FILL),
    st.sampled_from(["f4", "f8", "i1", "i8", ">i8", "b1", "c16", "U3", "M8[s]", "V4"]),
)
CHANGES = st.lists(st.tuples(*CHANGE), max_size=2)
META_CHANGES = st.lists(
    st.tuples(
        st.sampled_from([*META, *(f"settings.{name}" for name in META["settings"]), "settings.odd",
                         "outputs.thermo.csv", "inputs./a.eam", "origin.step", "origin.time_ps",
                         *(f"history.{f.name}" for f in fields(Start)),
                         *(f"history.before.{f.name}" for f in fields(Ending)),
                         *(f"variables.{name}" for name in META["variables"])]),
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
    value = copy.deepcopy(value)
    if owner == "history" and key:  # of the last start; or of what came before it
        before, _, name_there = key.rpartition(".")
        last = inside[-1] if isinstance(inside, list) and inside else None
        inside, key = last.get(before) if before and isinstance(last, dict) else last, name_there
    elif isinstance(inside, list) and key:
        inside[int(key) : int(key) + 1] = [value]
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


def kept_structure(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a run keeps of three atoms with a bond; the file is written."""
    atoms = molecule("H2O", cell=[9, 9, 9], pbc=True)
    atoms.set_array("label", np.array(["O", "H1", "H2"]))
    atoms.set_momenta(np.eye(3))
    atoms.info = {"word": "a", "table": {"a": [1, (2.5, None)]}, "array": np.arange(3)}
    atoms.set_constraint(FixBondLengths([[0, 1]]))
    ase.io.write(path.with_name("a.traj"), atoms)
    keep(path, load_structure(path.with_name("a.traj")), "0" * 64, {"index": None})
    meta, arrays = npz.read(path, "structure", STRUCTURE_FORMAT)
    return meta, arrays


def begin(path: Path) -> None:
    """What a run that goes on does with the structure that it kept."""
    structure = read_kept(path).structure
    state = setup.first_state(structure)
    give_velocities(state, structure, replace(SETTINGS, ensemble="nve", temperature=None, pressure=None, box=None))
    assert state.n_total == len(structure.masses)


@hostile
def test_a_structure_that_was_tampered_with_is_refused(n_inputs, tmp_path):
    path = tmp_path / "structure.npz"
    kept_structure(path)
    begin(path)
    feed_files(begin, path, mutations(path.read_bytes()), n_inputs)


@hostile
def test_a_whole_structure_of_hostile_contents_is_refused_or_can_be_gone_on_with(n_inputs, tmp_path):
    path = tmp_path / "structure.npz"
    meta, arrays = kept_structure(path)
    changes = st.tuples(st.sampled_from(list(arrays)), *CHANGE[1:])
    names = [*meta, *(f"info.{number}" for number in range(len(meta["info"]))), "columns.0", "columns.2", "words.0"]
    odd = [*ODD, "gone", ["array", "cell"], ["number", "nothing"], ["spacegroup", 999, 1], ["dict", [1]], [["dict"], 1]]

    def read(made: tuple[list, list]) -> None:
        values, words = dict(arrays), copy.deepcopy(meta)
        for change in made[0]:
            changed(values, *change)
        for name, value in made[1]:
            changed_meta(name, value, words)
        npz.write(path, words, values)
        begin(path)

    meta_changes = st.lists(st.tuples(st.sampled_from(names), st.sampled_from(odd)), max_size=2)
    feed(read, st.tuples(st.lists(changes, max_size=2), meta_changes), n_inputs)


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
        ("cell", np.zeros((3, 3)), "no cell vector"),
        ("cell", np.eye(3) * 1e-3, "only 0.001 Å thick"),
        ("cell_then", np.ones((3, 3)) * 9, "span no volume"),
    ],
)
def test_arrays_that_compiled_code_would_trust_are_refused(name, values, words, tmp_path):
    with pytest.raises(DamagedCheckpoint, match=words):
        read_checkpoint(written(tmp_path / "checkpoint.npz", contents() | {name: values}))


def test_a_checkpoint_without_finite_forces_ends_as_any_step_without_them(tmp_path):
    written(tmp_path / "checkpoint.npz", contents() | {"positions": np.zeros((2, 3))})
    with pytest.raises(SimulationError, match="is not finite"):
        go_on(tmp_path)


@pytest.mark.parametrize("meta", [[], "x", 3, {**META, "settings": []}, {**META, "step": True}, {**META, "step": -1}])
def test_a_description_of_another_kind_is_refused(meta, tmp_path):
    with pytest.raises(DamagedCheckpoint, match="no checkpoint to go on from"):
        read_checkpoint(written(tmp_path / "checkpoint.npz", contents(), meta))


@pytest.mark.parametrize(
    "history",
    [None, {}, [1], META["history"] * MOST_STARTS, [META["history"][0] | {"host": "x" * (MOST_TEXT + 1)}],
     [META["history"][0] | {"changes": ["\x1b[2J"]}], [META["history"][0] | {"at": "then"}]],
    ids=range(7),
)  # fmt: skip
def test_a_history_that_is_none_or_endless_is_refused(history, tmp_path):
    with pytest.raises(DamagedCheckpoint, match="no checkpoint to go on from"):
        read_checkpoint(written(tmp_path / "checkpoint.npz", contents(), {**META, "history": history}))


@pytest.mark.parametrize("value", [0.0, [], [[0.0] * 3] * 2, [0.0] * 9, [[[0.0] * 3] * 3]])
def test_variables_of_another_shape_are_refused(value, tmp_path):
    written(tmp_path / "checkpoint.npz", contents(), {**META, "variables": {**META["variables"], "rate": value}})
    with pytest.raises(InputError, match=r"rate was kept in shape"):
        go_on(tmp_path)


def test_options_of_wrong_types_in_a_checkpoint_are_refused(tmp_path):
    for name, value in (("timestep", 0), ("timestep", "x"), ("ramp_steps", "x"), ("replicate", [1]), ("seed", 1.5)):
        written(tmp_path / "checkpoint.npz", contents(), {**META, "settings": {**META["settings"], name: value}})
        with pytest.raises(InputError, match=r"can't be gone on from"):
            go_on(tmp_path)
