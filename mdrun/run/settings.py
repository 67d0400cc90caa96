"""What the user asked for: one frozen object, from flags and a TOML file, kept in the run directory."""

from __future__ import annotations

import os
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from mdrun.errors import InputError
from mdrun.run.ensemble_options import INFINITY, EnsembleOptions, check_ensemble, refuse

DEVICES = ("auto", "cpu", "cuda")
STRATEGIES = ("auto", "halo", "partition", "replicate")
BACKENDS = ("auto", "numba", "torch")
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
    seed: int | None = None
    out: str | None = None
    overwrite: bool = False
    device: str = "auto"
    backend: str = "auto"
    precision: str | None = None
    strategy: str = "auto"
    compile: bool = False
    threads: int | None = None
    skin: float = 1.0
    check_every: int = 1
    log_every: int = 100
    trajectory_every: int = 1000
    checkpoint_every: int = 10000
    comm_timeout: float = 600.0

    @property
    def n_steps(self) -> int:
        if self.time is not None:
            return round(self.time * 1000 / self.timestep)
        return 1000 if self.steps is None else self.steps

    @property
    def directory(self) -> Path:
        return Path(self.out) if self.out is not None else Path(Path(self.structure).name).with_suffix(".run")

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
        choices = {"device": DEVICES, "backend": BACKENDS, "precision": (None, *PRECISIONS), "strategy": STRATEGIES}
        for name, known in choices.items():
            value = getattr(self, name)
            refuse(value not in known, name, value, "one of " + ", ".join(filter(None, known)))
        refuse(not 0 < self.timestep < INFINITY, "timestep", self.timestep, "a time in fs above 0")
        refuse(self.time is not None and not 0 <= self.time < INFINITY, "time", self.time, "a time in ps not below 0")
        refuse(self.n_steps < 0, "steps", self.n_steps, "a number not below 0")
        refuse(not 0 <= self.skin < INFINITY, "skin", self.skin, "a length in Å not below 0")
        refuse(self.check_every < 1, "check-every", self.check_every, "a number of steps above 0")
        for name in ("log_every", "trajectory_every", "checkpoint_every", "zero_momentum_every"):
            every = getattr(self, name)
            refuse(every < 0, name.replace("_", "-"), every, "a number of steps, 0 for never")
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
        if self.steps is not None and self.time is not None:
            raise InputError("--steps and --time both say how long to run: give one.")


def read_config(path: Path, kind: type[Settings] = Settings) -> dict[str, Any]:
    """Options of a command from a TOML file whose keys are the flags' names, with - or _.

    Raises:
        InputError: the file can't be read, a key is unknown, a value is of the wrong type.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError as error:
        raise InputError(f"the configuration {path} can't be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the configuration {path} is not TOML: {error}.") from error
    hints = {name: hint for name, hint in typing.get_type_hints(kind).items() if name in kind.options()}
    options = {}
    for key, value in raw.items():
        name = key.replace("-", "_")
        if name not in hints:
            raise InputError(f"{path}: {key!r} is no option; there are {', '.join(sorted(hints))}.")
        options[name] = _converted(path, key, value, hints[name])
    return options


def _converted(path: Path, key: str, value: Any, hint: Any) -> Any:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if tuple[int, int, int] in kinds:
        if isinstance(value, list) and len(value) == 3 and all(type(v) is int for v in value):
            return tuple(value)
        raise InputError(f"{path}: {key} must be a list of three whole numbers, not {value!r}.")
    if float in kinds and type(value) is int:
        return float(value)
    if type(value) not in kinds:
        wanted = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
        raise InputError(f"{path}: {key} must be of type {wanted}, not {value!r}.")
    return _from_utf8(value) if isinstance(value, str) else value


def _from_utf8(text: str) -> str:
    """TOML is UTF-8 whatever the locale, in which a file's name may be spelled otherwise."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def _in_utf8(text: str) -> str:
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
    if not merged.get("structure"):
        raise InputError(
            f"no structure was given: mdrun {kind.command} STRUCTURE, or structure = ... in the configuration."
        )
    settings = kind(**merged)
    settings.check()
    return settings


def write_config(settings: Settings, path: Path) -> None:
    """The effective configuration: the command with ``--config`` of it repeats the run, from whatever directory.

    The leave to overwrite was given for one run, and is not kept.
    """
    import tomli_w

    values = {name: getattr(settings, name) for name in settings.options() if getattr(settings, name) is not None}
    del values["overwrite"]
    values["replicate"] = list(settings.replicate)
    values["structure"] = os.path.abspath(settings.structure)
    values["out"] = os.path.abspath(settings.directory)
    values = {name: _in_utf8(value) if isinstance(value, str) else value for name, value in values.items()}
    path.write_text(tomli_w.dumps(values), encoding="utf-8", errors="surrogateescape")
