"""What time a step is at, where the time step may have changed on the way."""

from __future__ import annotations

from dataclasses import dataclass

from mdrun import units


@dataclass(frozen=True)
class Origin:
    """The step from which on the present time step holds, and its time: t0 + (step - s0) dt from there on.

    It stays where it is for as long as the time step does, however often a run stops and goes on: each time is the one
    of the unbroken run to the last bit.

    Attributes:
        step: s0.
        time_ps: t0.
    """

    step: int = 0
    time_ps: float = 0.0

    def time_at(self, step: int, timestep: float) -> float:
        """ps at a step not before the origin, the time step in ASE's Å·sqrt(amu/eV)."""
        return self.time_ps + (step - self.step) * timestep / units.PS


FROM_ZERO = Origin()
