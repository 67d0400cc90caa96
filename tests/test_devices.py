"""Where a run computes: what is asked for, what it had before, what this machine has."""

from __future__ import annotations

import pytest
import torch

from mdrun.errors import InputError
from mdrun.run.devices import as_before, with_devices
from mdrun.run.settings import Settings


@pytest.fixture
def gpu(monkeypatch):
    """Sets whether torch finds one."""
    return lambda is_there: monkeypatch.setattr(torch.cuda, "is_available", lambda: is_there)


def settled(device: str, backend: str, then: tuple[str, str]) -> tuple[str, str, list[str]]:
    settings, notes = as_before(Settings(structure="a.xyz", device=device, backend=backend), *then)
    found = with_devices(settings)
    return found.device, found.backend, notes


@pytest.mark.parametrize("then", [("cpu", "numba"), ("cpu", "torch"), ("cuda", "torch")])
def test_what_is_not_asked_for_stays_as_it_was(gpu, then):
    gpu(True)
    assert settled("auto", "auto", then) == (*then, [])
    assert settled(then[0], "auto", then) == (*then, [])
    assert settled("auto", then[1], then) == (*then, [])


def test_what_is_asked_for_brings_its_own_other(gpu):
    gpu(True)
    assert settled("cuda", "auto", ("cpu", "numba")) == ("cuda", "torch", [])
    assert settled("cpu", "auto", ("cuda", "torch")) == ("cpu", "numba", [])
    assert settled("auto", "numba", ("cuda", "torch")) == ("cpu", "numba", [])


def test_without_the_gpu_that_it_had_a_run_goes_on_on_cpus_and_says_so(gpu):
    gpu(False)
    note = ["the run was on GPUs, and torch finds none here: going on on CPUs"]
    assert settled("auto", "auto", ("cuda", "torch")) == ("cpu", "numba", note)
    assert settled("auto", "torch", ("cuda", "torch")) == ("cpu", "torch", note)
    with pytest.raises(InputError, match="torch finds no GPU"):
        settled("cuda", "auto", ("cuda", "torch"))
