"""What the driver asks of a force model, and what it gets back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from torch import Tensor

from mdrun.context import DistributedContext
from mdrun.errors import InputError

if TYPE_CHECKING:
    from mdrun.domain import Domain


@dataclass
class Forces:
    """One evaluation, this rank's share.

    Attributes:
        forces: (n_owned, 3) eV/Å, complete: nothing is left to fold.
        energy: eV, of the owned atoms; None when totals were not asked for.
        virial: (3, 3) eV, the owned atoms' share of Σ r_ij ⊗ f_ij over pairs, f_ij the force on j; None likewise.
            Static stress (ASE's sign, tensile positive) is -virial / volume.
    """

    forces: Tensor
    energy: float | None = None
    virial: Tensor | None = None


@runtime_checkable
class ForceModel(Protocol):
    """A potential. Built once for the species of a structure; called at each step inside an active context.

    Attributes:
        name: as the start-up panel shows it.
        cutoff: Å; the domain's list holds every image nearer than this, and somewhat farther ones.
    """

    @property
    def name(self) -> str: ...

    @property
    def cutoff(self) -> float: ...

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        """Forces on the owned atoms; energy and virial too where ``totals`` is set."""
        ...


def setup(model: ForceModel, context: DistributedContext) -> None:
    """Call the model's ``distributed_setup`` if it has one."""
    hook = getattr(model, "distributed_setup", None)
    if hook is not None:
        hook(context)


def teardown(model: ForceModel) -> None:
    """Call the model's ``distributed_teardown`` if it has one."""
    hook = getattr(model, "distributed_teardown", None)
    if hook is not None:
        hook()


class UnknownSpecies(InputError):
    """The model has no parameters for species of the structure; the caller, who knows the atoms, names them.

    Attributes:
        numbers: atomic numbers that are missing.
    """

    def __init__(self, model: str, numbers: Sequence[int], known: Sequence[str], atoms: str = "") -> None:
        self.model, self.numbers, self.known = model, tuple(numbers), tuple(known)
        super().__init__(
            f"model {model} has no parameters for {', '.join(symbols_of(self.numbers))}{atoms}; "
            f"it knows {', '.join(known)}."
        )


def symbols_of(numbers: Sequence[int]) -> tuple[str, ...]:
    """Chemical symbols of atomic numbers."""
    from ase.data import chemical_symbols

    return tuple(chemical_symbols[z] for z in numbers)
