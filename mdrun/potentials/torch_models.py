"""Which models torch can evaluate, and how."""

from __future__ import annotations

from mdrun.errors import InputError
from mdrun.potentials.base import ForceModel
from mdrun.potentials.eam import EAM
from mdrun.potentials.emt import EMT
from mdrun.potentials.kernels import PairPotential
from mdrun.potentials.stillinger_weber import StillingerWeber
from mdrun.potentials.tersoff import Tersoff
from mdrun.potentials.torch_eam import TorchEAM
from mdrun.potentials.torch_emt import TorchEMT
from mdrun.potentials.torch_pairs import TorchPairs
from mdrun.potentials.torch_three_body import torch_stillinger_weber, torch_tersoff


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
    if isinstance(model, EMT):
        return TorchEMT(model)
    if isinstance(model, StillingerWeber):
        return torch_stillinger_weber(model)
    if isinstance(model, Tersoff):
        return torch_tersoff(model)
    raise NoTorchPath(f"{model.name} has no torch path; run it with --backend numba.")
