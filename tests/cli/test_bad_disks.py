"""Disks that are full or read-only, directories that go while the run is on: one message, and what was whole stays."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ase.io
import numpy as np
import pytest

from tests.cli.launcher import MDRUN, Ended, Program, call
from tests.systems import pfcc

ONLY = {
    "thermo.csv": ("--log-every", 1, "--trajectory-every", 0, "--checkpoint-every", 0),
    "trajectory.extxyz": ("--log-every", 0, "--trajectory-every", 1, "--checkpoint-every", 0),
    "checkpoint.npz": ("--log-every", 0, "--trajectory-every", 0, "--checkpoint-every", 1),
}
VANDAL = """
import shutil
from pathlib import Path

from mdrun.potentials.registry import load_model


class Vandal:
    def __init__(self, numbers, does, path, call):
        self.path, self.does, self.calls, self.call = Path(path), does, -1, int(call)
        self.model = load_model("lj", numbers, "double", "numba")
        self.cutoff = self.model.cutoff

    def __call__(self, domain, totals):
        self.calls += 1
        if self.calls == self.call:
            if self.does == "remove":
                shutil.rmtree(self.path)
            else:
                self.path.rename(self.path.with_name("elsewhere"))
            if self.does == "replace":
                self.path.mkdir()
        return self.model(domain, totals)


def make(numbers, does, path, call="7"):
    return Vandal(numbers, does, path, call)
"""


@pytest.fixture(scope="module")
def argon(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("disks")
    ase.io.write(path / "argon.xyz", pfcc(4, 2, 2))
    (path / "vandal.py").write_text(VANDAL)
    return path / "argon.xyz"


def told(ended: Ended, code: int) -> str:
    """The only message."""
    ended.expect(code)
    assert ended.err.startswith("mdrun: ")
    assert ended.err.count("\n") == 1
    return ended.err.removeprefix("mdrun: ").rstrip()


def check_checkpoints(directory: Path) -> list[int]:
    """Steps of the checkpoints that are there: whole, with nothing half written beside them."""
    steps = []
    for path in sorted(directory.glob("checkpoint*")):
        with np.load(path, allow_pickle=False) as file:
            assert np.isfinite(file["positions"]).all()
            steps.append(json.loads(str(file["meta"]))["step"])
    assert not [path.name for path in directory.iterdir() if path.name.startswith(".")]
    return steps


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """A stand-in for a full disk that needs no mount: writing beyond fails as it does there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ONLY)
def test_a_file_that_can_not_grow_ends_the_run_by_its_name(argon, tmp_path, name):
    size = 10_000 if name == "checkpoint.npz" else 30_000  # structure.npz fits in either
    with files_of_at_most(size):
        ended = call("simulate", argon, "--steps", 1000, *ONLY[name], "--out", "a.run", cwd=tmp_path)
    message = told(ended, 1)
    assert f"a.run/{name} can't be written: File too large" in message
    status = json.loads((tmp_path / "a.run/status.json").read_text())
    assert (status["state"], status["exit_code"], status["reason"]) == ("failed", 1, message)
    assert check_checkpoints(tmp_path / "a.run") == []


@pytest.mark.parametrize("does", ["remove", "rename", "replace"])
def test_a_directory_that_goes_ends_the_run(argon, tmp_path, does):
    out = tmp_path / "a.run"
    model = f"{argon.with_name('vandal.py')}:make,does={does},path={out}"
    ended = call("simulate", argon, "--model", model, "--steps", 10**6, "--log-every", 5, "--out", out, cwd=tmp_path)
    message = told(ended, 1)
    assert f"{out} can't be written" in message
    assert "removed or renamed" in message
    assert "status.json could not be written" in message
    if does == "replace":  # by what may be another run's
        assert list(out.iterdir()) == []
    if does != "remove":
        assert (tmp_path / "elsewhere/thermo.csv").read_text().splitlines()[-1].startswith("5,")


def test_a_directory_that_goes_is_missed_by_the_checkpoint_too(argon, tmp_path):
    out = tmp_path / "a.run"
    model = f"{argon.with_name('vandal.py')}:make,does=rename,path={out}"
    words = ("--log-every", 0, "--trajectory-every", 0, "--checkpoint-every", 3, "--steps", 10**6, "--out", out)
    message = told(call("simulate", argon, "--model", model, *words, cwd=tmp_path), 1)
    assert f"{out}/checkpoint.npz can't be written" in message
    assert check_checkpoints(tmp_path / "elsewhere") == [6, 3]


def test_what_a_killed_run_left_half_written_goes_with_the_next(argon, tmp_path):
    (tmp_path / "a.run").mkdir()
    for name in (".checkpoint.npz.123", ".status.json.123", ".a.h5md.123", ".word.abc", ".share.abc.0.npz"):
        (tmp_path / "a.run" / name).write_text("half of it")
    words = ("--steps", 1, "--trajectory", "a.h5md", "--out", "a.run")
    call("simulate", argon, *words, cwd=tmp_path).expect(0)  # nothing of a run is in the way
    assert not list((tmp_path / "a.run").glob(".*"))
    assert check_checkpoints(tmp_path / "a.run") == [1]


# On real disks, in a name space of our own


def can_mount() -> bool:
    return shutil.which("unshare") is not None and (
        subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode == 0
    )


needs_mounts = pytest.mark.skipif(not can_mount(), reason="no mounts of one's own on this system (unshare -Urm)")


def on_a_small_disk(folder: Path, size: str, before: str, *words: object) -> Ended:
    """``mdrun WORDS --out disk/a.run`` with so large a disk; what is on it in the end is copied to ``left``."""
    (folder / "disk").mkdir()
    script = (
        f"mount -t tmpfs -o size={size} none disk && mkdir disk/a.run && {before or 'true'} && "
        f'"$@" --out disk/a.run; code=$?; cp -a disk left; exit $code'
    )
    return Program("unshare", "-Urm", "sh", "-c", script, "sh", MDRUN, *words, cwd=folder).wait()


@needs_mounts
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in ONLY if n != "checkpoint.npz"]
                         + ["checkpoint.npz"])  # fmt: skip
def test_a_full_disk_ends_the_run_and_its_status_says_so(argon, tmp_path, name):
    ended = on_a_small_disk(tmp_path, "64k", "", "simulate", argon, "--steps", 1000, *ONLY[name])
    message = told(ended, 1)
    assert "can't be written: No space left on device. Make room" in message
    assert any(f"disk/a.run/{written} " in message for written in (name, *["ranks.csv"] * (name == "thermo.csv")))
    left = tmp_path / "left/a.run"
    status = json.loads((left / "status.json").read_text())
    assert (status["state"], status["exit_code"], status["reason"]) == ("failed", 1, message)
    steps = check_checkpoints(left)
    assert steps == ([2, 1] if name == "checkpoint.npz" else [])


@needs_mounts
@pytest.mark.slow
@pytest.mark.parametrize(("room", "name"), [("0", "config.toml"), ("4096", "status.json")])
def test_a_disk_that_is_full_from_the_start(argon, tmp_path, room, name):
    fill = f"head -c $((65536 - {room})) /dev/zero > disk/else"
    ended = on_a_small_disk(tmp_path, "64k", fill, "simulate", argon, "--steps", 10)
    assert f"disk/a.run/{name} can't be written: No space left on device" in told(ended, 1)


@needs_mounts
@pytest.mark.slow
@pytest.mark.parametrize("where", ["disk/a.run", "disk/not/yet"])
def test_a_read_only_disk_is_refused_before_any_work(argon, tmp_path, where):
    (tmp_path / "disk/a.run").mkdir(parents=True)
    script = 'mount -t tmpfs none disk && mkdir disk/a.run && mount -o remount,ro disk && exec "$@"'
    words = (MDRUN, "simulate", argon, "--steps", 10, "--out", where)
    ended = Program("unshare", "-Urm", "sh", "-c", script, "sh", *words, cwd=tmp_path).wait()
    message = told(ended, 2)
    assert where in message


@pytest.mark.slow
def test_a_full_disk_for_the_output_does_not_end_the_run(argon, tmp_path):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [MDRUN, "simulate", argon, "--steps", "3", "--out", "a.run"], cwd=tmp_path, stdout=full,
            stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert json.loads((tmp_path / "a.run/status.json").read_text())["state"] == "finished"
