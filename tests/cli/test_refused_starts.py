"""A start that is refused, whenever that is known, leaves the run that was there as it was, to the last byte."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
from pathlib import Path

import ase.io
import pytest

from mdrun.run.directory import CONFIG, RunDirectory
from tests.cli.launcher import call
from tests.systems import pfcc

PLUGIN = f"{Path(__file__).with_name('plugins.py')}:make"
# Models that are refused late: each is loaded before that is known.
LATE = """
import torch
from mdrun.errors import InputError
from mdrun.potentials.base import Forces

class Late:
    name, cutoff = "late", 4.0

    def __init__(self, way):
        self.way = way
        self.needs_all_nodes = way == "nodes"
        self.cutoff = float("nan") if way == "cutoff" else 4.0

    def __call__(self, domain, totals):
        if self.way == "call":
            raise InputError("this model can't compute that.")
        if self.way == "fault":
            raise RuntimeError("out of something")
        return Forces(torch.zeros((domain.n_owned, 3), dtype=torch.float64), 0.0, None)

def make(numbers, way):
    return Late(way)
"""
BEGINNINGS = {
    "no structure": ("simulate", "none.xyz"),
    "no model": ("simulate", "argon.xyz", "--model", "nonsense"),
    "other species": ("simulate", "argon.xyz", "--model", "emt"),
    "threads": ("simulate", "argon.xyz", "--threads", 4096),
    "atoms of frames": ("simulate", "argon.xyz", "--trajectory-atoms", "Xx"),
    "no such atoms": ("simulate", "argon.xyz", "--trajectory-atoms", "99999"),
    "precision of frames": ("simulate", "argon.xyz", "--trajectory-precision", "float32"),
    "strategy": ("simulate", "argon.xyz", "--model", "late.py:make,way=nodes", "--strategy", "halo"),
    "cutoff": ("simulate", "argon.xyz", "--model", "late.py:make,way=cutoff"),
    "first forces": ("simulate", "argon.xyz", "--model", "late.py:make,way=call"),
    "box": ("simulate", "argon.xyz", "--ensemble", "npt", "--temperature", 9, "--pressure", 0, "--freeze", "0-9999"),
    "no virial": ("relax", "argon.xyz", "--model", "late.py:make,way=none", "--cell", "full"),
    "all fixed": ("relax", "argon.xyz", "--freeze", "Ar"),
}
CONTINUATIONS = {
    "time step": ("--timestep", 0.5),
    "model": ("--model", "lj:epsilon=0.02,sigma=3.4,cutoff=8.5"),
    "fewer steps": ("--steps", 2),
    "first forces": ("--model", "late.py:make,way=call", "--allow-changes", "model"),
    "threads": ("--threads", 4096),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """With a run that went on from a checkpoint until it became unphysical."""
    path = tmp_path_factory.mktemp("refused")
    ase.io.write(path / "argon.xyz", pfcc(4, 2, 2))
    (path / "late.py").write_text(LATE)
    files = ("--trajectory", "a.extxyz", "--trajectory", "b.h5md", "--trajectory", "c.traj", "--trajectory-every", 1)
    words = ("--steps", 20, "--log-every", 1, "--checkpoint-every", 2, *files, "--out", "old.run")
    call("simulate", "argon.xyz", "--model", f"{PLUGIN},fails=nan,call=7", *words, cwd=path).expect(3)
    there = {item.name for item in (path / "old.run").iterdir()}
    assert {"last_good.extxyz", "blowup.extxyz", "checkpoint.npz", "checkpoint.previous.npz", "b.h5md"} <= there
    return path


@pytest.fixture
def old(folder) -> Path:
    """A copy of that run, in its place."""
    shutil.copytree(folder / "old.run", folder / "kept", dirs_exist_ok=True)
    yield folder / "old.run"
    shutil.rmtree(folder / "old.run")
    (folder / "kept").rename(folder / "old.run")


def content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", BEGINNINGS)
def test_a_run_that_would_have_replaced_another_is_refused_and_the_other_there(folder, old, name):
    before = content(old)
    ended = call(*BEGINNINGS[name], "--steps", 3, "--out", "old.run", "--overwrite", cwd=folder).expect(2)
    assert ended.err.count("mdrun: ") == 1
    assert content(old) == before


@pytest.mark.parametrize("name", BEGINNINGS)
def test_a_run_that_is_refused_leaves_no_directory(folder, name):
    call(*BEGINNINGS[name], "--steps", 3, "--out", "new.run", cwd=folder).expect(2)
    assert not (folder / "new.run").exists()


@pytest.mark.parametrize("name", CONTINUATIONS)
def test_a_run_that_would_have_gone_on_is_refused_and_all_that_it_left_there(folder, old, name):
    before = content(old)
    call("resume", "old.run", *CONTINUATIONS[name], cwd=folder).expect(2)
    assert content(old) == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--trajectory-atoms", "0-3", "--allow-changes", "trajectory-atoms"), "would not be alike"),
        (("--trajectory-precision", "float32", "--allow-changes", "trajectory-precision"), "would not be alike"),
        (("--wrap", "--allow-changes", "wrap"), "would not be alike"),
        (("--init-temperature", 90, "--allow-changes", "init-temperature"), "velocities are drawn once"),
        (("--freeze", "0-3", "--allow-changes", "freeze"), "settled as a run begins"),
        (("--replicate", 2, 1, 1, "--allow-changes", "replicate"), "keeps its atoms"),
    ],
    ids=lambda value: value[0].strip("-") if isinstance(value, tuple) else "",
)
def test_what_can_not_change_is_refused_though_allowed(folder, old, words, why):
    """Frames of other atoms, or of numbers of another size, would have been garbage in a file of the first ones."""
    before = content(old)
    refused = call("simulate", "--config", old / CONFIG, *words, "--resume", cwd=folder).expect(2)
    told = " ".join(refused.err.split())
    assert f"{words[0]} from " in told
    assert why in told
    assert content(old) == before


@pytest.mark.parametrize("name", ["thermo.csv", "ranks.csv", "a.extxyz", "b.h5md", "c.traj"])
@pytest.mark.parametrize("harm", ["gone", "short"])
def test_what_lost_its_end_is_told_before_anything_is_cut(folder, old, name, harm):
    whole = (old / name).read_bytes()
    (old / name).unlink()
    if harm == "short":
        (old / name).write_bytes(whole[:10])
    before = content(old)
    assert name in call("resume", "old.run", cwd=folder).expect(2).err
    assert content(old) == before


def test_a_start_that_fails_by_itself_leaves_the_run_that_it_was_to_replace(folder, old):
    before = content(old)
    words = ("--model", "late.py:make,way=fault", "--steps", 3, "--out", "old.run", "--overwrite")
    assert "out of something" in call("simulate", "argon.xyz", *words, cwd=folder).expect(1).err
    assert content(old) == before


def test_a_run_that_begins_replaces_the_other_wholly_and_one_that_goes_on_its_evidence(folder, old):
    model = ("--model", f"{PLUGIN},fails=never", "--allow-changes", "model")
    call("resume", "old.run", *model, "--steps", 8, cwd=folder).expect(0)
    assert {"last_good.extxyz", "blowup.extxyz"}.isdisjoint(content(old))
    words = ("--steps", 3, "--checkpoint-every", 0, "--out", "old.run", "--overwrite")
    call("simulate", "argon.xyz", *words, cwd=folder).expect(0)
    files = {"thermo.csv", "trajectory.extxyz", "ranks.csv", "status.json", "config.toml", "structure.npz"}
    assert set(content(old)) == files


@pytest.mark.parametrize("n_moves", range(15))
def test_a_kill_between_any_two_moves_of_a_start_loses_nothing(old, n_moves, monkeypatch):
    """While files are set aside, and while they are put back."""
    before, replace, moves = content(old), os.replace, iter(range(n_moves))

    def until_killed(source, target):
        if next(moves, None) is None:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", until_killed)
    first = RunDirectory(old, [], overwrite=True)
    with contextlib.suppress(KeyboardInterrupt):
        first.take_over()
        (old / CONFIG).write_text("new")
        (old / "thermo.csv").write_text("new")
    first.release()
    moves = iter(range(n_moves % 5))
    with contextlib.suppress(KeyboardInterrupt):
        RunDirectory(old, [], overwrite=True).release()
    monkeypatch.undo()
    RunDirectory(old, [], overwrite=True).release()
    assert content(old) == before


@pytest.mark.parametrize("how", ["resume", "simulate"])
def test_a_run_whose_successor_was_killed_as_it_began_is_gone_on_with_by_command(folder, old, how, monkeypatch):
    before = content(old)

    def killed(*_):
        raise SystemExit(137)

    monkeypatch.setattr("mdrun.run.job.write_config", killed)
    call("simulate", "argon.xyz", "--steps", 3, "--out", "old.run", "--overwrite", cwd=folder).expect(137)
    monkeypatch.undo()
    gc.collect()  # and with the job its hold on the directory
    assert not (old / CONFIG).exists()
    told = " ".join(call("status", "old.run", cwd=folder).expect(0).out.split())
    assert "mdrun resume old.run" in told
    words = ("--steps", 8, "--model", f"{PLUGIN},fails=never", "--allow-changes", "model")
    if how == "resume":
        call("resume", "old.run", *words, cwd=folder).expect(0)
    else:
        files = ("--trajectory", "a.extxyz", "--trajectory", "b.h5md", "--trajectory", "c.traj")
        every = ("--trajectory-every", 1, "--log-every", 1)
        call("simulate", "argon.xyz", *files, *every, *words, "--out", "old.run", "--resume", cwd=folder).expect(0)
    assert (old / "thermo.csv").read_bytes().startswith(before["thermo.csv"][:100])


def test_a_directory_with_nothing_but_what_a_killed_start_left_is_begun_in(folder):
    (folder / "begun.run").mkdir()
    (folder / "begun.run/.config.toml.123").write_text("half")
    call("simulate", "argon.xyz", "--steps", 3, "--out", "begun.run", "--resume", cwd=folder).expect(0)
    assert not (folder / "begun.run/.config.toml.123").exists()


def test_trajectories_are_known_whatever_the_case_of_their_extension(folder):
    words = ("simulate", "argon.xyz", "--steps", 3, "--out", "capitals.run")
    call(*words, "--trajectory", "A.TRAJ", "--trajectory", "b.H5MD", cwd=folder).expect(0)
    call(*words, "--overwrite", cwd=folder).expect(0)
    assert {"A.TRAJ", "b.H5MD"}.isdisjoint(content(folder / "capitals.run"))


@pytest.mark.parametrize("keep", [False, True], ids=["replaces", "goes-on"])
def test_a_start_that_was_killed_is_taken_back_by_who_claims_the_directory_next(old, keep):
    before = content(old)
    first = RunDirectory(old, [], overwrite=True, trajectories=("d.dump",), keep=keep)
    first.take_over()
    assert "blowup.extxyz" not in {path.name for path in old.iterdir()}
    if not keep:
        (old / CONFIG).write_text('trajectory = ["d.dump"]\n')
        (old / "d.dump").write_text("new")
        (old / "thermo.csv").write_text("new")
    first.release()  # as a kill does
    RunDirectory(old, [], overwrite=True).release()
    assert content(old) == before
