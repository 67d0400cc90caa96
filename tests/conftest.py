"""How tests are shared out where several processes run them (pytest-xdist)."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests go to one process, which makes their fixtures once; so do all that read the same launches."""
    for item in items:
        group = "ranks" if "ranks" in item.path.parts else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
