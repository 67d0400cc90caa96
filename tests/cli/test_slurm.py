"""The job script of docs/slurm.md, word for word, with stand-ins for srun and scontrol."""

from __future__ import annotations

import inspect
import json
import re
import signal
import sys
import tomllib
from pathlib import Path

import ase.io
import pytest
import tomli_w

from mdrun.cli.simulate import simulate
from tests.cli.launcher import BIN, ROOT, Program, call, environment, is_free
from tests.cli.test_stopping import moves, wait_for
from tests.systems import pfcc

JOB = "4711"
SOON_S = 60.0
CAN_RESUME = "resume" in inspect.signature(simulate).parameters
TEXT = (ROOT / "docs" / "slurm.md").read_text(encoding="utf-8")
SCRIPT, CONFIG = (re.search(rf"^```{kind}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)[1] for kind in ("bash", "toml"))  # type: ignore[index]
# Starts the tasks of a step, passes signals on to them, and ends with the highest of their exit codes.
SRUN = f"""#!{sys.executable}
import os, signal, subprocess, sys
n = int(os.environ["SLURM_NTASKS"])
words = [word for word in sys.argv[1:] if {CAN_RESUME} or word != "--resume"]
step = {{"SLURM_STEP_NUM_TASKS": str(n), "SLURM_STEP_TASKS_PER_NODE": str(n), "SLURM_STEP_NODELIST": "localhost"}}
ranks = [
    subprocess.Popen(words, env={{**os.environ, **step, "SLURM_PROCID": str(r), "SLURM_LOCALID": str(r)}})
    for r in range(n)
]
signal.signal(signal.SIGUSR1, lambda number, frame: [rank.send_signal(number) for rank in ranks])
sys.exit(max(rank.wait() for rank in ranks))
"""
SCONTROL = """#!/bin/sh
echo "$@" >> scontrol.log
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    """A working directory with the script, what it runs, and the stand-ins in bin/."""
    ase.io.write(tmp_path / "argon.xyz", pfcc(4, 2, 2))
    (tmp_path / "job.sh").write_text(SCRIPT)
    (tmp_path / "bin").mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def submit(folder: Path) -> Program:
    assert is_free(20_000 + int(JOB))
    path = f"{folder}/bin:{BIN}:{environment()['PATH']}"
    return Program("bash", "job.sh", cwd=folder, env={"PATH": path, "SLURM_JOB_ID": JOB, "SLURM_NTASKS": "2"})


def requeued(folder: Path) -> str:
    log = folder / "scontrol.log"
    return log.read_text() if log.exists() else ""


def configure(folder: Path, **changes: object) -> None:
    (folder / "run.toml").write_text(tomli_w.dumps(tomllib.loads(CONFIG) | {"threads": 1} | changes))


def test_the_script_stops_requeues_and_goes_on_until_all_steps_are_done(folder):
    configure(folder, log_every=20)
    out = folder / "argon.run"
    first = submit(folder)
    try:
        wait_for(moves(out))
        first.process.send_signal(signal.SIGUSR1)  # to the script alone, as B: says
        ended = first.wait(SOON_S).expect(75)
    finally:
        first.kill()
    assert requeued(folder) == f"requeue {JOB}\n"
    status = json.loads((out / "status.json").read_text())
    assert (status["state"], status["reason"], status["ranks"]) == ("stopped", "SIGUSR1", 2)
    assert sum(line.startswith("mdrun: stopped after step ") for line in ended.err.splitlines()) == 1
    if not CAN_RESUME:
        pytest.skip("simulate --resume is not there yet")
    n_steps = status["step"] + 30
    configure(folder, log_every=20, steps=n_steps)
    submit(folder).wait(SOON_S).expect(0)
    status = json.loads((out / "status.json").read_text())
    assert (status["state"], status["step"]) == ("finished", n_steps)
    assert requeued(folder) == f"requeue {JOB}\n"  # no second time


@pytest.mark.parametrize("code", [0, 2, 75, 137])
def test_what_no_signal_of_the_scheduler_ended_is_not_requeued(folder, code):
    """All steps done, wrong input, the file STOP, a rank killed."""
    (folder / "bin" / "srun").write_text(f"#!/bin/sh\nexit {code}\n")
    submit(folder).wait(SOON_S).expect(code)
    assert requeued(folder) == ""


def test_the_example_is_a_configuration_of_simulate(folder):
    configure(folder, steps=0, threads=1)
    call("simulate", "--config", "run.toml", cwd=folder).expect(0)
    assert (folder / "argon.run" / "thermo.csv").exists()
