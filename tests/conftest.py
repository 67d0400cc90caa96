"""One place for compiled kernels, and how tests are shared out where several processes run them (pytest-xdist)."""

from __future__ import annotations

import pytest

from mdrun.cache import keep_kernels

keep_kernels()  # where the runs that tests start keep theirs: what one has compiled, all others find


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests go to one process, which makes their fixtures once; so do all that read the same launches."""
    for item in items:
        group = "ranks" if "ranks" in item.path.parts else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
