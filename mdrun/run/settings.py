"""What the user asked for: one frozen object, from flags and a TOML file, kept in the run directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from mdrun.errors import InputError
from mdrun.run.cadence import Cadence, cadence
from mdrun.run.directory import FILES, TRAJECTORY, replace_file
from mdrun.run.ensemble_options import INFINITY, EnsembleOptions, check_ensemble, flag, refuse
from mdrun.run.origin import FROM_ZERO, Origin
from mdrun.run.trajectories.names import check_names, parse_precision
from mdrun.strategies.names import AUTO, STRATEGIES

DEVICES = ("auto", "cpu", "cuda")
BACKENDS = ("auto", "numba", "torch")
ONCE = ("overwrite", "resume", "allow_changes")
PRECISIONS = ("double", "mixed", "single")  # named here too, since reading options must not import Numba


@dataclass(frozen=True, kw_only=True)
class Settings(EnsembleOptions):
    """Every option of ``simulate`` under its flag's name; units are in the flags' help."""

    command: ClassVar[str] = "simulate"

    structure: str
    format: str | None = None
    index: int | None = None
    replicate: tuple[int, int, int] = (1, 1, 1)
    species: str | None = None
    freeze: str | None = None
    constrain_bonds: str | None = None
    model: str | None = None
    trust_model: bool = False
    timestep: float = 1.0
    steps: int | None = None
    time: float | None = None
    init_temperature: float | None = None
    zero_momentum_every: int = 0
    max_temperature: float | None = None
    seed: int | None = None
    out: str | None = None
    overwrite: bool = False
    resume: bool = False
    allow_changes: str | None = None
    device: str = "auto"
    backend: str = "auto"
    precision: str | None = None
    strategy: str = AUTO
    compile: bool = False
    threads: int | None = None
    skin: float = 1.0
    check_every: int = 1
    log_every: int = 100
    trajectory_every: int = 1000
    trajectory: tuple[str, ...] = (TRAJECTORY,)
    trajectory_atoms: str | None = None
    trajectory_precision: str | None = None
    wrap: bool = False
    checkpoint_every: int | str = "15min"
    max_hours: float | None = None
    comm_timeout: float = 600.0

    @property
    def n_steps(self) -> int:
        """Of a run that has this time step throughout."""
        return self.n_steps_from(FROM_ZERO)

    def n_steps_from(self, origin: Origin) -> int:
        """In all, those before the origin included; so many that ``time`` is the time in all."""
        if self.time is not None:
            left = (self.time - origin.time_ps) * 1000 / self.timestep
            return origin.step + round(max(left, -origin.step))
        return 1000 if self.steps is None else self.steps

    @property
    def directory(self) -> Path:
        return Path(self.out) if self.out is not None else Path(Path(self.structure).name).with_suffix(".run")

    @property
    def checkpoint_cadence(self) -> Cadence:
        return cadence(self.checkpoint_every, "checkpoint-every")

    @property
    def allowed_changes(self) -> tuple[str, ...]:
        """Names of options."""
        names = (self.allow_changes or "").split(",")
        return tuple(name.strip().replace("-", "_") for name in names if name.strip())

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """The names that flags and configurations may give."""
        return tuple(f.name for f in fields(cls))

    def check(self) -> None:
        """Refuse what can be known to be wrong before anything is read.

        Raises:
            InputError: naming the option, its value and what it takes.
        """
        check_ensemble(self)
        self.check_execution()

    def check_execution(self) -> None:
        """The part that every command shares: how long, where, with what, and how often to tell."""
        for name in self.options():
            value = getattr(self, name)
            for text in value if isinstance(value, tuple) else (value,):
                refuse(isinstance(text, str) and "\0" in text, flag(name), text, "a text without NUL")
        refuse(not Path(self.structure).name, "structure", self.structure, "the name of a file")
        choices = {"device": DEVICES, "backend": BACKENDS, "precision": (None, *PRECISIONS), "strategy": STRATEGIES}
        for name, known in choices.items():
            value = getattr(self, name)
            refuse(value not in known, name, value, "one of " + ", ".join(filter(None, known)))
        refuse(not 0 < self.timestep < INFINITY, "timestep", self.timestep, "a time in fs above 0")
        refuse(self.time is not None and not 0 <= self.time < INFINITY, "time", self.time, "a time in ps not below 0")
        refuse(self.n_steps < 0, "steps", self.n_steps, "a number not below 0")
        refuse(not 0 <= self.skin < INFINITY, "skin", self.skin, "a length in Å not below 0")
        refuse(self.check_every < 1, "check-every", self.check_every, "a number of steps above 0")
        for name in ("log_every", "trajectory_every", "zero_momentum_every"):
            every = getattr(self, name)
            refuse(every < 0, flag(name), every, "a number of steps, 0 for never")
        cadence(self.checkpoint_every, "checkpoint-every")  # or it is refused
        hours = self.max_hours
        refuse(hours is not None and not 0 < hours < INFINITY, "max-hours", hours, "a time in hours above 0")
        check_names(self.trajectory, [name for name in FILES if name != TRAJECTORY])
        parse_precision(self.trajectory_precision, self.trajectory)
        refuse(not 0 < self.comm_timeout < INFINITY, "comm-timeout", self.comm_timeout, "a time in s above 0")
        refuse(self.threads is not None and self.threads < 1, "threads", self.threads, "a number above 0")
        refuse(min(self.replicate) < 1, "replicate", self.replicate, "three numbers above 0")
        refuse(
            self.seed is not None and not 0 <= self.seed < 2**63,
            "seed",
            self.seed,
            "a whole number in [0, 2^63)",
        )
        start = self.init_temperature
        bad = start is not None and not 0 <= start < INFINITY
        refuse(bad, "init-temperature", start, "a temperature in K not below 0")
        for name in self.allowed_changes:
            if name not in self.options():
                near = get_close_matches(name.lower(), self.options(), n=1)
                advice = (
                    f"did you mean {flag(near[0])}?" if near else f"there are {', '.join(map(flag, self.options()))}."
                )
                raise InputError(f"--allow-changes: {flag(name)!r} is no option of {self.command}; {advice}")
        if self.resume and self.overwrite:
            raise InputError("--resume goes on with the run in --out, --overwrite replaces it: give one.")
        most = self.max_temperature
        refuse(most is not None and not 0 < most < INFINITY, "max-temperature", most, "a temperature in K above 0")
        refuse(most is not None and self.log_every == 0, "log-every", 0, "steps, at which --max-temperature looks")
        if self.steps is not None and self.time is not None:
            raise InputError("--steps and --time both say how long to run: give one.")


def _in_utf8(text: str) -> str:
    """The reverse of how a configuration's texts are read."""
    return os.fsencode(text).decode("utf-8", "surrogateescape")


Kind = TypeVar("Kind", bound=Settings)


def make_settings(
    config: Mapping[str, Any],
    flags: Mapping[str, Any],
    kind: type[Kind] = Settings,  # type: ignore[assignment]
) -> Kind:
    """Flags win over the file, the file over the defaults.

    Raises:
        InputError: no structure, or an option is out of range.
    """
    merged = {**config, **{name: value for name, value in flags.items() if name in kind.options()}}
    if "steps" in flags:
        merged.pop("time", None) if "time" not in flags else None
    elif "time" in flags:
        merged.pop("steps", None)
    if "trajectory" in merged:
        merged["trajectory"] = tuple(merged["trajectory"])
    if not merged.get("structure"):
        raise InputError(
            f"no structure was given: mdrun {kind.command} STRUCTURE, or structure = ... in the configuration."
        )
    settings = kind(**merged)
    settings.check()
    return settings


def write_config(settings: Settings, path: Path) -> None:
    """The effective configuration: the command with ``--config`` of it repeats the run, from whatever directory.

    What was said for one start is not kept: the leave to overwrite, to go on, to change.
    """
    import tomli_w

    values = {name: getattr(settings, name) for name in settings.options() if getattr(settings, name) is not None}
    for name in ONCE:
        values.pop(name, None)
    values["replicate"] = list(settings.replicate)
    values["trajectory"] = [_in_utf8(name) for name in settings.trajectory]
    values["structure"] = os.path.abspath(settings.structure)
    values["out"] = os.path.abspath(settings.directory)
    values = {name: _in_utf8(value) if isinstance(value, str) else value for name, value in values.items()}
    replace_file(path, tomli_w.dumps(values).encode("utf-8", errors="surrogateescape"))
