"""Python files of the user's, named in the text of a model: naming one is the consent to run it."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from pathlib import Path
from types import ModuleType

from mdrun.errors import InputError

MODEL_FILES = itertools.count()


def module_of_file(path: Path) -> ModuleType:
    """Run it.

    Raises:
        InputError: there is no such file, or it fails.
    """
    if not os.path.isfile(path):  # false too for a name that the system refuses
        raise InputError(f"the model file {path} does not exist.")
    module_spec = importlib.util.spec_from_file_location(f"{path.stem}_model_file_{next(MODEL_FILES)}", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module.__name__] = module  # where dataclasses and torch's compiler look for it
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"the model file {path} fails: {type(error).__name__}: {error}") from error
    return module
