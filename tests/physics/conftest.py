"""Small systems: one thread serves them best, and then sums are the same from run to run."""

from __future__ import annotations

import numba
import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    n_numba, n_torch = numba.get_num_threads(), torch.get_num_threads()
    numba.set_num_threads(1)
    torch.set_num_threads(1)
    yield
    numba.set_num_threads(n_numba)
    torch.set_num_threads(n_torch)
