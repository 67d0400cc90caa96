"""Which models torch can evaluate, and how."""

from __future__ import annotations

from mdrun.errors import InputError
from mdrun.potentials.base import ForceModel
from mdrun.potentials.eam import EAM
from mdrun.potentials.kernels import PairPotential
from mdrun.potentials.torch_eam import TorchEAM
from mdrun.potentials.torch_pairs import TorchPairs


class NoTorchPath(InputError):
    """A model that only Numba's loops compute."""


def on_torch(model: ForceModel) -> ForceModel:
    """The same model, evaluated by torch on the device of its domain.

    Raises:
        NoTorchPath: it can't be.
    """
    if isinstance(model, PairPotential):
        model.evaluate = TorchPairs()
        return model
    if isinstance(model, EAM):
        return TorchEAM(model)
    raise NoTorchPath(f"{model.name} has no torch path; run it with --backend numba.")
