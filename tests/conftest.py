"""One place for compiled kernels, and how tests are shared out where several processes run them (pytest-xdist)."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from mdrun.cache import keep_kernels

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # tests in the background of a script; mdrun would ignore it too
    signal.signal(signal.SIGINT, signal.default_int_handler)

keep_kernels()  # where the runs that tests start keep theirs: what one has compiled, all others find


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests go to one process, which makes their fixtures once; so do all that read the same launches."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFixtures(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, _ = nodeid.partition("::")
            return "tests/ranks" if file.startswith("tests/ranks/") else file

    return ByFixtures(config, log)
