"""Small structures on disk, and the command line within this process, where a start of its own proves nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import ase.io
import pytest

from mdrun.cli.app import main
from tests.cli.launcher import Ended
from tests.systems import pfcc

Call = Callable[..., Ended]


@pytest.fixture
def call(monkeypatch, capfd, tmp_path) -> Call:
    """``call("simulate", ...)`` in an empty directory: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["mdrun", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main()
        out, err = capfd.readouterr()
        return Ended(int(leaving.value.code or 0), out, err)

    return invoke


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    """``write(rows, header)``: an extxyz file."""

    def make(rows: list[str], header: str = "", columns: str = "species:S:1:pos:R:3", name: str = "a.xyz") -> Path:
        path = tmp_path / name
        path.write_text("\n".join([str(len(rows)), f"{header} Properties={columns}".strip(), *rows]) + "\n")
        return path

    return make


@pytest.fixture
def crystal(tmp_path) -> Path:
    """32 perturbed argon atoms."""
    path = tmp_path / "crystal.extxyz"
    ase.io.write(path, pfcc(2, 2, 2))
    return path
