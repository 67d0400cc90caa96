"""Output that goes to a file: plain lines, as they come, in any locale; and the place that a run holds."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import tomllib
from pathlib import Path

import ase.io
import pytest

from tests.cli.launcher import LIMIT_S, MDRUN, Ended, call, environment, run, start
from tests.systems import pfcc

# No UTF-8 anywhere: Python would otherwise put itself into it.
ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
OPTIONS = ("--init-temperature", 80, "--steps", 20, "--seed", 3, "--log-every", 10, "--trajectory-every", 10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Greek letters and a space, as in the names of people's homes."""
    path = tmp_path_factory.mktemp("runs") / "υγρό αργό"
    path.mkdir()
    ase.io.write(path / "άτομα α.extxyz", pfcc(2, 2, 2))
    return path


@pytest.fixture(scope="module")
def ends(folder) -> dict[str, Ended]:
    """The same run in two locales, side by side."""
    programs = {
        name: start("simulate", folder / "άτομα α.extxyz", *OPTIONS, "--out", folder / name, cwd=folder, env=env)
        for name, env in {"πλήρες": {}, "ascii έξοδος": ASCII}.items()
    }
    return {name: program.wait() for name, program in programs.items()}


def test_a_pipe_gets_plain_lines(ends):
    for ended in ends.values():
        text = ended.expect(0).out + ended.err
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)  # no escape, no carriage return
        assert ended.err == ""
        lines = ended.out.splitlines()
        assert all(line.strip() for line in lines)
        assert lines[0].startswith("structure: ")
        assert lines[-1].startswith("finished 20 steps in ")


def test_every_line_can_be_found_by_its_first_word(ends):
    first = [line.split(maxsplit=1)[0] for line in ends["πλήρες"].out.splitlines()]
    expected = (
        "structure: cell: velocities: model: kernels: ensemble: temperature: decomposition: output: note: step rank 0 "
        "rank 0"
    )
    assert first == [*expected.split(), "imbalance", "averages:", "end:", "finished"]


def test_a_run_goes_on_when_nobody_reads_its_lines_any_more(folder):
    reader, writer = os.pipe()
    os.close(reader)
    program = subprocess.run(
        [MDRUN, "simulate", folder / "άτομα α.extxyz", "--steps", "3", "--out", folder / "unread"],
        stdout=writer, stderr=subprocess.PIPE, env=environment(), timeout=LIMIT_S, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (program.returncode, program.stderr) == (0, b"")
    assert json.loads((folder / "unread/status.json").read_text())["state"] == "finished"


def test_a_name_keeps_its_letters(ends, folder):
    assert str(folder / "άτομα α.extxyz") in ends["πλήρες"].out
    assert ascii(ends["ascii έξοδος"].out) == repr(ends["ascii έξοδος"].out)  # what ascii lacks is replaced
    for name in ends:
        kept = tomllib.loads((folder / name / "config.toml").read_text(encoding="utf-8"))
        assert kept["structure"] == str(folder / "άτομα α.extxyz")


def test_the_locale_changes_no_number(ends, folder):
    one, other = ((folder / name / "thermo.csv").read_bytes() for name in ends)
    assert one == other
    frames = [ase.io.read(folder / name / "trajectory.extxyz", ":") for name in ends]
    assert [len(each) for each in frames] == [3, 3]


def test_a_configuration_is_read_in_any_locale(ends, folder):
    again = run("simulate", "--config", folder / "πλήρες" / "config.toml", "--out", folder / "again", env=ASCII)
    again.expect(0)
    assert (folder / "again" / "thermo.csv").read_bytes() == (folder / "πλήρες" / "thermo.csv").read_bytes()


def test_lines_come_while_it_runs_and_the_directory_is_held_until_it_ends(folder, tmp_path):
    out = tmp_path / "held.run"
    long = start("simulate", folder / "άτομα α.extxyz", "--steps", 100_000_000, "--log-every", 50, "--out", out)
    try:
        wait_for(lambda: "step 1 of 100000000: " in long.so_far().out)
        wait_for(lambda: (out / "thermo.csv").read_text().count("\n") > 2)  # its rows come as well
        for more in ([], ["--overwrite"]):
            second = call(
                "simulate", folder / "άτομα α.extxyz", "--steps", 1, "--out", out, *more, cwd=tmp_path
            ).expect(2)
            assert "another run is writing to" in second.err
        assert (out / "thermo.csv").read_text().count("\n") > 2
        long.process.send_signal(signal.SIGINT)
        ended = long.wait(20)
    finally:
        long.kill()
    assert ended.code == 75
    assert re.fullmatch(rf"mdrun: stopped after step \d+ of 100000000: SIGINT; mdrun resume {out} .*\n", ended.err)
    assert '"state": "stopped"' in (out / "status.json").read_text()
    assert (out / "thermo.csv").read_text().endswith("\n")


def wait_for(condition, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("it did not come in time")
        time.sleep(0.05)
