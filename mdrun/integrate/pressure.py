"""Pressure as barostats read it: kinetic and virial tensors of the whole system, in one sum over ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mdrun import units
from mdrun.comm import Comm
from mdrun.errors import InputError
from mdrun.potentials.base import Forces
from mdrun.state import State


@dataclass
class Tensors:
    """Of all atoms, the same on every rank.

    Attributes:
        kinetic: (3, 3) eV, Σ p ⊗ p / m: its trace is twice the kinetic energy.
        virial: (3, 3) eV, what ``virial_that_follows`` gives.
    """

    kinetic: np.ndarray
    virial: np.ndarray

    @property
    def kinetic_energy(self) -> float:
        return float(np.trace(self.kinetic)) / 2

    @property
    def force_on_strain(self) -> np.ndarray:
        """(3, 3) eV: the pressure times the volume."""
        return self.kinetic + self.virial


def no_virial(n_ranks: int) -> str:
    """What is said of a model where it is missed."""
    return f"the model gives no virial{' on several ranks; it may on one' if n_ranks > 1 else ''}"


def measure_tensors(state: State, forces: Forces, comm: Comm) -> Tensors:
    """A collective.

    Raises:
        InputError: the model gives no virial.
    """
    if forces.virial is None:
        raise InputError(f"{no_virial(comm.size)}. So there is no pressure to control: use --ensemble nve or nvt.")
    local = torch.cat([state.kinetic_tensor().flatten().cpu(), virial_that_follows(state, forces).flatten()])
    kinetic, virial = comm.all_sum(local).numpy().reshape(2, 3, 3)
    return Tensors(kinetic, virial)


def virial_that_follows(state: State, forces: Forces) -> Tensor:
    """(3, 3) eV, this rank's share of -dU/dε for a symmetric strain ε of the cell that fixed components don't follow.

    Σ r_ij ⊗ f_ij is the slope where every atom follows; the work of the forces on what stays is taken off.
    """
    assert forces.virial is not None
    virial = forces.virial.detach().cpu()
    if not state.is_free:
        held = forces.forces * ~state.mobile
        spread = [(state.positions[:, a] * held[:, b]).sum() for a in range(3) for b in range(3)]
        virial = virial - torch.stack(spread).reshape(3, 3).cpu()
    return (virial + virial.T) / 2


def in_gpa(pressure: np.ndarray) -> str:
    """A tensor (3, 3) eV/Å³ for people: one number where it is the same from all sides."""
    tensor = pressure / units.GPA
    if np.array_equal(tensor, tensor[0, 0] * np.eye(3)):
        return f"{tensor[0, 0]:g} GPa"
    return " ".join(f"{name} {tensor[ab]:g}" for name, ab in units.VOIGT.items()) + " GPa"
