"""Where a run computes, and with what."""

from __future__ import annotations

import os
from dataclasses import replace

import torch

from mdrun.backends.base import Backend
from mdrun.backends.on_cpu import NumbaBackend
from mdrun.backends.on_torch import TorchBackend
from mdrun.errors import InputError
from mdrun.run.settings import Settings


def with_devices(settings: Settings) -> Settings:
    """Device, backend and precision settled: a GPU where there is one, torch on it, in mixed precision.

    Raises:
        InputError: they don't go together, or there is no GPU.
    """
    device, backend = settings.device, settings.backend
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() and backend != "numba" else "cpu"
    if backend == "auto":
        backend = "torch" if device == "cuda" else "numba"
    if device == "cuda" and backend == "numba":
        raise InputError("--backend numba runs on CPUs; on a GPU take --backend torch.")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no GPU here. Is its build one for CUDA, and a driver installed?")
    precision = settings.precision or ("mixed" if device == "cuda" else "double")
    return replace(settings, device=device, backend=backend, precision=precision)


def as_before(settings: Settings, device: str, backend: str) -> tuple[Settings, list[str]]:
    """What is not asked for left as it was when the run was stopped, where this machine has it; what to tell of it.

    Args:
        device, backend: as they were; asked for otherwise, one brings its own other.
    """
    asked = (settings.device, settings.backend)
    if any(name not in ("auto", was) for name, was in zip(asked, (device, backend), strict=True)):
        return settings, []
    if device == "cuda" and settings.device == "auto" and not torch.cuda.is_available():
        return settings, ["the run was on GPUs, and torch finds none here: going on on CPUs"]
    return replace(settings, device=device, backend=backend), []


def open_backend(settings: Settings, looks_late: bool | None = None) -> Backend:
    """The backend of this rank, on a GPU of its own; what ``looks_late`` means is told there.

    Raises:
        InputError: this machine has no GPU for this rank.
    """
    if settings.backend == "numba":
        return NumbaBackend()
    if settings.device == "cpu":
        return TorchBackend("cpu")
    local_rank, n_gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local_rank >= n_gpus:
        raise InputError(
            f"--device cuda: local rank {local_rank} has no GPU of its own, torch finds {n_gpus} on this machine. "
            "Start one rank for each GPU."
        )
    torch.cuda.set_device(local_rank)
    return TorchBackend(torch.device("cuda", local_rank), looks_late)
