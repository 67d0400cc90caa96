"""Pressure as barostats read it: kinetic and virial tensors of the whole system, in one sum over ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from mdrun.comm import Comm
from mdrun.errors import InputError
from mdrun.potentials.base import Forces
from mdrun.state import State


@dataclass
class Tensors:
    """Of all atoms, the same on every rank.

    Attributes:
        kinetic: (3, 3) eV, Σ p ⊗ p / m: its trace is twice the kinetic energy.
        virial: (3, 3) eV, Σ r_ij ⊗ f_ij, symmetrised.
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


def measure_tensors(state: State, forces: Forces, comm: Comm) -> Tensors:
    """A collective.

    Raises:
        InputError: the model gives no virial.
    """
    if forces.virial is None:
        raise InputError("the model gives no virial, so there is no pressure to control. Use --ensemble nve or nvt.")
    local = torch.cat([state.kinetic_tensor().flatten().cpu(), forces.virial.flatten().cpu()])
    kinetic, virial = comm.all_sum(local).numpy().reshape(2, 3, 3)
    return Tensors(kinetic, (virial + virial.T) / 2)
