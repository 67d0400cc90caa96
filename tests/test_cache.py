"""Compiled kernels survive between runs, whoever compiles at the same time and whatever becomes of the directory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ase.io
import pytest

from mdrun import cache
from tests.cli.launcher import start
from tests.systems import pfcc

KERNEL = """
from numba import njit

@njit(cache=True)
def total(values):
    s = values[0] * 0
    for x in values:
        s += x
    return s
"""
# Says what the kernel gives for one type and how often it was compiled; waits around the writing of the index.
CHILD = """
import sys, time
from numba.core import caching
from mdrun.cache import keep_kernels
kept = keep_kernels()
dtype, before, after = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
write = caching.IndexDataCacheFile._save_index

def slow(self, overloads):
    time.sleep(before)
    write(self, overloads)
    time.sleep(after)

caching.IndexDataCacheFile._save_index = slow
import numpy, kernel
print(kernel.total(numpy.arange(5, dtype=dtype)), sum(kernel.total.stats.cache_misses.values()))
print(kept)
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "kernel.py").write_text(KERNEL)
    return tmp_path


def child(folder: Path, dtype: str, before: float = 0, after: float = 0, **env: str) -> subprocess.Popen:
    """A process that compiles the kernel for one type and keeps it under ``folder / "cache"``."""
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    where = {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": os.pathsep.join([str(folder), os.getcwd()])}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, dtype, str(before), str(after)], env=kept | where | env, cwd=folder, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip


def answer(process: subprocess.Popen) -> tuple[float, int, str]:
    """What the kernel gave, how often it was compiled, and where it was kept."""
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    numbers, kept = out.splitlines()
    total, misses = numbers.split()
    return float(total), int(misses), kept


def test_a_kernel_is_compiled_once_and_loaded_ever_after(folder):
    assert answer(child(folder, "float64")) == (10, 1, str(folder / "cache" / "mdrun"))
    assert answer(child(folder, "float64"))[:2] == (10, 0)
    assert not (folder / "__pycache__").exists() or not list((folder / "__pycache__").glob("*.nb*"))
    assert (folder / "cache" / "mdrun").stat().st_mode & 0o777 == 0o700


def test_one_kernel_compiled_for_two_types_at_once_serves_both(folder):
    """Both have read the index before either writes it, and the first to write it is the last to write its code.

    Numba alone loads the one's code as the other's ever after, and stops with "can't unbox array".
    """
    both = [child(folder, "float64", after=8), child(folder, "float32", before=4)]
    assert [answer(process)[:2] for process in both] == [(10, 1), (10, 1)]
    for dtype in ("float64", "float32", "float64", "float32"):
        assert answer(child(folder, dtype))[0] == 10
    assert answer(child(folder, "float64"))[1] == answer(child(folder, "float32"))[1] == 0


FORCES = """
import hashlib
from mdrun.cache import keep_kernels
keep_kernels()
import torch
from ase.build import bulk
from mdrun.potentials.stillinger_weber import StillingerWeber
from tests.systems import evaluate
atoms = bulk("Si", cubic=True) * 6
atoms.rattle(0.1, seed=1)
print(hashlib.sha256(evaluate(atoms, StillingerWeber.load(None, (14,))).forces.tobytes()).hexdigest())
"""


def test_kernels_that_were_compiled_and_loaded_give_the_same_bits(tmp_path):
    command = [sys.executable, "-c", FORCES]
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    compiled, loaded = (subprocess.run(command, env=env, capture_output=True, text=True, check=True) for _ in range(2))
    assert compiled.stdout == loaded.stdout


@pytest.mark.parametrize("damage", ["index", "code", "both"])
def test_damaged_files_are_written_anew(folder, damage):
    answer(child(folder, "float64"))
    for path in (folder / "cache").rglob("*.nb*"):
        if damage == "both" or (path.suffix == ".nbi") == (damage == "index"):
            path.write_bytes(path.read_bytes()[:100])
    assert answer(child(folder, "float64"))[:2] == (10, 1)
    assert answer(child(folder, "float64"))[:2] == (10, 0)


def test_a_changed_source_is_compiled_anew(folder):
    answer(child(folder, "float64"))
    (folder / "kernel.py").write_text(KERNEL.replace("s += x", "s += 2 * x"))
    assert answer(child(folder, "float64"))[:2] == (20, 1)


def test_a_full_disk_ends_no_run(folder, monkeypatch):
    """No file may grow beyond nothing, as on a disk without room."""
    limited = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + CHILD.replace(
        "import numpy, kernel", "import numpy, kernel; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    )
    monkeypatch.setitem(globals(), "CHILD", limited)
    assert answer(child(folder, "float64"))[:2] == (10, 1)
    assert answer(child(folder, "float64"))[:2] == (10, 1)


def test_the_directory_that_the_user_named_is_taken(folder):
    assert answer(child(folder, "float64", NUMBA_CACHE_DIR=str(folder / "mine")))[2] == str(folder / "mine")
    assert list((folder / "mine").rglob("*.nbc"))


def test_without_any_directory_kernels_are_compiled_and_not_kept(folder):
    (folder / "file").write_text("no directory")
    nowhere = {"XDG_CACHE_HOME": str(folder / "file"), "TMPDIR": str(folder / "temporary")}
    (folder / "temporary").mkdir()
    (folder / "temporary" / f"mdrun-{os.getuid()}").write_text("no directory either")
    assert answer(child(folder, "float64", **nowhere)) == (10, 1, "None")


def test_without_a_home_the_temporary_directory_serves(monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert list(cache.candidates({})) == [Path(tempfile.gettempdir()) / f"mdrun-{os.getuid()}"]
    assert list(cache.candidates({"XDG_CACHE_HOME": "relative"}))[-1].name == f"mdrun-{os.getuid()}"


def test_a_directory_that_others_may_write_to_is_not_trusted(tmp_path):
    """Whoever writes there chooses what this user executes."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert not cache._is_ours(tmp_path / "open")
    (tmp_path / "open").chmod(0o755)
    assert cache._is_ours(tmp_path / "open")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_processes_that_start_at_once_fill_one_cache_that_serves_the_next(tmp_path):
    """Two runs in double and two in mixed from nothing; a fifth and sixth then write no file more."""
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    ase.io.write(tmp_path / "crystal.extxyz", pfcc(2, 2, 2))

    def run(name: str, precision: str):
        options = ("--steps", 2, "--seed", 1, "--precision", precision, "--out", tmp_path / name)
        return start("simulate", "crystal.extxyz", *options, cwd=tmp_path, env=env)

    for program in [run(f"{precision}{k}", precision) for k in (0, 1) for precision in ("double", "mixed")]:
        program.wait(1000).expect(0)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nbc")}
    assert kept
    for precision in ("double", "mixed"):
        run(f"{precision}2", precision).wait().expect(0)
        same = (tmp_path / f"{precision}{k}" / "thermo.csv" for k in (0, 1, 2))
        assert len({path.read_text() for path in same}) == 1
    newer = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nbc")}
    assert newer == kept
