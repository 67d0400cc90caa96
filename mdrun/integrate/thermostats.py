"""Thermostats that scale all momenta alike: each tells the factor, from the kinetic energy of the whole system.

All ranks compute the same factor from the same numbers. What a thermostat took from the atoms it keeps account of, so
that the energy of both is a constant of the exact motion.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mdrun import units
from mdrun.errors import SimulationError
from mdrun.integrate.kept import Remembers
from mdrun.philox import STREAM_BUSSI


@dataclass(frozen=True)
class Ramp:
    """A temperature (K) that goes from one value to another, evenly over so many steps, and stays there."""

    start: float
    end: float
    n_steps: int = 0

    def __call__(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(step / self.n_steps, 1.0) if self.n_steps else self.end

    @property
    def mean(self) -> float:
        return (self.start + self.end) / 2

    def __str__(self) -> str:
        return f"{self.end:g} K" if self.start == self.end else f"{self.start:g} to {self.end:g} K"


def as_ramp(temperature: Ramp | float) -> Ramp:
    return temperature if isinstance(temperature, Ramp) else Ramp(temperature, temperature)


_YOSHIDA = 1 / (2 - 2 ** (1 / 3))
SUZUKI_YOSHIDA = (_YOSHIDA, 1 - 2 * _YOSHIDA, _YOSHIDA)  # fourth order: H. Yoshida, Phys. Lett. A 150 (1990) 262


FAR = 0.1  # rate times time, in one part of a Nosé-Hoover step
MOST_PARTS = 2000


class Thermostat(Protocol):
    """Scales momenta over half a step.

    Attributes:
        heat: eV, what the thermostat holds: kinetic + potential + heat is conserved.
    """

    heat: float

    def describe(self) -> str:
        """Its parameters and their units."""
        ...

    def factor(self, kinetic: float, n_dof: int, time: float, half_step: int) -> float:
        """What to multiply momenta by.

        Args:
            kinetic: eV, of all atoms.
            n_dof: degrees of freedom that share it.
            time: to go, in the timestep's unit.
            half_step: how many have gone since the run began; no two alike.
        """
        ...


class NoseHooverChain(Remembers):
    """Nosé-Hoover chain of thermostats, integrated by a Suzuki-Yoshida product of three.

    G. J. Martyna, M. L. Klein, M. Tuckerman, J. Chem. Phys. 97 (1992) 2635, doi 10.1063/1.463940; M. E. Tuckerman et
    al., J. Phys. A 39 (2006) 5629, doi 10.1088/0305-4470/39/19/S18. Masses: Q₁ = n_dof k T τ², the others k T τ², T
    the mean of a ramp.
    """

    same_on_ranks = ("rates", "_potential", "heat")

    def __init__(
        self, temperature: Ramp | float, period: float, length: int = 3, first_mass: float | None = None
    ) -> None:
        """``period`` τ in the timestep's unit; ``first_mass`` Q₁ in k T τ², in place of n_dof."""
        if length < 1:
            raise ValueError(f"a Nosé-Hoover chain has at least one thermostat, not {length}")
        self._temperature, self._period, self._first_mass = as_ramp(temperature), period, first_mass
        self.rates = [0.0] * length  # dη/dt
        self._potential = 0.0  # Σ ∫ k T dη, n_dof times for the first, eV
        self.heat = 0.0

    def factor(self, kinetic: float, n_dof: int, time: float, half_step: int) -> float:
        try:
            scale = self._follow(kinetic, n_dof, time, half_step)
        except OverflowError:
            scale = math.nan
        if not math.isfinite(scale):
            raise SimulationError(
                "the Nosé-Hoover thermostat can't follow: the temperature is too far from --temperature for so short a "
                "--thermostat-time. Equilibrate with --thermostat bussi, or lengthen it."
            )
        return scale

    def _follow(self, kinetic: float, n_dof: int, time: float, half_step: int) -> float:
        kt = units.KB * self._temperature(half_step // 2)
        if kt == 0 or n_dof == 0:
            return 1.0
        # Lists of a few numbers: arrays would cost a small system more than its forces.
        shares = [float(n_dof)] + [1.0] * (len(self.rates) - 1)
        energies = [kt * share for share in shares]
        masses = [units.KB * self._temperature.mean * share * self._period**2 for share in shares]
        if self._first_mass is not None:
            masses[0] *= self._first_mass / n_dof
        scale = 1.0
        n_parts = self._n_parts(kinetic, energies, masses, time)
        for weight in SUZUKI_YOSHIDA * n_parts:
            t = weight * time / n_parts
            for j in reversed(range(len(masses))):
                self._push(j, kinetic * scale**2, energies, masses, t)
            self._potential += sum(map(operator.mul, energies, self.rates)) * t
            scale *= math.exp(-t * self.rates[0])
            for j in range(len(masses)):
                self._push(j, kinetic * scale**2, energies, masses, t)
        self.heat = self._potential + sum(m * rate**2 for m, rate in zip(masses, self.rates, strict=True)) / 2
        return scale

    def describe(self) -> str:
        return f"Nosé-Hoover chain of {len(self.rates)}, {self._temperature}, period {self._period / units.FS:g} fs"

    def _n_parts(self, kinetic: float, energies: list[float], masses: list[float], time: float) -> int:
        """How often to divide ``time``, so that nothing goes far in a part: far from its temperature, a large system
        drives the second thermostat, which is as light as an atom's, at sqrt(n_dof) times its usual rate."""
        fastest, driven = 0.0, 2 * kinetic
        for rate, energy, mass in zip(self.rates, energies, masses, strict=True):
            rate = abs(rate) + time * abs(driven - energy) / mass
            fastest, driven = max(fastest, rate), mass * rate**2
        return math.ceil(min(max(fastest * time / FAR, 1), MOST_PARTS))

    def _push(self, j: int, kinetic: float, energies: list[float], masses: list[float], time: float) -> None:
        """Rate j over half of ``time``, by what drives it and by the drag of the next."""
        drag = math.exp(-time / 4 * self.rates[j + 1]) if j + 1 < len(masses) else 1.0
        twice_kinetic = 2 * kinetic if j == 0 else masses[j - 1] * self.rates[j - 1] ** 2
        self.rates[j] = (self.rates[j] * drag + time / 2 * (twice_kinetic - energies[j]) / masses[j]) * drag


class Bussi(Remembers):
    """Stochastic velocity rescaling: the kinetic energy does an exact Ornstein-Uhlenbeck step, directions stay.

    G. Bussi, D. Donadio, M. Parrinello, J. Chem. Phys. 126 (2007) 014101, doi 10.1063/1.2408420, eq. A7.
    """

    same_on_ranks = ("heat",)

    def __init__(self, temperature: Ramp | float, period: float, seed: int) -> None:
        self._temperature, self._period, self._seed = as_ramp(temperature), period, seed
        self.heat = 0.0

    def factor(self, kinetic: float, n_dof: int, time: float, half_step: int) -> float:
        if n_dof == 0 or kinetic == 0:
            return 1.0
        mean = units.KB * self._temperature(half_step // 2) / 2  # kinetic energy of a degree of freedom
        c = math.exp(-time / self._period)
        noise = np.random.default_rng([self._seed, STREAM_BUSSI, half_step])
        r = noise.standard_normal()
        others = 2 * noise.standard_gamma((n_dof - 1) / 2) if n_dof > 1 else 0.0
        target = c * kinetic + (1 - c) * mean * (r * r + others) + 2 * r * math.sqrt(c * (1 - c) * mean * kinetic)
        target = max(target, 0.0)  # it is a square but for rounding
        self.heat += kinetic - target
        # Few degrees of freedom may turn back (eq. A8).
        turns = r * math.sqrt((1 - c) * mean) + math.sqrt(c * kinetic) < 0
        return math.copysign(math.sqrt(target / kinetic), -1.0 if turns else 1.0)

    def describe(self) -> str:
        return f"Bussi, {self._temperature}, time constant {self._period / units.FS:g} fs, seed {self._seed}"


class Berendsen(Remembers):
    """Weak coupling: dT/dt = (T₀ - T) / τ, exactly. It samples no ensemble.

    H. J. C. Berendsen et al., J. Chem. Phys. 81 (1984) 3684, doi 10.1063/1.448118.
    """

    same_on_ranks = ("heat",)

    def __init__(self, temperature: Ramp | float, period: float) -> None:
        self._temperature, self._period = as_ramp(temperature), period
        self.heat = 0.0

    def factor(self, kinetic: float, n_dof: int, time: float, half_step: int) -> float:
        if n_dof == 0 or kinetic == 0:
            return 1.0
        wanted = units.KB * self._temperature(half_step // 2) / 2 * n_dof
        c = math.exp(-time / self._period)
        target = c * kinetic + (1 - c) * wanted
        self.heat += kinetic - target
        return math.sqrt(target / kinetic)

    def describe(self) -> str:
        return f"Berendsen, {self._temperature}, time constant {self._period / units.FS:g} fs"
