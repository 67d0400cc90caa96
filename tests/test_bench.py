"""The benchmark's command line, and that its section for models compares what it says. No figure of time is judged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ase.build import bulk
from ase.neighborlist import neighbor_list

SCRIPT = Path(__file__).parents[1] / "scripts" / "bench.py"


def bench(*words: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "told"),
    [(("--sections", "modles"), "no such section: modles"), (("--sections", "peers"), "scripts/bench_peers.sh")],
)
def test_a_section_that_is_not_there_is_refused_before_any_work(words, told):
    done = bench(*words)
    assert done.returncode == 2
    assert told in done.stderr


def test_a_step_of_a_model_is_compared_with_the_bare_call_on_the_same_edges():
    """The section itself refuses forces that differ; that no edge beyond the cutoff counts is seen here."""
    pytest.importorskip("sevenn", reason="bash scripts/models.sh")
    done = bench("--sections", "models", "--sizes", "8", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if "|" in line]
    cost = [row for row in rows if len(row) == 6 and row[0] == "8"]
    assert [row[2] for row in cost] == ["wall", "processor"]
    perfect = bulk("NaCl", "rocksalt", a=5.64, cubic=True)
    shells = [len(neighbor_list("i", perfect, cutoff)) for cutoff in (4.5, 5.5)]  # between them lie 4.88 and 5.64 Å
    assert all(shells[0] < int(row[1]) <= shells[1] for row in cost)
    assert [row[0] for row in rows if len(row) == 5] == ["ranks", "---", "1", "2"]
