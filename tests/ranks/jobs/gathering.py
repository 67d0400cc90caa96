"""Ragged arrays of all ranks as one, on rank 0."""

from __future__ import annotations

import numpy as np
import torch

from mdrun.comm import Comm


def gathered(comm: Comm, rows: torch.Tensor | np.ndarray) -> np.ndarray:
    """Every rank's rows one after another, in rank order; empty elsewhere than on rank 0."""
    tensor = torch.as_tensor(rows).detach().contiguous()
    found = comm.gather(tensor.byte() if tensor.dtype == torch.bool else tensor)
    return np.empty(0) if found is None else found.numpy().copy()


def on_each_rank(comm: Comm, *values: float) -> np.ndarray:
    """(size, n_values), on every rank."""
    return comm.all_gather(torch.tensor(values, dtype=torch.float64)).numpy().copy()
