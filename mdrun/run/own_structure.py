"""The structure that a run began with: kept in its directory, and gone on with from there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mdrun import digests
from mdrun.errors import InputError
from mdrun.npz import Damaged
from mdrun.run.checkpoint import Checkpoint
from mdrun.run.directory import STRUCTURE, writing
from mdrun.run.resume import SPECIES, refuse_other_structure
from mdrun.run.settings import Settings
from mdrun.run.setup import first_state, read_structure
from mdrun.structures import Structure
from mdrun.structures.kept import Unkeepable, keep, read_kept

READING = ("format", "index", "replicate", "species", "freeze", "constrain_bonds")  # what of the file, and how


def keep_structure(directory: Path, structure: Structure, settings: Settings) -> list[str]:
    """Write it into the run's directory; what can't be kept is told, and the file is needed to go on.

    Raises:
        OutputError: it can't be written.
    """
    path = directory / STRUCTURE
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            keep(partial, structure, digests.of_file(structure.path), _reading(settings))
            os.replace(partial, path)
        except Unkeepable as error:
            path.unlink(missing_ok=True)
            return [f"{path} is not written, and to go on the run needs {structure.path} as it is: {error}"]
        finally:
            partial.unlink(missing_ok=True)
    return []


def own_structure(
    directory: Path, settings: Settings, checkpoint: Checkpoint, follows_file: bool
) -> tuple[Structure | None, list[str]]:
    """The structure that a run began with, from its directory, and what to tell of that; None where the file must do:
    none was kept, it is to be read in another way, or species may change.

    Args:
        follows_file: the file is named anew, and must not be another's.

    Raises:
        InputError: what was kept is damaged; the file is of another structure.
    """
    path, file = directory / STRUCTURE, settings.structure
    if not path.exists() or SPECIES in settings.allowed_changes:
        return None, []
    try:
        kept = read_kept(path)
    except Damaged as error:
        raise InputError(f"{error} Remove it, and the structure is read from {file} again.") from error
    if kept.reading != _reading(settings):
        return None, []
    try:
        if digests.of_file(file) == kept.digest:
            return kept.structure, []
    except OSError as error:
        is_gone = isinstance(error, FileNotFoundError)
        trouble = "is not there any more" if is_gone else f"can't be read ({error.strerror})"
        return kept.structure, [f"{file} {trouble}: going on with the structure as the run keeps it"]
    if follows_file:
        refuse_other_structure(first_state(read_structure(settings)), checkpoint, file)
    return kept.structure, [f"{file} has changed since: going on with the structure as it was when the run began"]


def _reading(settings: Settings) -> dict[str, Any]:
    """How the structure is read, as JSON has it."""
    values = ((name, getattr(settings, name)) for name in READING)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values}
