"""Starting velocities and degrees of freedom, of all atoms in the order of the input file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mdrun import units
from mdrun.errors import InputError
from mdrun.philox import STREAM_VELOCITIES, normals
from mdrun.state import temperature

AT_REST = 1e-6  # total momentum, relative to the sum of its atoms' magnitudes, below which it counts as zero


def remove_momentum(momenta: Tensor, masses: Tensor) -> Tensor:
    """Momenta (n, 3) seen from the centre of mass: the mean velocity is taken off, not the mean momentum."""
    drift_velocity = momenta.sum(dim=0) / masses.sum()
    return momenta - masses[:, None] * drift_velocity


def is_at_rest(momenta: Tensor) -> bool:
    """Whether the total momentum is zero to rounding."""
    return bool((momenta.sum(dim=0).abs() <= AT_REST * momenta.abs().sum()).all())


@dataclass(frozen=True)
class DegreesOfFreedom:
    """What the temperature counts.

    Attributes:
        mobile: (n, 3) components that may move.
        momentum_is_zero: the total momentum stays zero. It can't where an atom is fixed.
        n_rotations: of the whole, that stay zero likewise.
        n_bonds: of fixed length, none of which follows from others.
    """

    mobile: Tensor
    momentum_is_zero: bool = False
    n_rotations: int = 0
    n_bonds: int = 0

    @property
    def n_still(self) -> int:
        """Motions of the whole that stay zero."""
        return 3 + self.n_rotations if self.momentum_is_zero and bool(self.mobile.all()) else 0

    @property
    def count(self) -> int:
        return max(int(self.mobile.sum()) - self.n_still - self.n_bonds, 0)

    def __str__(self) -> str:
        """``3N - 6 - 12 bonds``."""
        parts = ["3N" if bool(self.mobile.all()) else "free"]
        if self.n_still:
            parts.append(str(self.n_still))
        if self.n_bonds:
            parts.append(f"{self.n_bonds} bond{'s' if self.n_bonds > 1 else ''}")
        return " - ".join(parts)


def degrees_of_freedom(mobile: Tensor, momentum_is_zero: bool) -> int:
    """Components that may move, less three where the total momentum is a constant and zero.

    Args:
        mobile: (n, 3) components that may move.
        momentum_is_zero: the ensemble conserves the total momentum, and it is zero.
    """
    return DegreesOfFreedom(mobile, momentum_is_zero).count


def draw_momenta(
    masses: Tensor, mobile: Tensor, temperature_K: float, seed: int, conserves_momentum: bool,
    allowed: Callable[[Tensor], Tensor] | None = None, n_dof: int | None = None,
) -> Tensor:  # fmt: skip
    """Maxwell-Boltzmann momenta by atom id, centre of mass at rest, scaled to the exact temperature.

    The centre of mass is left alone where atoms are fixed (nothing keeps it at rest then) and where there is one
    atom (nothing would be left).

    Args:
        masses: (n,) amu.
        mobile: (n, 3) components that may move.
        temperature_K: K, not negative.
        conserves_momentum: the ensemble's; it decides what the temperature counts as degrees of freedom.
        allowed: the part of momenta (n, 3) that constraints allow, by a projection.
        n_dof: what the temperature counts, where that is known better.

    Returns:
        (n, 3) sqrt(amu·eV).

    Raises:
        InputError: nothing may move.
    """
    if not bool(mobile.any()):
        raise InputError("--init-temperature: every atom is fixed, there is nothing to give velocities to.")
    noise = normals(seed, STREAM_VELOCITIES, 0, torch.arange(len(masses)))
    momenta = noise * torch.sqrt(masses * units.KB * temperature_K)[:, None] * mobile
    free = bool(mobile.all()) and len(masses) > 1
    if free:
        momenta = remove_momentum(momenta, masses)
    if allowed is not None:
        momenta = allowed(momenta)
    if n_dof is None:
        n_dof = degrees_of_freedom(mobile, momentum_is_zero=free and conserves_momentum)
    now = temperature(float((momenta.square().sum(dim=1) / masses).sum()) / 2, n_dof)
    if now == 0:
        return momenta
    momenta = momenta * (temperature_K / now) ** 0.5
    return remove_momentum(momenta, masses) if free else momenta
