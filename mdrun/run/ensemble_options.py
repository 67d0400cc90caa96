"""The options that say which ensemble is sampled and how: what each goes with, and what it means where not given.

An option that the chosen ensemble, thermostat or barostat does not use is refused: it would be ignored in silence.
"""

from __future__ import annotations

from dataclasses import dataclass

from mdrun.errors import InputError

ENSEMBLES = ("nve", "nvt", "npt", "nph")
SCALING = ("nose-hoover", "bussi", "berendsen")  # thermostats that scale all momenta alike
KICKING = ("langevin", "andersen")  # that give single atoms momentum
THERMOSTATS = (*KICKING, *SCALING)
BAROSTATS = ("mtk", "stochastic", "berendsen")
RESCALING = ("stochastic", "berendsen")  # barostats of first order, around any thermostat
COUPLES = ("xy", "xz", "yz")
INFINITY = float("inf")

THERMOSTAT_TIME = 100.0  # fs
FRICTION = 1.0  # 1/ps
BAROSTAT_TIME = 1000.0  # fs
COMPRESSIBILITY = 0.5  # 1/GPa: water's


@dataclass(frozen=True, kw_only=True)
class EnsembleOptions:
    """Options of ``simulate`` by their flags' names; None is not given."""

    ensemble: str = "nve"
    thermostat: str | None = None
    temperature: float | str | None = None
    ramp_steps: int | None = None
    thermostat_time: float | None = None
    friction: float | None = None
    barostat: str | None = None
    pressure: float | str | None = None
    barostat_time: float | None = None
    compressibility: float | None = None
    box: str | None = None
    couple: str | None = None

    @property
    def temperatures(self) -> tuple[float, float] | None:
        """K, the thermostat's at the first and at the last step.

        Raises:
            InputError: they are none.
        """
        return temperatures_of(self.temperature)

    @property
    def is_ramp(self) -> bool:
        return self.temperatures is not None and len(set(self.temperatures)) == 2

    @property
    def pressures(self) -> tuple[float, ...] | None:
        """GPa, the barostat's xx, yy, zz, yz, xz, xy.

        Raises:
            InputError: they are none.
        """
        return pressures_of(self.pressure)


def has_thermostat(settings: EnsembleOptions) -> bool:
    return settings.ensemble in ("nvt", "npt")


def has_barostat(settings: EnsembleOptions) -> bool:
    return settings.ensemble in ("npt", "nph")


def thermostat_of(settings: EnsembleOptions) -> str | None:
    """The thermostat in force: as asked for, else the one that suits the ensemble; None where there is none."""
    if not has_thermostat(settings):
        return None
    default = "langevin" if settings.ensemble == "nvt" else "nose-hoover" if barostat_of(settings) == "mtk" else "bussi"
    return settings.thermostat or default


def barostat_of(settings: EnsembleOptions) -> str | None:
    """Likewise the barostat."""
    return (settings.barostat or "mtk") if has_barostat(settings) else None


def box_of(settings: EnsembleOptions) -> str:
    """Which way the cell moves: all axes by themselves where two of them are coupled, else alike."""
    return settings.box or ("iso" if settings.couple is None else "xyz")


def temperatures_of(text: float | str | None) -> tuple[float, float] | None:
    """K, the thermostat's at the first and at the last step.

    Raises:
        InputError: they are none.
    """
    if text is None:
        return None
    first, colon, last = str(text).partition(":")
    wanted = "a temperature in K not below 0, or two of them as in 300:600"
    try:
        values = float(first), float(last if colon else first)
    except ValueError:
        raise InputError(f"--temperature {text} won't do: it takes {wanted}.") from None
    refuse(not all(0 <= value < INFINITY for value in values), "temperature", text, wanted)
    return values


def pressures_of(text: float | str | None) -> tuple[float, ...] | None:
    """GPa: xx, yy, zz, yz, xz, xy of what the barostat holds; None where none was given.

    Raises:
        InputError: it is no pressure.
    """
    if text is None:
        return None
    wanted = "a pressure in GPa, or three (xx,yy,zz) or six (xx,yy,zz,yz,xz,xy) of them with commas"
    try:
        values = tuple(float(word) for word in str(text).split(","))
    except ValueError:
        raise InputError(f"--pressure {text} won't do: it takes {wanted}.") from None
    refuse(len(values) not in (1, 3, 6) or not all(abs(v) < INFINITY for v in values), "pressure", text, wanted)
    return (*(values * 3 if len(values) == 1 else values), *([0.0] * (0 if len(values) == 6 else 3)))


def refuse(is_bad: bool, option: str, value: object, wanted: str) -> None:
    if is_bad:
        raise InputError(f"--{option} {value} won't do: it takes {wanted}.")


def check_ensemble(settings: EnsembleOptions) -> None:
    """Refuse options that are out of range, missing, or without use in the chosen ensemble.

    Raises:
        InputError: naming the option.
    """
    s = settings
    box_words = "iso, triclinic, or the axes that move, as in xyz or z"
    for name, known in (
        ("ensemble", ENSEMBLES),
        ("thermostat", (None, *THERMOSTATS)),
        ("barostat", (None, *BAROSTATS)),
        ("couple", (None, *COUPLES)),
    ):
        value = getattr(s, name)
        refuse(value not in known, name, value, "one of " + ", ".join(filter(None, known)))
    _ = temperatures_of(s.temperature), pressures_of(s.pressure)
    for name, unit in (("thermostat_time", "fs"), ("barostat_time", "fs"), ("compressibility", "1/GPa")):
        value = getattr(s, name)
        kind = "a time" if unit == "fs" else "a compressibility"
        refuse(value is not None and not 0 < value < INFINITY, flag(name), value, f"{kind} in {unit} above 0")
    refuse(
        s.friction is not None and not 0 <= s.friction < INFINITY, "friction", s.friction, "a rate in 1/ps not below 0"
    )
    refuse(s.ramp_steps is not None and s.ramp_steps < 1, "ramp-steps", s.ramp_steps, "a number of steps above 0")
    refuse(s.box not in (None, "iso", "triclinic") and not _names_axes(s.box), "box", s.box, box_words)
    if s.ensemble == "nve" and s.temperature is not None:
        raise InputError(
            "--temperature is the thermostat's, and nve has none. Draw velocities with --init-temperature, or "
            "hold the temperature with --ensemble nvt."
        )
    _refuse_useless(s)
    if has_thermostat(s) and s.temperature is None:
        raise InputError(f"--ensemble {s.ensemble} needs --temperature (K).")
    if thermostat_of(s) == "nose-hoover" and temperatures_of(s.temperature) == (0, 0):
        raise InputError(
            "--thermostat nose-hoover can't hold --temperature 0 K. Use langevin, bussi or berendsen, or nve."
        )
    if has_barostat(s) and s.pressure is None:
        raise InputError(f"--ensemble {s.ensemble} needs --pressure (GPa); 0 is a pressure too.")
    _check_barostat(s)


def _names_axes(box: str) -> bool:
    return 0 < len(box) == len(set(box)) and set(box) <= set("xyz")


def _refuse_useless(s: EnsembleOptions) -> None:
    """What the run would not look at."""
    thermostat, barostat = thermostat_of(s), barostat_of(s)
    held = "--ensemble nvt or npt"
    pressed = "--ensemble npt or nph"
    uses = {
        "thermostat": (has_thermostat(s), held),
        "temperature": (has_thermostat(s), held),
        "ramp_steps": (s.is_ramp, "a --temperature that goes from one to another, as in 300:600"),
        "thermostat_time": (thermostat in SCALING, f"{held} with --thermostat {', '.join(SCALING)}"),
        "friction": (thermostat in KICKING, f"{held} with --thermostat {' or '.join(KICKING)}"),
        "barostat": (has_barostat(s), pressed),
        "pressure": (has_barostat(s), pressed),
        "barostat_time": (has_barostat(s), pressed),
        "box": (has_barostat(s), pressed),
        "couple": (has_barostat(s), pressed),
        "compressibility": (barostat in RESCALING, f"--ensemble npt with --barostat {' or '.join(RESCALING)}"),
    }
    for name, (is_used, where) in uses.items():
        if getattr(s, name) is not None and not is_used:
            now = f"--ensemble {s.ensemble}" + (
                f" with --thermostat {thermostat}" if thermostat and is_thermal(name) else ""
            )
            raise InputError(f"--{flag(name)} would do nothing: it goes with {where}, and this is {now}.")


def is_thermal(option: str) -> bool:
    return option in ("thermostat_time", "friction")


def _check_barostat(s: EnsembleOptions) -> None:
    barostat, thermostat = barostat_of(s), thermostat_of(s)
    if s.ensemble == "nph" and barostat in RESCALING:
        raise InputError(f"--barostat {barostat} exchanges heat, so it can't sample nph. Use mtk, or --ensemble npt.")
    if barostat == "mtk" and thermostat in KICKING:
        raise InputError(
            f"--thermostat {thermostat} does not go with --barostat mtk. Use nose-hoover or bussi, or --barostat "
            "stochastic, which goes with every thermostat."
        )
    if barostat is not None and s.couple is not None:
        box = box_of(s)
        if not set(s.couple) <= set(box if _names_axes(box) else ""):
            raise InputError(f"--couple {s.couple} needs both of its axes in --box, as in --box xyz; it is {box}.")
    _refuse_unheld_components(s)


def _refuse_unheld_components(s: EnsembleOptions) -> None:
    """Pressures that differ, where the cell can't yield to the difference."""
    pressures = pressures_of(s.pressure)
    if pressures is None:
        return
    box = box_of(s)
    if any(pressures[3:]) and box != "triclinic":
        raise InputError(f"--pressure {s.pressure} has shear components, which only --box triclinic can hold.")
    if box == "iso" and len(set(pressures[:3])) > 1:
        raise InputError(f"--pressure {s.pressure} differs between axes, which move alike: give --box xyz.")
    if s.couple is not None:
        one, other = (pressures["xyz".index(axis)] for axis in s.couple)
        if one != other:
            raise InputError(
                f"--pressure {s.pressure} differs between {s.couple[0]} and {s.couple[1]}, which are coupled by "
                f"--couple {s.couple}."
            )


def flag(name: str) -> str:
    return name.replace("_", "-")
