"""Starting velocities and degrees of freedom, of all atoms in the order of the input file."""

from __future__ import annotations

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


def degrees_of_freedom(mobile: Tensor, momentum_is_zero: bool) -> int:
    """Components that may move, less three where the total momentum is a constant and zero.

    Args:
        mobile: (n, 3) components that may move.
        momentum_is_zero: the ensemble conserves the total momentum, and it is zero.
    """
    n_components = int(mobile.sum())
    return max(n_components - 3, 0) if momentum_is_zero and bool(mobile.all()) else n_components


def draw_momenta(masses: Tensor, mobile: Tensor, temperature_K: float, seed: int, conserves_momentum: bool) -> Tensor:
    """Maxwell-Boltzmann momenta by atom id, centre of mass at rest, scaled to the exact temperature.

    The centre of mass is left alone where atoms are fixed (nothing keeps it at rest then) and where there is one
    atom (nothing would be left).

    Args:
        masses: (n,) amu.
        mobile: (n, 3) components that may move.
        temperature_K: K, not negative.
        conserves_momentum: the ensemble's; it decides what the temperature counts as degrees of freedom.

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
    n_dof = degrees_of_freedom(mobile, momentum_is_zero=free and conserves_momentum)
    now = temperature(float((momenta.square().sum(dim=1) / masses).sum()) / 2, n_dof)
    if now == 0:
        return momenta
    momenta = momenta * (temperature_K / now) ** 0.5
    return remove_momentum(momenta, masses) if free else momenta
