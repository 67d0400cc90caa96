"""Output in a real terminal of 80 columns: a bar that moves, tables that fit, and none of it where it is not wanted."""

from __future__ import annotations

import re
from pathlib import Path

import pexpect
import pytest

from tests.cli.launcher import LIMIT_S, MDRUN, ROOT, environment

COLUMNS = 80
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
KINDS = {"color": {"TERM": "xterm-256color"}, "NO_COLOR": {"TERM": "xterm-256color", "NO_COLOR": "1"},
         "dumb": {"TERM": "dumb"}}  # fmt: skip


@pytest.fixture(scope="module")
def screens(tmp_path_factory) -> dict[str, str]:
    """What each kind of terminal was sent by a run of a second or so; the three run side by side."""
    folder: Path = tmp_path_factory.mktemp("terminal")
    words = ["simulate", str(ROOT / "inputs" / "argon.extxyz"), "--init-temperature", "80", "--steps", "1000"]
    children = {
        kind: pexpect.spawn(
            MDRUN, [*words, "--out", f"{folder}/{kind}"], env=environment(changes), encoding="utf-8",
            dimensions=(24, COLUMNS), timeout=LIMIT_S, cwd=str(folder),
        )
        for kind, changes in KINDS.items()
    }  # fmt: skip
    try:
        texts = {}
        for kind, child in children.items():
            child.expect(pexpect.EOF)
            child.close()
            assert child.exitstatus == 0, child.before
            texts[kind] = child.before
        return texts
    finally:
        for child in children.values():
            child.close(force=True)


def lines(text: str) -> list[str]:
    """What stood on the screen's lines, one after another, drawn over or not."""
    return [line.rstrip() for line in re.split(r"[\r\n]+", ESCAPE.sub("", text))]


def test_the_tables_fit_the_terminal(screens):
    assert max(len(line) for line in lines(screens["color"])) <= COLUMNS
    rows = [line.split() for line in lines(screens["color"]) if line.strip().startswith("0 ")]
    assert len(rows) == 2
    heads = [line for line in lines(screens["color"]) if line.strip().startswith("rank ")]
    for name in ("box", "owned", "ghosts", "ghost/owned", "neighbors", "migrated"):
        assert name in heads[0]
    for name in ("rebuilds", "kB/step", "force s", "neighbor s", "comm s", "integrate s", "output s"):
        assert name in heads[1]
    assert "…" not in heads[0] + heads[1]
    assert "500 (500/500)" in " ".join(rows[0])


def test_the_panel_names_what_runs(screens):
    text = "\n".join(lines(screens["color"]))
    for name in ("structure", "cell", "velocities", "model", "ensemble", "temperature", "decomposition", "output"):
        assert re.search(rf"│ {name} +", text)
    assert "mdrun simulate" in text


def test_the_bar_moves_and_is_taken_away(screens):
    text = screens["color"]
    assert "\x1b[" in text
    seen = {int(step) for step in re.findall(r"(\d+)/1000\b", ESCAPE.sub("", text))}
    assert len(seen) > 2
    for unit in ("ns/day", "steps/s", "left", " K", "drift"):
        assert any(unit in line and "/1000" in line for line in lines(text)), unit
    assert "\x1b[?25h" in text  # the cursor is there again


@pytest.mark.parametrize("kind", ["NO_COLOR", "dumb"])
def test_a_terminal_without_color_gets_plain_lines(screens, kind):
    text = screens[kind].replace("\r\n", "\n")  # the terminal's own line ends
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert "step 1 of 1000: " in text
    assert "finished 1000 steps in " in text
