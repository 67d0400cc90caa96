"""What a run that goes on takes over from the one that was stopped, what may differ, and what must not unasked."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any

from mdrun import units
from mdrun.errors import InputError
from mdrun.potentials.named_files import by_content, digests_of, with_absolute_paths
from mdrun.potentials.registry import default_model
from mdrun.run.checkpoint import Checkpoint
from mdrun.run.checkpoint_contents import Wrong, checked_settings
from mdrun.run.ensemble_options import flag
from mdrun.run.origin import Origin
from mdrun.run.settings import Settings

# What may differ from the run that wrote the checkpoint: how long, where, how fast, how often told; not what is solved.
FREE = {
    "structure", "out", "overwrite", "resume", "allow_changes", "steps", "time", "ramp_steps", "device", "backend",
    "threads", "skin", "check_every", "log_every", "trajectory_every", "checkpoint_every", "max_hours", "comm_timeout",
    "max_temperature", "trust_model", "strategy", "compile",
}  # fmt: skip
LEFT_AS_IT_WAS = ("seed", "precision", "init_temperature")  # where they are not given
AT_THE_START = {  # what is settled then, and why no leave helps
    "init_temperature": "velocities are drawn once, as a run begins",
    "replicate": "a run keeps its atoms",
    "freeze": "which atoms are fixed is settled as a run begins",
}
OF_FRAMES = ("trajectory_atoms", "trajectory_precision", "wrap")  # alike in all frames of a file
OF_BATHS = ("ensemble", "thermostat", "barostat")


def as_it_was(settings: Settings, checkpoint: Checkpoint, config: Mapping[str, Any]) -> Settings:
    """Settings with what was not given taken from the run that wrote the checkpoint.

    Args:
        config: of the run's directory. The model's name is taken from there: it may run code, and a checkpoint, which
            may be a stranger's, does not choose any.
    """
    then = settings_of(checkpoint.settings)
    changes = {name: getattr(then, name) for name in LEFT_AS_IT_WAS if getattr(settings, name) is None}
    if settings.model is None:
        named = config.get("model")
        changes["model"] = named if isinstance(named, str) else default_model(tuple(checkpoint.arrays["numbers"]))
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


def other_baths(settings: Settings, checkpoint: Checkpoint) -> bool:
    """Whether what the integrator remembers in a checkpoint is another ensemble's."""
    then = settings_of(checkpoint.settings)
    return any(getattr(settings, name) != getattr(then, name) for name in OF_BATHS)


def refuse_changes(settings: Settings, checkpoint: Checkpoint, allowed: Collection[str]) -> list[str]:
    """Compare what is asked for with what was run; what changes and may, in words.

    Before the model is loaded: a file that changed may hold a program.

    Raises:
        InputError: something changes that nobody allowed, or that can't.
    """
    now, then = to_be_kept(settings), settings_of(checkpoint.settings)
    changes = {
        f.name: f"--{flag(f.name)} from {_told(getattr(then, f.name))} to {_told(getattr(now, f.name))}"
        for f in fields(Settings)
        if f.name not in {*FREE, "model"} and getattr(now, f.name) != getattr(then, f.name)
    }
    if words := _change_of_model(now.model, then.model, checkpoint.inputs):
        changes["model"] = words
    for name in changes.keys() & AT_THE_START.keys():
        raise InputError(
            f"{changes[name]}: {AT_THE_START[name]}. Leave that as it was, or begin another run from the last frame."
        )
    lasting = [name for name in now.trajectory if name in checkpoint.outputs]
    for name in changes.keys() & set(OF_FRAMES) if lasting else ():
        raise InputError(
            f"{changes[name]}: the frames of {', '.join(lasting)} would not be alike. Give the new ones a file of "
            f"their own: --trajectory NAME --allow-changes trajectory,{flag(name)}."
        )
    if refused := {name: words for name, words in changes.items() if name not in allowed}:
        raise InputError(
            f"the run that goes on would not be the one that was stopped: {'; '.join(refused.values())}. Leave that as "
            f"it was, or say --allow-changes {','.join(map(flag, refused))}."
        )
    n_steps = settings.n_steps_from(origin_of(settings, checkpoint))
    if checkpoint.step > n_steps:
        option = "--steps" if settings.time is None else "--time"
        raise InputError(
            f"{n_steps} steps are asked for in all, and the run has made {checkpoint.step}. Raise {option}."
        )
    if changes.keys() & set(OF_BATHS):
        changes["baths"] = "thermostat and barostat begin anew, and with them the conserved energy"
    return [f"changed at step {checkpoint.step}: {words}" for words in changes.values()]


def _told(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


def _change_of_model(now: str | None, then: str | None, inputs: dict[str, str]) -> str:
    """In words, and none where both mean the same: files are what is in them, wherever they lie.

    Args:
        now, then: with absolute paths.
        inputs: digests of the files that ``then`` names, as they were.
    """
    if now is None or then is None:
        return "" if now == then else f"--model from {then} to {now}"
    digests = digests_of(now)
    if by_content(now, digests) == by_content(then, inputs):
        return ""
    if now != then:
        return f"--model from {then} to {now}"
    files = [file for file in {**inputs, **digests} if inputs.get(file) != digests.get(file)]
    return " and ".join(
        f"the model's file {file} is {'not the one that the run began with' if file in digests else 'not there'}"
        for file in files
    )
