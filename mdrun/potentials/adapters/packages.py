"""Importing packages that mdrun does without, and what to do where one is missing."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch

from mdrun.errors import InputError

FORCED = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"  # mace sets it, and so turns off the safe unpickler of the whole process


def needed(module: str, extra: str) -> ModuleType:
    """A module of an optional package.

    Raises:
        InputError: it is missing, or can't be imported; the text says what to install.
    """
    try:
        with quiet():
            return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == package
        why = f"package {package} is not installed" if missing else f"package {package} can't be imported ({error})"
        raise InputError(
            f"{why}. Install it with pip install 'mdrun[{extra}]', or with bash scripts/models.sh for all packages in "
            "one environment."
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Within, packages neither print nor warn, and what they set for the whole process is put back afterwards."""
    dtype, forced = torch.get_default_dtype(), os.environ.get(FORCED)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(dtype)
        if forced is None:
            os.environ.pop(FORCED, None)
        else:
            os.environ[FORCED] = forced


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Packages create tensors in torch's default type; within, it is the model's."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
