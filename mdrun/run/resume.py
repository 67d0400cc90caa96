"""Going on from a checkpoint: which one, whether its structure is still the same, what every rank gets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mdrun.domain import THEN
from mdrun.errors import EXIT_UNPHYSICAL, InputError
from mdrun.npz import Damaged
from mdrun.run.cadence import cadence
from mdrun.run.changes import origin_of
from mdrun.run.checkpoint import Checkpoint, read_checkpoint
from mdrun.run.directory import CHECKPOINT, CONFIG, PREVIOUS_CHECKPOINT, RunDirectory, config_there, status_there
from mdrun.run.settings import Settings
from mdrun.run.trajectories.names import format_of
from mdrun.state import FIELDS, State

SPECIES, PERIODIC = "species", "pbc"
WHAT = {"types": "species", "charges": "charge", "masses": "mass", "mobile": "constraint"}  # fields, in words
OF_SPECIES = ("types", "charges", "masses")


@dataclass(frozen=True)
class Past:
    """A run to go on with: its directory, which is this run's now, its checkpoint, and what to tell of it.

    Attributes:
        is_fallback: the newest checkpoint is damaged, and this is the one before it.
        reads_file: the structure comes from its file again, not from what the run keeps of it.
    """

    directory: RunDirectory
    checkpoint: Checkpoint
    is_fallback: bool
    notes: tuple[str, ...]
    reads_file: bool = False


def find_past(settings: Settings) -> Past | None:
    """What ``--resume`` goes on with; None where the run starts afresh, in place of one that left no checkpoint.

    Raises:
        InputError: another run holds the directory; it is no run's, another command's, or that of one that would not
            be made again to the same place; no checkpoint is whole.
    """
    path = settings.directory
    if not path.is_dir() or not any(path.iterdir()):
        return None
    directory = RunDirectory(path, [Path(settings.structure)], False, settings.trajectory, keep=True)
    if not (path / CONFIG).exists():  # not even among what a killed start had set aside, and that put back
        directory.release()
        if any(path.iterdir()):
            raise InputError(f"{path} is not empty and holds no run to go on with. Choose another --out.")
        return None
    then = status_there(path)
    command = then.get("command", settings.command)
    if command != settings.command:
        raise InputError(
            f"{path} holds what mdrun {command} left, which mdrun {settings.command} can't go on with and does not "
            "replace unasked. Choose another --out, or give --overwrite in place of --resume."
        )
    found = newest_checkpoint(path)
    if found is not None:
        checkpoint, notes = found
        of_all = f"{checkpoint.step} of {settings.n_steps_from(origin_of(settings, checkpoint))}"
        is_fallback = bool(notes) and (path / CHECKPOINT).exists()
        return Past(directory, checkpoint, is_fallback, (*notes, f"going on at step {of_all} of the run in {path}"))
    directory.release()
    if ending := _ending_to_be_kept(path, then):
        raise InputError(
            f"the run in {path} {ending} without a checkpoint: there is nothing to go on from. Choose another --out, "
            "or replace it with --overwrite in place of --resume."
        )
    return None


def _ending_to_be_kept(path: Path, status: Mapping[str, Any]) -> str | None:
    """What a run without checkpoints came to, where a fresh start in its place would lose more than time.

    One that was to write checkpoints, and ended before the first, is started again as it was promised.
    """
    step = status.get("step")
    if status.get("state") == "finished":
        return "finished"
    if not isinstance(step, int) or step == 0:
        return None
    if status.get("exit_code") == EXIT_UNPHYSICAL:
        return f"became unphysical after step {step}"
    often = config_there(path).get("checkpoint_every")
    try:
        is_never = often is not None and cadence(often, "checkpoint-every").is_never
    except (ValueError, TypeError, InputError):
        is_never = False
    return f"made {step} steps" if is_never else None


def newest_checkpoint(directory: Path) -> tuple[Checkpoint, list[str]] | None:
    """The newest that is whole, and what to tell of it; None where none was ever written.

    Raises:
        InputError: there are some, and none is whole.
    """
    troubles = []
    for name in (CHECKPOINT, PREVIOUS_CHECKPOINT):
        path = directory / name
        if not path.exists():
            continue
        try:
            found = read_checkpoint(path)
        except Damaged as error:
            troubles.append(str(error))
            continue
        notes = [f"{trouble} Going on from {name}, step {found.step}." for trouble in troubles]
        return found, notes
    if troubles:
        raise InputError(f"{' '.join(troubles)} Start afresh: --overwrite, or another --out.")
    return None


def refuse_other_structure(state: State, checkpoint: Checkpoint, structure: str, but_for: Collection[str] = ()) -> None:
    """Args:
        but_for: fields in which atoms may differ.

    Raises:
        InputError: the structure is not the one that the run began with.
    """
    rest = [name for name in (PERIODIC, *WHAT) if name not in but_for]
    if differs := _differences(state, checkpoint, rest):
        raise InputError(
            f"{structure} is not the structure that the run began with: {differs}. Put that file back, or start afresh."
        )


def take_up(
    state: State, checkpoint: Checkpoint, structure: str, allowed: Collection[str] = (), files: Collection[str] = ()
) -> list[str]:
    """Put the checkpoint's atoms and cell in place of those just read, on the rank that read them.

    Args:
        allowed: options that may change; where ``species`` is one, atoms stay what was read, with the momenta kept.
        files: trajectories that the run writes.

    Returns:
        What is no more as it was, in words.

    Raises:
        InputError: the structure is not the one that the run began with, or a file has a place for one set of species.
    """
    arrays = checkpoint.arrays
    differs = _differences(state, checkpoint, OF_SPECIES) if SPECIES in allowed else ""
    refuse_other_structure(state, checkpoint, structure, OF_SPECIES if differs else ())
    lasting = [name for name in files if name in checkpoint.outputs and format_of(name, "--trajectory") == "h5md"]
    if differs and lasting:
        raise InputError(
            f"{differs}, and {', '.join(lasting)} says what atoms are once for all frames. Give the new ones a file of "
            "their own: --trajectory NAME --allow-changes trajectory,species."
        )
    for f in FIELDS:
        if not differs or f.name not in OF_SPECIES:
            setattr(state, f.name, torch.from_numpy(arrays[f.name]).to(f.dtype))
    state.carried[THEN] = torch.from_numpy(arrays[THEN])
    return [f"changed at step {checkpoint.step}: {differs}; momenta are kept"] if differs else []


def empty_then(state: State) -> None:
    """What ``take_up`` leaves on a rank that has no atoms yet."""
    state.carried[THEN] = torch.empty((0, 3), dtype=torch.float64)


def _differences(state: State, checkpoint: Checkpoint, names: Collection[str]) -> str:
    """The first of these things that is not as the checkpoint has it, in words."""
    arrays = checkpoint.arrays
    if state.n_total != checkpoint.n_atoms:
        return f"it has {state.n_total} atoms, the checkpoint {checkpoint.n_atoms}"
    if PERIODIC in names and state.pbc != tuple(arrays["pbc"].tolist()):
        return "other axes are periodic"

    def values(name: str) -> tuple[np.ndarray, np.ndarray]:
        now, then = getattr(state, name).numpy(), arrays[name]
        return (np.array(state.numbers)[now], arrays["numbers"][then]) if name == "types" else (now, then)

    for name in WHAT:
        if name in names:
            now, then = values(name)
            for i in np.unique(np.nonzero(now != then)[0])[:1]:
                return f"atom {i} has another {WHAT[name]}"
    return ""
