"""Any ASE calculator: ``ase:MODULE:CLASS,key=value,...`` or ``ase:FILE.py:CLASS,...``, further keyword arguments in a
file: ``toml=FILE``.

On one rank it is called as it is. On several it has to say how far an atom's energy reaches, in its attribute
``receptive_field`` (Å) or by ``reach=Å`` here, and to give energies of atoms: each rank then shows it its own atoms and
those within twice that distance, since a force on an atom comes from all energies that feel it.
"""

from __future__ import annotations

import importlib
import math
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.calculators.calculator import Calculator, CalculatorError, PropertyNotImplementedError, all_changes

from mdrun.domain import Domain
from mdrun.errors import InputError
from mdrun.potentials.adapters.packages import quiet
from mdrun.potentials.base import ForceModel, Forces, symbols_of
from mdrun.potentials.user_files import module_of_file
from mdrun.units import VOIGT

LIST_CUTOFF = 1.0  # Å: the calculator finds its neighbours by itself


class ASECalculator:
    """The force model.

    Args:
        calculator: ASE's.
        numbers: atomic numbers of the structure's types.
        name: as the start-up panel shows it.
        reach: Å, how far an atom's energy depends on others; None where nobody says.
    """

    runs_torch = True  # or may: a calculator is free to use what it likes

    def __init__(self, calculator: Calculator, numbers: tuple[int, ...], name: str, reach: float | None) -> None:
        self.calculator, self.name, self.reach = calculator, name, reach
        self.cutoff = LIST_CUTOFF
        self._numbers = np.array(numbers)
        self._has_computed = False

    @property
    def ghost_reach(self) -> float:
        """Å; see ``Domain``. Where one rank has all atoms, no copy of them is needed."""
        return 2 * self.reach if self.reach is not None else 0.0

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        if domain.comm.size > 1:
            return self._of_cluster(domain, totals)
        order = domain.ids[: domain.n_owned].argsort()
        atoms = self._atoms(domain, order.cpu(), domain.pbc)
        found = self._results(atoms, ["energy", "forces", *(["stress"] if totals and atoms.cell.rank == 3 else [])])
        forces = np.empty_like(found["forces"])
        forces[order.cpu().numpy()] = found["forces"]
        virial = None
        if "stress" in found:
            virial = -torch.from_numpy(_square(found["stress"])) * atoms.get_volume()
        return Forces(torch.from_numpy(forces).to(domain.backend.device), float(found["energy"]), virial)

    def _of_cluster(self, domain: Domain, totals: bool) -> Forces:
        n = domain.n_owned
        if self.reach is None or "energies" not in self.calculator.implemented_properties:
            raise InputError(
                f"{self.name} runs on one rank alone: on several, it must say how far an atom's energy reaches (reach=Å"
                " behind its name, or an attribute receptive_field) and give energies of atoms. Start it without "
                "torchrun, or with one process."
            )
        if n == 0:
            return Forces(torch.zeros((0, 3), dtype=torch.float64, device=domain.backend.device), 0.0)
        found = self._results(self._atoms(domain, torch.arange(domain.n_padded), (False,) * 3), ["energies", "forces"])
        forces = torch.from_numpy(np.ascontiguousarray(found["forces"][:n], dtype=float))
        return Forces(forces.to(domain.backend.device), float(np.sum(found["energies"][:n])))

    def _atoms(self, domain: Domain, rows: torch.Tensor, pbc: tuple[bool, ...]) -> Atoms:
        chosen = rows.numpy()
        return Atoms(
            self._numbers[domain.types.cpu().numpy()[chosen]],
            positions=domain.packed[:-1, :3].cpu().numpy()[chosen],
            charges=domain.charges.cpu().numpy()[chosen],
            cell=domain.cell.cpu().numpy() if any(pbc) else None,
            pbc=pbc,
        )

    def _results(self, atoms: Atoms, properties: list[str]) -> dict[str, Any]:
        available = [p for p in properties if p in self.calculator.implemented_properties or p in ("energy", "forces")]
        try:
            self.calculator.reset()
            self.calculator.calculate(atoms, available, all_changes)
        except (CalculatorError, PropertyNotImplementedError) as error:
            raise InputError(f"{self.name} can't compute {', '.join(available)}: {error}") from error
        except Exception as error:  # in whatever way it says that it doesn't know these atoms
            if self._has_computed:
                raise
            symbols = ", ".join(symbols_of(sorted(set(atoms.numbers))))
            raise InputError(
                f"{self.name} can't compute these atoms ({symbols}): {type(error).__name__}: {error}"
            ) from error
        self._has_computed = True
        results = self.calculator.results
        missing = [p for p in properties if p not in results and p != "stress"]
        if missing:
            raise InputError(f"{self.name} gives no {', '.join(missing)}.")
        return {p: np.asarray(results[p], dtype=float) for p in properties if p in results}


def _square(stress: np.ndarray) -> np.ndarray:
    """(3, 3) from ASE's six components, or as it is."""
    if stress.shape == (3, 3):
        return stress
    square = np.empty((3, 3))
    for value, (row, column) in zip(stress, VOIGT.values(), strict=True):
        square[row, column] = square[column, row] = value
    return square


def load(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> ForceModel:
    """See the module's text; naming the class is the consent to run its code.

    Raises:
        InputError: there is no such class, or it doesn't take the arguments.
    """
    module_name, colon, class_name = (argument or "").partition(":")
    if not colon or not class_name.isidentifier():
        raise InputError(
            "ase takes a module and a class, and keyword arguments: ase:ase.calculators.lj:LennardJones,sigma=3.4,"
            "rc=8, or all arguments from a file: ase:MODULE:CLASS,toml=FILE."
        )
    arguments = dict(options)
    reach = arguments.pop("reach", None)
    path = arguments.pop("toml", None)
    given = {**(_from_file(Path(path)) if path else {}), **{key: _value(text) for key, text in arguments.items()}}
    try:
        with quiet():
            calculator = getattr(_module(module_name), class_name)(**given)
    except InputError:
        raise
    except Exception as error:
        own = " For a class in a file of yours: ase:FILE.py:CLASS." if isinstance(error, ModuleNotFoundError) else ""
        raise InputError(f"ase:{argument} can't be made: {type(error).__name__}: {error}.{own}") from error
    if not hasattr(calculator, "calculate") or not hasattr(calculator, "implemented_properties"):
        raise InputError(f"ase:{argument} is a {type(calculator).__name__}, which is no ASE calculator.")
    if reach is None:
        reach = getattr(calculator, "receptive_field", None)
    return ASECalculator(calculator, numbers, f"ase:{argument}", None if reach is None else _length(reach))


def _module(name: str) -> ModuleType:
    """The module of that name, or in that file."""
    return module_of_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)


def _length(text: Any) -> float:
    try:
        reach = float(text)
    except (TypeError, ValueError):
        reach = math.nan
    if not 0 < reach < math.inf:
        raise InputError(f"reach={text} of an ASE calculator must be a length in Å above 0.")
    return reach


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the calculator's arguments {path} can't be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the calculator's arguments {path} are not TOML: {error}.") from error


def _value(text: str) -> Any:
    """As TOML has it, else the words themselves."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
