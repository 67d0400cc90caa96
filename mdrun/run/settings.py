"""What the user asked for: one frozen object, from flags and a TOML file, kept in the run directory."""

from __future__ import annotations

import os
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mdrun.errors import InputError

ENSEMBLES = ("nve", "nvt")
THERMOSTATS = ("langevin", "nose-hoover", "bussi", "andersen", "berendsen")
DEVICES = ("auto", "cpu", "cuda")
BACKENDS = ("auto", "numba", "torch")
PRECISIONS = ("double", "mixed", "single")  # named here too, since reading options must not import Numba
INFINITY = float("inf")


@dataclass(frozen=True)
class Settings:
    """Every option of ``simulate`` under its flag's name; units are in the flags' help."""

    structure: str
    format: str | None = None
    index: int | None = None
    replicate: tuple[int, int, int] = (1, 1, 1)
    species: str | None = None
    model: str | None = None
    ensemble: str = "nve"
    thermostat: str = "langevin"
    temperature: float | str | None = None
    thermostat_time: float = 100.0
    friction: float = 1.0
    timestep: float = 1.0
    steps: int | None = None
    time: float | None = None
    init_temperature: float | None = None
    seed: int | None = None
    out: str | None = None
    overwrite: bool = False
    device: str = "auto"
    backend: str = "auto"
    precision: str | None = None
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
    def temperatures(self) -> tuple[float, float] | None:
        """K, the thermostat's at the first and at the last step.

        Raises:
            InputError: they are none.
        """
        if self.temperature is None:
            return None
        first, colon, last = str(self.temperature).partition(":")
        wanted = "a temperature in K not below 0, or two of them as in 300:600"
        try:
            values = float(first), float(last if colon else first)
        except ValueError:
            raise InputError(f"--temperature {self.temperature} won't do: it takes {wanted}.") from None
        _refuse(not all(0 <= value < INFINITY for value in values), "temperature", self.temperature, wanted)
        return values

    @property
    def directory(self) -> Path:
        return Path(self.out) if self.out is not None else Path(Path(self.structure).name).with_suffix(".run")

    def check(self) -> None:
        """Refuse what can be known to be wrong before anything is read.

        Raises:
            InputError: naming the option, its value and what it takes.
        """
        _refuse(self.ensemble not in ENSEMBLES, "ensemble", self.ensemble, "one of " + ", ".join(ENSEMBLES))
        _refuse(
            self.thermostat not in THERMOSTATS,
            "thermostat",
            self.thermostat,
            "one of " + ", ".join(THERMOSTATS),
        )
        for name, known in (("device", DEVICES), ("backend", BACKENDS), ("precision", (None, *PRECISIONS))):
            value = getattr(self, name)
            _refuse(value not in known, name, value, "one of " + ", ".join(filter(None, known)))
        _refuse(not 0 < self.timestep < INFINITY, "timestep", self.timestep, "a time in fs above 0")
        _refuse(self.time is not None and not 0 <= self.time < INFINITY, "time", self.time, "a time in ps not below 0")
        _refuse(self.n_steps < 0, "steps", self.n_steps, "a number not below 0")
        _refuse(not 0 <= self.skin < INFINITY, "skin", self.skin, "a length in Å not below 0")
        _refuse(self.check_every < 1, "check-every", self.check_every, "a number of steps above 0")
        for name in ("log_every", "trajectory_every", "checkpoint_every"):
            every = getattr(self, name)
            _refuse(every < 0, name.replace("_", "-"), every, "a number of steps, 0 for never")
        _refuse(not 0 < self.comm_timeout < INFINITY, "comm-timeout", self.comm_timeout, "a time in s above 0")
        _refuse(self.threads is not None and self.threads < 1, "threads", self.threads, "a number above 0")
        _refuse(min(self.replicate) < 1, "replicate", self.replicate, "three numbers above 0")
        _refuse(
            self.seed is not None and not 0 <= self.seed < 2**63,
            "seed",
            self.seed,
            "a whole number in [0, 2^63)",
        )
        _ = self.temperatures
        start = self.init_temperature
        bad = start is not None and not 0 <= start < INFINITY
        _refuse(bad, "init-temperature", start, "a temperature in K not below 0")
        _refuse(
            not 0 < self.thermostat_time < INFINITY, "thermostat-time", self.thermostat_time, "a time in fs above 0"
        )
        _refuse(not 0 <= self.friction < INFINITY, "friction", self.friction, "a rate in 1/ps not below 0")
        if self.ensemble == "nvt" and self.temperature is None:
            raise InputError("--ensemble nvt needs --temperature (K).")
        if self.ensemble == "nve" and self.temperature is not None:
            raise InputError(
                "--temperature is the thermostat's, and nve has none. Draw velocities with --init-temperature, or "
                "hold the temperature with --ensemble nvt."
            )
        if self.steps is not None and self.time is not None:
            raise InputError("--steps and --time both say how long to run: give one.")


def _refuse(is_bad: bool, option: str, value: object, wanted: str) -> None:
    if is_bad:
        raise InputError(f"--{option} {value} won't do: it takes {wanted}.")


def read_config(path: Path) -> dict[str, Any]:
    """Options from a TOML file whose keys are the flags' names, with - or _.

    Raises:
        InputError: the file can't be read, a key is unknown, a value is of the wrong type.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError as error:
        raise InputError(f"the configuration {path} can't be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the configuration {path} is not TOML: {error}.") from error
    hints = typing.get_type_hints(Settings)
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


def make_settings(config: Mapping[str, Any], flags: Mapping[str, Any]) -> Settings:
    """Flags win over the file, the file over the defaults.

    Raises:
        InputError: no structure, or an option is out of range.
    """
    known = {f.name for f in fields(Settings)}
    merged = {**config, **{name: value for name, value in flags.items() if name in known}}
    if "steps" in flags:
        merged.pop("time", None) if "time" not in flags else None
    elif "time" in flags:
        merged.pop("steps", None)
    if not merged.get("structure"):
        raise InputError("no structure was given: mdrun simulate STRUCTURE, or structure = ... in the configuration.")
    settings = Settings(**merged)
    settings.check()
    return settings


def write_config(settings: Settings, path: Path) -> None:
    """The effective configuration: ``mdrun simulate --config`` of it repeats the run, from whatever directory.

    The leave to overwrite was given for one run, and is not kept.
    """
    import tomli_w

    values = {name: value for name, value in asdict(settings).items() if value is not None}
    del values["overwrite"]
    values["replicate"] = list(settings.replicate)
    values["structure"] = os.path.abspath(settings.structure)
    values["out"] = os.path.abspath(settings.directory)
    values = {name: _in_utf8(value) if isinstance(value, str) else value for name, value in values.items()}
    path.write_text(tomli_w.dumps(values), encoding="utf-8", errors="surrogateescape")
