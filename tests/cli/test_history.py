"""Every start of a run is told, in ``status.json``, in its checkpoints and by ``mdrun status``."""

from __future__ import annotations

import json
import socket
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
import pytest

from mdrun import __version__
from mdrun.run.history import MOST_STARTS
from tests.cli.launcher import LIMIT_S, call, start, torchrun
from tests.systems import pfcc

WORDS = ("argon.xyz", "--init-temperature", 40, "--seed", 3, "--device", "cpu", "--threads", 1, "--log-every", 10)


@pytest.fixture
def folder(tmp_path) -> Path:
    ase.io.write(tmp_path / "argon.xyz", pfcc(3, 3, 3))
    return tmp_path


def told(run: Path) -> list[dict[str, Any]]:
    return json.loads((run / "status.json").read_text())["history"]


def kept(run: Path) -> list[dict[str, Any]]:
    with np.load(run / "checkpoint.npz", allow_pickle=False) as file:
        return json.loads(str(file["meta"]))["history"]


def wait_for_step(run: Path, step: int) -> None:
    """Until a checkpoint beyond that step is told of."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        if (run / "status.json").exists():
            status = json.loads((run / "status.json").read_text())
            if (status["checkpoint_step"] or 0) > step:
                return
        time.sleep(0.01)
    pytest.fail(f"no checkpoint after step {step}")


def test_starts_on_other_ranks_with_another_time_step_and_after_a_kill_are_all_told(folder):
    run = folder / "run"
    call("simulate", *WORDS, "--steps", 20, "--out", "run", cwd=folder).expect(0)
    torchrun(2, "-m", "mdrun", "resume", "run", "--steps", 40, cwd=folder).wait().expect(0)
    change = ("--allow-changes", "timestep", "--timestep", 2)
    killed = start("resume", "run", *change, "--steps", 10**7, "--checkpoint-every", 50, cwd=folder)
    wait_for_step(run, 49)
    killed.kill()
    last = json.loads((run / "status.json").read_text())["step"]
    torchrun(3, "-m", "mdrun", "resume", "run", "--steps", 1, cwd=folder).wait()  # refused: it has made more
    assert len(told(run)) == 3
    torchrun(3, "-m", "mdrun", "resume", "run", "--max-hours", 1e-9, cwd=folder).wait()
    history = told(run)
    assert history == kept(run)
    assert [entry["ranks"] for entry in history] == [1, 2, 1, 3]
    assert [entry["step"] for entry in history[:3]] == [0, 20, 40]
    assert history[3]["step"] > 40
    assert history[3]["step"] % 50 == 0
    assert [entry["changes"] for entry in history] == [[], [], ["changed at step 40: --timestep from 1.0 to 2.0"], []]
    done = {"state": "finished", "reason": "all steps done", "exit_code": 0}
    died = {"state": "died", "step": last, "reason": None, "exit_code": None}
    assert [entry["before"] for entry in history] == [None, {**done, "step": 20}, {**done, "step": 40}, died]
    for entry in history:
        assert (entry["host"], entry["threads"], entry["mdrun"]) == (socket.gethostname(), 1, __version__)
        assert (entry["device"], entry["backend"]) == ("cpu", "numba")
    at = [datetime.fromisoformat(entry["at"]) for entry in history]
    assert at == sorted(at)
    assert all(moment.utcoffset().total_seconds() == 0 for moment in at)
    shown = [line.strip() for line in call("status", "run", cwd=folder).expect(0).out.splitlines()]
    lines = shown[shown.index("starts") + 1 :]
    assert len(lines) == 5
    assert "from step" in lines[0]
    assert "2 ranks of 1 thread, numba on cpu" in lines[2]
    assert "finished at step 40, exit code 0: all steps done" in lines[3]
    assert lines[3].endswith("--timestep from 1.0 to 2.0")
    assert f"died at step {last}" in lines[4]


def test_a_lost_status_costs_no_more_than_how_the_last_process_ended(folder):
    run = folder / "run"
    call("simulate", *WORDS, "--steps", 10, "--out", "run", cwd=folder).expect(0)
    call("resume", "run", "--steps", 20, cwd=folder).expect(0)
    before = told(run)
    (run / "status.json").unlink()
    call("resume", "run", "--steps", 30, cwd=folder).expect(0)
    history = told(run)
    assert history[:2] == before
    assert len(history) == 3
    assert history[2]["before"] == {"state": "unknown", "step": None, "reason": None, "exit_code": None}
    (run / "status.json").write_text("damaged")
    call("resume", "run", "--steps", 40, cwd=folder).expect(0)
    assert told(run)[:3] == history
    assert len(told(run)) == 4


def test_a_fallback_to_the_checkpoint_before_is_a_change(folder):
    run = folder / "run"
    call("simulate", *WORDS, "--steps", 20, "--checkpoint-every", 10, "--out", "run", cwd=folder).expect(0)
    (run / "checkpoint.npz").write_bytes(b"damaged")
    call("resume", "run", "--steps", 30, cwd=folder).expect(0)
    (change,) = told(run)[1]["changes"]
    assert "checkpoint.npz is no whole checkpoint" in change
    assert change.endswith("Going on from checkpoint.previous.npz, step 10.")
    assert told(run)[1]["step"] == 10


def test_a_run_that_begins_again_goes_on_with_its_history_and_one_that_replaces_it_does_not(folder):
    """Killed before its first checkpoint."""
    run = folder / "run"
    call("simulate", *WORDS, "--steps", 5, "--out", "run", cwd=folder).expect(0)
    (run / "checkpoint.npz").unlink()
    status = json.loads((run / "status.json").read_text())
    ended = {"state": "running", "reason": None, "exit_code": None}
    (run / "status.json").write_text(json.dumps(status | ended))
    call("simulate", *WORDS, "--steps", 7, "--out", "run", "--resume", cwd=folder).expect(0)
    assert [entry["step"] for entry in told(run)] == [0, 0]
    assert told(run)[1]["before"] == {"state": "died", "step": 5, "reason": None, "exit_code": None}
    call("simulate", *WORDS, "--steps", 5, "--out", "run", "--overwrite", cwd=folder).expect(0)
    assert [entry["before"] for entry in told(run)] == [None]
    assert len(kept(run)) == 1


def test_status_shows_the_last_five_of_many_and_refuses_what_is_no_history(folder):
    run = folder / "run"
    call("simulate", *WORDS, "--steps", 5, "--out", "run", cwd=folder).expect(0)
    status = json.loads((run / "status.json").read_text())
    many = [status["history"][0] | {"step": step} for step in range(MOST_STARTS)]
    (run / "status.json").write_text(json.dumps(status | {"history": many}))
    lines = [line.strip() for line in call("status", "run", cwd=folder).expect(0).out.splitlines()]
    assert f"the last 5 of {MOST_STARTS} starts" in lines
    assert [int(line.split()[1]) for line in lines[-5:]] == [995, 996, 997, 998, 999]
    call("resume", "run", "--steps", 6, cwd=folder).expect(0)
    assert [entry["step"] for entry in told(run)] == [*range(1, MOST_STARTS), 5]
    (run / "status.json").write_text(json.dumps(status | {"history": [{"at": "\x1b[2J"}]}))
    refused = call("status", "run", cwd=folder).expect(2)
    assert "run/status.json is not the status of a run: a start in its history has at" in refused.err
