from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    """``write(text, name)``: a file."""

    def write(text: str, name: str = "a.xyz") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
