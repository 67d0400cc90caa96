"""metatomic models, through the package's own ASE calculator: ``metatomic:FILE``, a model as metatomic exports it.

The file says how far an atom's energy depends on others, its interaction range; that is the reach on several ranks.
Bigi et al., arXiv:2508.15704.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from ase.calculators.calculator import Calculator

from mdrun.domain import Domain
from mdrun.errors import InputError
from mdrun.potentials.adapters.ase_calculator import ASECalculator
from mdrun.potentials.adapters.packages import needed, quiet
from mdrun.potentials.base import ForceModel, Forces, UnknownSpecies, symbols_of


class Metatomic(ASECalculator):
    """Computes where the atoms are: left alone, the package's calculator takes a GPU if it finds one.

    Args:
        make: the calculator, by the keyword ``device`` on that.
    """

    def __init__(
        self, make: Callable[..., Calculator], numbers: tuple[int, ...], name: str, reach: float | None
    ) -> None:
        super().__init__(make(), numbers, name, reach)
        self._make = make
        self._device: torch.device | None = None

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        device = domain.backend.device
        if device != self._device:
            try:
                self.calculator, self._device = self._make(device=str(device)), device
            except ValueError as error:
                raise InputError(f"{self.name} does not run on --device {device.type}: {error}") from error
        return super().__call__(domain, totals)


def load(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> ForceModel:
    """See the module's text. The file is TorchScript, no pickle; it computes in the precision that it was exported in.

    Raises:
        InputError: the package or the file is not there, or it is no such model.
        UnknownSpecies: it was not trained on one.
    """
    if argument is None or options:
        raise InputError("metatomic takes a model file and nothing else: metatomic:FILE.")
    path = Path(argument)
    if not path.is_file():
        raise InputError(f"the model file {path} does not exist.")
    metatomic, ase = needed("metatomic.torch", "metatomic"), needed("metatomic_ase", "metatomic")
    try:
        with quiet():
            model = metatomic.load_atomistic_model(str(path))
            calculator = partial(ase.MetatomicCalculator, model)
    except Exception as error:
        raise InputError(f"metatomic:{path} can't be loaded: {type(error).__name__}: {error}") from error
    can = model.capabilities()
    missing = sorted(set(numbers) - set(can.atomic_types))
    if missing:
        raise UnknownSpecies(f"metatomic:{path.name}", missing, symbols_of(can.atomic_types))
    angstrom = {"angstrom": 1.0, "nm": 10.0, "bohr": 0.529177210903}.get(can.length_unit.lower(), math.nan)
    reach = float(can.interaction_range) * angstrom
    try:
        with quiet():
            return Metatomic(calculator, numbers, f"metatomic:{path.name}", reach if 0 < reach < math.inf else None)
    except Exception as error:
        raise InputError(f"metatomic:{path} can't be used here: {type(error).__name__}: {error}") from error
