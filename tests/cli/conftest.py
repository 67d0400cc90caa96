"""Small structures on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ase.io
import pytest

from tests.systems import pfcc

CASEBOOK_ARGON = "lj:epsilon=0.0104,sigma=3.4,cutoff=8.5"


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    """``write(rows, header, columns)``: an extxyz file."""

    def make(rows: list[str], header: str = "", columns: str = "species:S:1:pos:R:3", name: str = "a.xyz") -> Path:
        path = tmp_path / name
        path.write_text("\n".join([str(len(rows)), f"{header} Properties={columns}".strip(), *rows]) + "\n")
        return path

    return make


@pytest.fixture(scope="session")
def crystal(tmp_path_factory) -> Path:
    """32 perturbed argon atoms, at rest."""
    path = tmp_path_factory.mktemp("crystal") / "crystal.extxyz"
    ase.io.write(path, pfcc(2, 2, 2))
    return path
