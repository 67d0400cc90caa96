"""``mdrun status``: what a directory says of its run, and what it does not."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import psutil
import pytest

from mdrun.run.status import SILENT_S, outlook
from tests.cli.launcher import MDRUN, Ended, call, environment

HERE = psutil.Process()
RUNNING = {
    "state": "running", "step": 1200, "n_steps": 10000, "checkpoint_step": 1000, "exit_code": None, "reason": None,
    "n_atoms": 500, "ranks": 2, "threads": 1, "steps_per_second": 400.0, "seconds_left": 22.0,
    "estimated_end": "2026-12-02T14:00:00+00:00", "host": socket.gethostname(), "pid": HERE.pid,
    "process_began": HERE.create_time(),
}  # fmt: skip


def shown(folder: Path, **changes: object) -> Ended:
    (folder / "a.run").mkdir(exist_ok=True)
    if changes.get("checkpoint_step", 1):
        (folder / "a.run" / "checkpoint.npz").touch()
    (folder / "a.run" / "status.json").write_text(json.dumps(RUNNING | changes))
    return call("status", "a.run", cwd=folder)


def test_a_run_at_work(tmp_path):
    lines = shown(tmp_path).expect(0).out.splitlines()
    last = lines.pop()
    assert lines == [
        "state: running",
        "step: 1200 of 10000 (12.0%)",
        "speed: 400.0 steps/s, 2e+05 atom-steps/s",
        "left: 0:00:22, until 2026-12-02T14:00:00+00:00",
        "checkpoint: step 1000",
        f"process: {HERE.pid} on {socket.gethostname()}, 2 ranks of 1 thread",
    ]
    assert re.fullmatch(r"last word: 0:00:0\d ago", last)


@pytest.mark.parametrize("gone", [{"pid": 2**22 + 1}, {"process_began": HERE.create_time() - 100}, {"pid": -5}])
def test_a_process_that_is_gone_or_whose_number_another_has_now(tmp_path, gone):
    lines = shown(tmp_path, **gone).expect(0).out.splitlines()
    assert lines[0] == "state: died"
    assert lines[-1] == "to go on: mdrun resume a.run"
    assert not any(line.startswith("left:") for line in lines)


def test_a_process_on_another_host_is_believed_until_it_is_silent_for_long(tmp_path):
    assert shown(tmp_path, host="node07").expect(0).out.startswith("state: running\n")
    before = (tmp_path / "a.run/status.json").stat().st_mtime - SILENT_S - 10
    os.utime(tmp_path / "a.run/status.json", (before, before))
    silent = call("status", "a.run", cwd=tmp_path).expect(0).out
    assert silent.startswith("state: silent\n")
    assert "last word: 0:10:1" in silent


def test_a_run_that_left_no_checkpoint_starts_again(tmp_path):
    ended = shown(tmp_path, state="stopped", reason="SIGTERM", exit_code=75, checkpoint_step=None).expect(0)
    assert "reason: SIGTERM\nexit code: 75\n" in ended.out
    assert "\ncheckpoint: none\n" in ended.out
    assert ended.out.splitlines()[-1] == "to go on: start it again: it left no checkpoint"


@pytest.mark.parametrize(
    ("command", "left", "way_on"),
    [
        ("simulate", ["checkpoint.npz"], "mdrun resume a.run"),
        ("simulate", ["checkpoint.previous.npz"], "mdrun resume a.run"),
        ("simulate", ["checkpoint.damaged.npz"], "start it again: it left no checkpoint"),
        ("relax", ["relaxed.extxyz"], "mdrun relax a.run/relaxed.extxyz, its options as before"),
        ("relax", [], "start it again: it left no relaxed.extxyz"),
    ],
)
@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_the_way_on_is_that_of_the_command_from_what_is_there(tmp_path, state, command, left, way_on):
    (tmp_path / "a.run").mkdir()
    for name in left:
        (tmp_path / "a.run" / name).touch()
    ended = shown(tmp_path, state=state, exit_code=75, checkpoint_step=None, command=command).expect(0)
    assert ended.out.splitlines()[-1] == f"to go on: {way_on}"


def test_a_finished_run_needs_nothing(tmp_path):
    text = shown(tmp_path, state="finished", step=10000, exit_code=0, reason="all steps done").expect(0).out
    assert "step: 10000 of 10000 (100.0%)\nreason: all steps done\n" in text
    assert "to go on" not in text


def test_a_status_of_before_these_names_existed_is_shown_as_far_as_it_goes(tmp_path):
    (tmp_path / "old.run").mkdir()
    (tmp_path / "old.run/status.json").write_text('{"state": "finished", "step": 7}')
    assert call("status", "old.run", cwd=tmp_path).expect(0).out == "state: finished\nstep: 7\ncheckpoint: none\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not the status of a run"),
        ("{", "is not the status of a run"),
        ("[1, 2]", "it holds no names"),
        ('{"state": 5, "step": 1}', "state is '5'"),
        ('{"state": "running", "step": "many"}', "step is 'many'"),
        ('{"state": "running", "step": true}', "step is 'True'"),
        ("[" * 100_000, "is not the status of a run"),
    ],
    ids=lambda value: value[:20],
)
def test_a_file_that_is_no_status(tmp_path, content, words):
    (tmp_path / "status.json").write_text(content)
    ended = call("status", tmp_path, cwd=tmp_path).expect(2)
    assert ended.err.startswith(f"mdrun: {tmp_path}/status.json ")
    assert words in ended.err
    assert ended.err.count("\n") == 1


def test_no_run_is_told_as_such(tmp_path):
    (tmp_path / "a file").touch()
    assert "nowhere does not exist" in call("status", "nowhere", cwd=tmp_path).expect(2).err
    assert "a file is a file" in call("status", "a file", cwd=tmp_path).expect(2).err
    assert "holds no run" in call("status", ".", cwd=tmp_path).expect(2).err


def test_a_terminal_gets_a_panel(tmp_path):
    import pexpect

    shown(tmp_path)
    text, code = pexpect.run(
        f"{MDRUN} status a.run", withexitstatus=True, cwd=str(tmp_path), env=environment({"TERM": "xterm-256color"}),
        timeout=60, encoding="utf-8",
    )  # fmt: skip
    assert code == 0
    assert "╭─ a.run" in text
    assert re.search(r"│ \S*step.*1200 of 10000", text)


def test_an_end_beyond_the_calendar_is_left_out():
    assert outlook(10, 0.0) == {"seconds_left": None, "estimated_end": None}
    assert outlook(10**18, 1e-3)["estimated_end"] is None
    assert outlook(100, 50.0)["seconds_left"] == 2.0
