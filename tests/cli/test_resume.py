"""Runs that stop and go on: as if they had never stopped, on as many ranks as before or on others."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase.build import bulk

from mdrun import digests, npz
from mdrun.run.trajectories.reading import read_frames
from tests.cli.launcher import Ended, call, torchrun
from tests.systems import pfcc

ENSEMBLES = {
    "langevin": ("--ensemble", "nvt", "--temperature", 40),
    "npt stochastic": (
        "--ensemble", "npt", "--temperature", 40, "--pressure", 0.1, "--barostat", "stochastic", "--thermostat",
        "langevin", "--compressibility", 1,
    ),
}  # fmt: skip
COMMON = (
    "--init-temperature", 60, "--seed", 5, "--timestep", 4, "--log-every", 3, "--trajectory-every", 5, "--skin", 0.15,
)  # fmt: skip


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


def launch(n_ranks: int, *words: object, cwd: Path) -> Ended:
    return torchrun(n_ranks, "-m", "mdrun", *words, cwd=cwd).wait()


def same(one: Path, other: Path) -> None:
    for name in ("thermo.csv", "trajectory.extxyz"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    first, second = arrays(one), arrays(other)
    assert first.keys() == second.keys()
    for name, values in first.items():
        assert np.array_equal(values, second[name]), name


@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_many_body_runs_go_on_to_the_last_bit(tmp_path, precision):
    ase.io.write(tmp_path / "silicon.xyz", bulk("Si", cubic=True) * 2)
    words = ("silicon.xyz", "--precision", precision, "--init-temperature", 2000, "--seed", 5, "--skin", 0.1)
    call("simulate", *words, "--steps", 40, "--out", "whole", cwd=tmp_path).expect(0)
    call("simulate", *words, "--steps", 23, "--out", "parts", cwd=tmp_path).expect(0)
    call("resume", "parts", "--steps", 40, cwd=tmp_path).expect(0)
    whole, parts = arrays(tmp_path / "whole"), arrays(tmp_path / "parts")
    assert all(np.array_equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize("name", ENSEMBLES)
def test_ranks_go_on_to_the_last_bit_and_other_numbers_of_them_nearly(folder, tmp_path, name):
    words = (folder / "argon.xyz", *ENSEMBLES[name], *COMMON)
    launch(2, "simulate", *words, "--steps", 40, "--out", "whole", cwd=tmp_path).expect(0)
    launch(2, "simulate", *words, "--steps", 23, "--out", "parts", cwd=tmp_path).expect(0)
    for other in ("three", "one"):
        shutil.copytree(tmp_path / "parts", tmp_path / other)
    launch(2, "resume", "parts", "--steps", 40, cwd=tmp_path).expect(0)
    same(tmp_path / "whole", tmp_path / "parts")
    launch(3, "resume", "three", "--steps", 40, cwd=tmp_path).expect(0)
    call("resume", "one", "--steps", 40, cwd=tmp_path).expect(0)
    for other in ("three", "one"):
        assert np.abs(arrays(tmp_path / other)["positions"] - arrays(tmp_path / "whole")["positions"]).max() < 1e-8
        assert steps_of(tmp_path / other) == steps_of(tmp_path / "whole")


def test_stops_leave_no_mark_on_the_grid_of_rows_and_frames(folder, tmp_path):
    words = (folder / "argon.xyz", "--seed", 1, "--init-temperature", 40, "--log-every", 4, "--trajectory-every", 4)
    call("simulate", *words, "--steps", 14, "--out", "run", cwd=tmp_path).expect(0)
    for steps in (28, 43, 100):
        call("resume", "run", "--steps", steps, cwd=tmp_path).expect(0)
    frames = ase.io.read(tmp_path / "run/trajectory.extxyz", ":")
    assert [frame.info["step"] for frame in frames] == [*range(0, 101, 4)]
    assert steps_of(tmp_path / "run") == [*range(0, 101, 4)]
    ranks = (tmp_path / "run/ranks.csv").read_text().splitlines()[1:]
    assert [int(line.split(",")[0]) for line in ranks] == [*range(0, 101, 4)]
    before = {
        path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.suffix in (".csv", ".extxyz")
    }
    again = call("resume", "run", cwd=tmp_path).expect(0)
    assert "going on at step 100 of 100" in again.out
    assert before == {name: (tmp_path / "run" / name).read_bytes() for name in before}
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert (status["state"], status["step"]) == ("finished", 100)


def test_one_command_line_starts_and_goes_on(folder, tmp_path):
    words = (folder / "argon.xyz", "--init-temperature", 40, "--out", "run", "--resume")
    call("simulate", *words, "--steps", 10, cwd=tmp_path).expect(0)
    seed = json.loads(str(np.load(tmp_path / "run/checkpoint.npz")["meta"]))["settings"]["seed"]
    on = call("simulate", *words, "--steps", 20, cwd=tmp_path).expect(0)
    assert "going on at step 10 of 20" in on.out
    assert json.loads(str(np.load(tmp_path / "run/checkpoint.npz")["meta"]))["settings"]["seed"] == seed
    assert json.loads((tmp_path / "run/status.json").read_text())["step"] == 20


def test_a_run_killed_before_its_first_checkpoint_starts_again(folder, tmp_path):
    words = (folder / "argon.xyz", "--out", "run", "--checkpoint-every", 0, "--steps", 5)
    call("simulate", *words, cwd=tmp_path).expect(0)
    refused = call("simulate", *words, "--resume", cwd=tmp_path).expect(2)
    assert "finished without a checkpoint" in refused.err
    status = json.loads((tmp_path / "run/status.json").read_text())
    (tmp_path / "run/status.json").write_text(json.dumps(status | {"state": "running"}))
    refused = call("simulate", *words, "--resume", cwd=tmp_path).expect(2)  # it was to have none: all there is is this
    assert "made 5 steps without a checkpoint" in refused.err
    assert "--overwrite" in refused.err
    refused = call("resume", "run", cwd=tmp_path).expect(2)
    assert "holds no checkpoint" in refused.err
    words = (*words[:3], "--checkpoint-every", "15min", "--steps", 5)
    call("simulate", *words, "--overwrite", cwd=tmp_path).expect(0)
    (tmp_path / "run/checkpoint.npz").unlink()
    status = json.loads((tmp_path / "run/status.json").read_text())
    for ending, code in (({"state": "failed", "exit_code": 3}, 2), ({"state": "running"}, 0)):
        (tmp_path / "run/status.json").write_text(json.dumps(status | ending))
        ended = call("simulate", *words, "--resume", cwd=tmp_path).expect(code)
        assert ("became unphysical after step 5" in ended.err) == (code == 2)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/precious.txt").write_text("mine")
    refused = call("simulate", folder / "argon.xyz", "--resume", "--out", "other", cwd=tmp_path).expect(2)
    assert "holds no run" in refused.err
    assert (tmp_path / "other/precious.txt").read_text() == "mine"


def test_what_is_solved_changes_only_where_that_is_allowed(folder, tmp_path):
    words = (folder / "argon.xyz", "--init-temperature", 40, "--steps", 10, "--out", "run")
    call("simulate", *words, cwd=tmp_path).expect(0)
    before = (tmp_path / "run/thermo.csv").read_bytes(), (tmp_path / "run/config.toml").read_bytes()
    refused = call("resume", "run", "--steps", 20, "--timestep", 2, cwd=tmp_path).expect(2)
    assert "--timestep from 1.0 to 2.0" in refused.err
    assert "--allow-changes timestep" in refused.err
    refused = call("resume", "run", "--steps", 5, cwd=tmp_path).expect(2)
    assert "has made 10" in refused.err
    model = "lj:epsilon=0.02,sigma=3.4,cutoff=8.5"
    refused = call("resume", "run", "--steps", 20, "--model", model, cwd=tmp_path).expect(2)
    assert "--model from" in refused.err
    assert before == ((tmp_path / "run/thermo.csv").read_bytes(), (tmp_path / "run/config.toml").read_bytes())
    allowed = ("--allow-changes", "model, timestep", "--timestep", 2)
    on = call("resume", "run", "--steps", 20, *allowed, cwd=tmp_path).expect(0)
    assert "changed at step 10: --timestep from 1.0 to 2.0" in on.out


def test_time_goes_on_where_it_was_when_the_time_step_changes(folder, tmp_path):
    """Steps of 2 fs up to 20, of 0.5 fs up to 46 with a stop on the way, of 1 fs up to 0.1 ps in all: step 93."""
    names = ("a.extxyz", "a.traj", "a.h5md", "a.dump")
    trajectories = [word for name in names for word in ("--trajectory", name)]
    words = (folder / "argon.xyz", "--init-temperature", 40, "--log-every", 3, "--trajectory-every", 3, *trajectories)
    call("simulate", *words, "--timestep", 2, "--steps", 20, "--out", "run", cwd=tmp_path).expect(0)
    change = ("--allow-changes", "timestep", "--timestep")
    call("resume", "run", *change, 0.5, "--steps", 31, cwd=tmp_path).expect(0)
    call("resume", "run", "--steps", 46, cwd=tmp_path).expect(0)
    refused = call("resume", "run", *change, 1, "--time", 0.05, cwd=tmp_path).expect(2)
    assert "has made 46. Raise --time" in refused.err
    on = call("resume", "run", *change, 1, "--time", 0.1, cwd=tmp_path).expect(0)
    assert "going on at step 46 of 93" in on.out
    assert "eV/atom over 0.047 ps" in on.out  # what this process made
    times = np.cumsum([0.0, *[0.002] * 20, *[0.0005] * 26, *[0.001] * 47])
    assert steps_of(tmp_path / "run") == [*range(0, 94, 3)]
    with (tmp_path / "run/thermo.csv").open() as file:
        found = [float(row["time_ps"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose(found, times[::3], rtol=1e-12)
    for name in names:
        frames = list(read_frames(tmp_path / "run" / name))
        assert [frame.step for frame in frames] == [*range(0, 94, 3)]
        assert [frame.time_ps for frame in frames] == found, name
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert (status["step"], status["n_steps"]) == (93, 93)
    assert status["time_ps"] == pytest.approx(0.1)
    assert "step: 93 of 93 (100.0%), 0.1 ps" in call("status", "run", cwd=tmp_path).expect(0).out


def test_another_structure_in_the_place_of_the_first_is_refused(tmp_path):
    """By whoever names it; without what a run keeps of its own, by ``resume`` too."""
    ase.io.write(tmp_path / "argon.xyz", pfcc(3, 3, 3))
    call("simulate", "argon.xyz", "--steps", 3, "--out", "run", cwd=tmp_path).expect(0)
    heavy = pfcc(3, 3, 3)
    heavy.set_masses(np.where(np.arange(len(heavy)) == 4, 41.0, heavy.get_masses()))
    for is_kept in (True, False):
        words = ("simulate", "argon.xyz", "--resume", "--out", "run") if is_kept else ("resume", "run")
        if not is_kept:
            (tmp_path / "run/structure.npz").unlink()
        ase.io.write(tmp_path / "argon.xyz", pfcc(3, 3, 2))
        refused = call(*words, "--steps", 5, cwd=tmp_path).expect(2)
        assert "is not the structure that the run began with" in refused.err
        ase.io.write(tmp_path / "argon.xyz", heavy)
        refused = call(*words, "--steps", 5, cwd=tmp_path).expect(2)
        assert "atom 4 has another mass" in refused.err


@pytest.mark.parametrize("damage", ["half", "letter", "one byte", "missing"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(folder, tmp_path, damage):
    words = (folder / "argon.xyz", "--init-temperature", 40, "--seed", 3, "--log-every", 2, "--out", "run")
    call("simulate", *words, "--checkpoint-every", 4, "--steps", 8, cwd=tmp_path).expect(0)
    call("simulate", *words[:-1], "whole", "--steps", 12, cwd=tmp_path).expect(0)
    newest = tmp_path / "run/checkpoint.npz"
    content = newest.read_bytes()
    middle = len(content) // 2
    spoiled = {
        "half": content[:middle],
        "letter": b"a",
        "one byte": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
    }
    newest.unlink()
    if damage in spoiled:
        newest.write_bytes(spoiled[damage])
    on = call("resume", "run", "--steps", 12, cwd=tmp_path).expect(0)
    assert "going on at step 4 of 12" in on.out
    assert ("checkpoint.previous.npz" in on.out) == (damage in spoiled)
    assert (tmp_path / "run/thermo.csv").read_bytes() == (tmp_path / "whole/thermo.csv").read_bytes()
    for name in ("checkpoint.npz", "checkpoint.previous.npz"):
        (tmp_path / "run" / name).write_bytes(b"a")
    refused = call("resume", "run", "--steps", 12, cwd=tmp_path).expect(2)
    assert "Start afresh" in refused.err


def test_after_a_fallback_the_whole_checkpoint_outlives_a_kill_between_the_renames(folder, tmp_path, monkeypatch):
    words = (folder / "argon.xyz", "--init-temperature", 40, "--seed", 3, "--log-every", 2, "--out", "run")
    call("simulate", *words, "--checkpoint-every", 4, "--steps", 8, cwd=tmp_path).expect(0)
    run, replace = tmp_path / "run", os.replace
    whole = (run / "checkpoint.previous.npz").read_bytes()
    (run / "checkpoint.npz").write_bytes(b"damaged")

    def broken_off(source, target):
        if Path(source).name.startswith(".checkpoint.npz"):  # all renames before it are made
            raise OSError("killed")
        replace(source, target)

    monkeypatch.setattr(os, "replace", broken_off)
    call("resume", "run", "--steps", 12, cwd=tmp_path).expect(1)
    monkeypatch.undo()
    assert (run / "checkpoint.previous.npz").read_bytes() == whole
    assert (run / "checkpoint.damaged.npz").read_bytes() == b"damaged"
    assert "going on at step 4 of 12" in call("resume", "run", "--steps", 12, cwd=tmp_path).expect(0).out
    call("simulate", *words, "--steps", 1, "--overwrite", cwd=tmp_path).expect(0)
    assert not (run / "checkpoint.damaged.npz").exists()


@pytest.mark.parametrize("ends", [75, 0])
def test_what_another_command_left_is_never_gone_on_with_nor_replaced_unasked(folder, tmp_path, ends):
    """Both take STRUCTURE.run where no other is named."""
    how = ("--steps", 5, "--fmax", 1e-9) if ends else ("--fmax", 10)
    call("relax", folder / "argon.xyz", *how, cwd=tmp_path).expect(ends)
    before = {path.name: path.read_bytes() for path in (tmp_path / "argon.run").iterdir()}
    refused = call("simulate", folder / "argon.xyz", "--resume", cwd=tmp_path).expect(2)
    assert "holds what mdrun relax left" in refused.err
    assert "--overwrite" in refused.err
    refused = call("resume", "argon.run", cwd=tmp_path).expect(2)
    assert "Go on with mdrun relax argon.run/relaxed.extxyz" in refused.err
    assert {path.name: path.read_bytes() for path in (tmp_path / "argon.run").iterdir()} == before
    call("simulate", folder / "argon.xyz", "--steps", 1, "--overwrite", cwd=tmp_path).expect(0)
    assert not (tmp_path / "argon.run/relaxed.extxyz").exists()


def test_a_checkpoint_that_would_run_code_is_refused_and_runs_none(folder, tmp_path):
    call("simulate", folder / "argon.xyz", "--steps", 3, "--out", "run", cwd=tmp_path).expect(0)

    class Marker:
        def __reduce__(self):
            return Path.touch, (tmp_path / "marker",)

    with np.load(tmp_path / "run/checkpoint.npz") as file:
        kept = {name: file[name] for name in file.files}
    np.savez(tmp_path / "run/checkpoint.npz", **{**kept, "masses": np.array([Marker()], dtype=object)})
    refused = call("resume", "run", "--steps", 5, cwd=tmp_path).expect(2)
    assert "no whole checkpoint" in refused.err
    assert not (tmp_path / "marker").exists()


def forged(path: Path, **changes: object) -> None:
    """A checkpoint with other settings or places of files, and the checksum that goes with them."""
    with np.load(path, allow_pickle=False) as file:
        found = {name: file[name] for name in file.files if name != "checksum"}
    meta = json.loads(str(found.pop("meta")))
    for name, value in changes.items():
        meta[name] |= value
    npz.write(path, meta, found)


@pytest.mark.parametrize("has_config", [True, False])
def test_a_checkpoint_chooses_no_model_for_a_run_that_names_none(folder, tmp_path, has_config):
    words = (folder / "argon.xyz", "--init-temperature", 40, "--seed", 3, "--out", "run", "--checkpoint-every", 4)
    call("simulate", *words, "--steps", 8, cwd=tmp_path).expect(0)
    (tmp_path / "evil.py").write_text("open('ran', 'w')\nfrom mdrun.potentials.registry import load_model\n"
                                      "def make(numbers): return load_model('lj', numbers)")  # fmt: skip
    evil = str(tmp_path / "evil.py")
    inputs = {evil: digests.of_file(evil)}
    forged(tmp_path / "run/checkpoint.npz", settings={"model": f"{evil}:make", "trust_model": True}, inputs=inputs)
    if not has_config:
        (tmp_path / "run/config.toml").write_text("")
    refused = call("simulate", *words, "--steps", 12, "--resume", cwd=tmp_path).expect(2)
    assert "evil.py:make to lj" in " ".join(refused.err.split())
    assert not (tmp_path / "ran").exists()


def test_a_place_in_the_middle_of_a_line_is_none(folder, tmp_path):
    words = (folder / "argon.xyz", "--init-temperature", 40, "--seed", 3, "--out", "run", "--checkpoint-every", 4)
    call("simulate", *words, "--steps", 8, cwd=tmp_path).expect(0)
    before = (tmp_path / "run/thermo.csv").read_bytes()
    forged(tmp_path / "run/checkpoint.npz", outputs={"thermo.csv": 7})
    refused = call("resume", "run", "--steps", 12, cwd=tmp_path).expect(2)
    assert "thermo.csv has no end of a line where the checkpoint saw one" in " ".join(refused.err.split())
    assert (tmp_path / "run/thermo.csv").read_bytes() == before


def test_outputs_that_lost_what_the_checkpoint_saw_are_refused(folder, tmp_path):
    call("simulate", folder / "argon.xyz", "--steps", 3, "--out", "run", cwd=tmp_path).expect(0)
    (tmp_path / "run/thermo.csv").write_text("step\n")
    refused = call("resume", "run", "--steps", 5, cwd=tmp_path).expect(2)
    assert "thermo.csv has 5 bytes where the checkpoint saw" in refused.err


def steps_of(run: Path) -> list[int]:
    return [int(line.split(",")[0]) for line in (run / "thermo.csv").read_text().splitlines()[1:]]


def test_a_run_goes_on_with_the_backend_that_it_had(folder, tmp_path):
    words = (folder / "argon.xyz", *ENSEMBLES["langevin"], *COMMON, "--device", "cpu", "--backend", "torch")
    call("simulate", *words, "--steps", 40, "--out", "whole", cwd=tmp_path).expect(0)
    call("simulate", *words, "--steps", 23, "--out", "parts", cwd=tmp_path).expect(0)
    ended = call("resume", "parts", "--steps", 40, cwd=tmp_path)
    assert "bit for bit" not in ended.expect(0).out
    same(tmp_path / "parts", tmp_path / "whole")


def test_a_run_of_the_torch_backend_goes_on_with_the_other(folder, tmp_path):
    """As from a GPU to a CPU: what differs is rounding."""
    words = (folder / "argon.xyz", *ENSEMBLES["langevin"], *COMMON, "--device", "cpu")
    call("simulate", *words, "--steps", 40, "--out", "whole", cwd=tmp_path).expect(0)
    call("simulate", *words, "--steps", 23, "--backend", "torch", "--out", "parts", cwd=tmp_path).expect(0)
    ended = call("resume", "parts", "--steps", 40, "--device", "cpu", "--backend", "numba", cwd=tmp_path)
    told = " ".join(ended.expect(0).out.split())
    assert "not bit for bit the run that was stopped: backend numba, torch before" in told
    assert np.abs(arrays(tmp_path / "parts")["positions"] - arrays(tmp_path / "whole")["positions"]).max() < 1e-8
    assert steps_of(tmp_path / "parts") == steps_of(tmp_path / "whole")


NAMES = ("thermo.csv", "ranks.csv", "a.extxyz", "a.traj", "a.h5md", "a.dump")


def spoil(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "head":
        path.write_bytes(b"-" * 48 + content[48:])
    else:
        path.write_bytes(content[: len(content) // 3])


@pytest.mark.parametrize(
    ("name", "how"),
    [*((name, "gone") for name in NAMES), *((name, "short") for name in NAMES), ("a.traj", "head"), ("a.h5md", "head")],
)
def test_a_file_that_is_refused_leaves_all_others_as_they_were(folder, tmp_path, name, how):
    """All of them are to be cut back: the run made more than its checkpoint knows."""
    names = [word for trajectory in NAMES[2:] for word in ("--trajectory", trajectory)]
    words = (folder / "argon.xyz", *COMMON, *names, "--checkpoint-every", 10, "--out", "run")
    call("simulate", *words, "--steps", 20, cwd=tmp_path).expect(0)
    run = tmp_path / "run"
    (run / "checkpoint.npz").unlink()  # left is that of step 10
    spoil(run / name, how)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    refused = call("resume", "run", "--steps", 30, cwd=tmp_path).expect(2)
    assert name in refused.err
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
