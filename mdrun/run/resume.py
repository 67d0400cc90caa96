"""Going on from a checkpoint: which one, whether the run that is asked for is still the same, what every rank gets."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mdrun import units
from mdrun.domain import THEN
from mdrun.errors import EXIT_UNPHYSICAL, InputError
from mdrun.potentials.registry import with_absolute_paths
from mdrun.run.cadence import cadence
from mdrun.run.checkpoint import Checkpoint, DamagedCheckpoint, read_checkpoint
from mdrun.run.checkpoint_contents import Wrong, checked_settings
from mdrun.run.directory import CHECKPOINT, CONFIG, PREVIOUS_CHECKPOINT, RunDirectory, status_there
from mdrun.run.origin import Origin
from mdrun.run.settings import Settings
from mdrun.state import FIELDS, State

# What may differ from the run that wrote the checkpoint: how long, where, how fast, how often told; not what is solved.
FREE = {
    "structure", "out", "overwrite", "resume", "allow_changes", "steps", "time", "ramp_steps", "device", "backend",
    "threads", "skin", "check_every", "log_every", "trajectory_every", "checkpoint_every", "max_hours", "comm_timeout",
    "max_temperature", "trust_model", "strategy", "compile",
}  # fmt: skip
LEFT_AS_IT_WAS = ("seed", "model", "precision")  # where they are not given


@dataclass(frozen=True)
class Past:
    """A run to go on with: its directory, which is this run's now, its checkpoint, and what to tell of it.

    Attributes:
        is_fallback: the newest checkpoint is damaged, and this is the one before it.
    """

    directory: RunDirectory
    checkpoint: Checkpoint
    is_fallback: bool
    notes: tuple[str, ...]


def find_past(settings: Settings) -> Past | None:
    """What ``--resume`` goes on with; None where the run starts afresh, in place of one that left no checkpoint.

    Raises:
        InputError: another run holds the directory; it is no run's, another command's, or that of one that would not
            be made again to the same place; no checkpoint is whole.
    """
    path = settings.directory
    if not path.is_dir() or not any(path.iterdir()):
        return None
    if not (path / CONFIG).exists():
        raise InputError(f"{path} is not empty and holds no run to go on with. Choose another --out.")
    directory = RunDirectory(path, [Path(settings.structure)], False, settings.trajectory, keep=True)
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
    try:
        often = tomllib.loads((path / CONFIG).read_text(encoding="utf-8")).get("checkpoint_every")
        is_never = often is not None and cadence(often, "checkpoint-every").is_never
    except (OSError, ValueError, TypeError, InputError):
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
        except DamagedCheckpoint as error:
            troubles.append(str(error))
            continue
        notes = [f"{trouble} Going on from {name}, step {found.step}." for trouble in troubles]
        return found, notes
    if troubles:
        raise InputError(f"{' '.join(troubles)} Start afresh: --overwrite, or another --out.")
    return None


def as_it_was(settings: Settings, checkpoint: Checkpoint) -> Settings:
    """Settings with what was not given taken from the run that wrote the checkpoint."""
    then = settings_of(checkpoint.settings)
    changes = {name: getattr(then, name) for name in LEFT_AS_IT_WAS if getattr(settings, name) is None}
    if settings.ramp_steps is None and settings.is_ramp:  # a ramp goes on at its pace, however long the run
        changes["ramp_steps"] = then.ramp_steps or then.n_steps_from(checkpoint.origin)
    return replace(settings, **changes)


def origin_of(settings: Settings, checkpoint: Checkpoint) -> Origin:
    """Of the times of the run that goes on: as it was, or the checkpoint's own step where the time step changes.

    Raises:
        InputError: the checkpoint's settings are none of this version.
    """
    then, was = settings_of(checkpoint.settings), checkpoint.origin
    if settings.timestep == then.timestep:
        return was
    return Origin(checkpoint.step, was.time_at(checkpoint.step, then.timestep * units.FS))


def settings_of(values: dict[str, Any]) -> Settings:
    """Settings that a checkpoint keeps.

    Raises:
        InputError: they are none of this version.
    """
    names = {f.name for f in fields(Settings)}
    if unknown := sorted(set(values) - names):
        raise InputError(f"the checkpoint has options that this mdrun does not know: {', '.join(unknown)[:200]}.")
    try:
        return checked_settings(values)
    except Wrong as error:
        raise InputError(f"the checkpoint can't be gone on from: {error}.") from error


def to_be_kept(settings: Settings) -> Settings:
    """With paths that hold from any directory."""
    return replace(
        settings,
        structure=os.path.abspath(settings.structure),
        out=os.path.abspath(settings.directory),
        model=None if settings.model is None else with_absolute_paths(settings.model),
    )


def refuse_changes(settings: Settings, checkpoint: Checkpoint, allowed: Collection[str]) -> list[str]:
    """Compare what is asked for with what was run; what changes and may, in words.

    Raises:
        InputError: something changes that nobody allowed.
    """
    now, then = to_be_kept(settings), settings_of(checkpoint.settings)
    changes = {
        f.name: f"--{f.name.replace('_', '-')} from {getattr(then, f.name)} to {getattr(now, f.name)}"
        for f in fields(Settings)
        if f.name not in FREE and getattr(now, f.name) != getattr(then, f.name)
    }
    if refused := {name: words for name, words in changes.items() if name not in allowed}:
        raise InputError(
            f"the run that goes on would not be the one that was stopped: {'; '.join(refused.values())}. Leave that as "
            f"it was, or say --allow-changes {','.join(name.replace('_', '-') for name in refused)}."
        )
    n_steps = settings.n_steps_from(origin_of(settings, checkpoint))
    if checkpoint.step > n_steps:
        option = "--steps" if settings.time is None else "--time"
        raise InputError(
            f"{n_steps} steps are asked for in all, and the run has made {checkpoint.step}. Raise {option}."
        )
    return [f"changed at step {checkpoint.step}: {words}" for words in changes.values()]


def take_up(state: State, checkpoint: Checkpoint, structure: str) -> None:
    """Put the checkpoint's atoms and cell in place of those just read, on the rank that read them.

    Raises:
        InputError: the structure is not the one that the run began with.
    """
    arrays = checkpoint.arrays
    differs = _differences(state, checkpoint)
    if differs:
        raise InputError(
            f"{structure} is not the structure that the run began with: {differs}. Put that file back, or start afresh."
        )
    for f in FIELDS:
        setattr(state, f.name, torch.from_numpy(arrays[f.name]).to(f.dtype))
    state.carried[THEN] = torch.from_numpy(arrays[THEN])


def empty_then(state: State) -> None:
    """What ``take_up`` leaves on a rank that has no atoms yet."""
    state.carried[THEN] = torch.empty((0, 3), dtype=torch.float64)


def _differences(state: State, checkpoint: Checkpoint) -> str:
    arrays = checkpoint.arrays
    if state.n_total != checkpoint.n_atoms:
        return f"it has {state.n_total} atoms, the checkpoint {checkpoint.n_atoms}"
    if state.pbc != tuple(arrays["pbc"].tolist()):
        return "other axes are periodic"
    if not np.array_equal(state.numbers, arrays["numbers"]):
        return "it has other species"
    return _first(
        f"atom {i} has another {what}"
        for what, name in (("species", "types"), ("charge", "charges"), ("mass", "masses"), ("constraint", "mobile"))
        for i in np.unique(np.nonzero(getattr(state, name).numpy() != arrays[name])[0])[:1]
    )


def _first(words: Iterable[str]) -> str:
    return next(iter(words), "")
