"""What the user asked of ``relax``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mdrun.run.ensemble_options import INFINITY, refuse
from mdrun.run.settings import Settings
from mdrun.units import VOIGT

OPTIMIZERS = ("lbfgs", "fire")
CELLS = ("none", "isotropic", "shape", "full")
OF_SIMULATE = (
    "structure", "format", "index", "replicate", "species", "freeze", "model", "trust_model", "out", "overwrite",
    "device", "backend", "precision", "strategy", "compile", "threads", "skin", "steps", "log_every",
    "trajectory_every", "trajectory", "trajectory_atoms", "trajectory_precision", "wrap", "comm_timeout", "max_hours",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RelaxSettings(Settings):
    """Options of ``relax``: its own, and those of ``simulate`` that say what to read, compute with and write.

    All others of ``simulate`` are at their defaults, which ask for nothing.
    """

    command: ClassVar[str] = "relax"

    optimizer: str = "lbfgs"
    fmax: float = 0.01
    cell: str = "none"
    cell_mask: str | None = None
    pressure: float = 0.0
    stress_max: float = 0.01
    log_every: int = 1
    trajectory_every: int = 100
    checkpoint_every: int | str = 0

    @classmethod
    def options(cls) -> tuple[str, ...]:
        return (*OF_SIMULATE, "optimizer", "fmax", "cell", "cell_mask", "pressure", "stress_max")

    @property
    def strains(self) -> tuple[str, ...]:
        """Components of strain that the cell may make, where it may."""
        if self.cell_mask is None:
            return tuple(VOIGT)
        return tuple(name.strip() for name in self.cell_mask.lower().split(","))

    def check(self) -> None:
        self.check_execution()
        for name, known in (("optimizer", OPTIMIZERS), ("cell", CELLS)):
            value = getattr(self, name)
            refuse(value not in known, name, value, "one of " + ", ".join(known))
        refuse(not 0 < self.fmax < INFINITY, "fmax", self.fmax, "a force in eV/Å above 0")
        refuse(not 0 < self.stress_max < INFINITY, "stress-max", self.stress_max, "a stress in GPa above 0")
        refuse(not -INFINITY < self.pressure < INFINITY, "pressure", self.pressure, "a pressure in GPa")
        named = set(self.strains) <= set(VOIGT)
        refuse(not named, "cell-mask", self.cell_mask, "some of " + ",".join(VOIGT) + ", separated by commas")
        has_mask, has_pressure = self.cell_mask is not None, self.pressure != 0
        mask_fits, pressure_fits = self.cell in ("shape", "full"), self.cell in ("isotropic", "full")
        refuse(has_mask and not mask_fits, "cell-mask", self.cell_mask, "--cell full or --cell shape beside it")
        refuse(
            has_pressure and not pressure_fits,
            "pressure",
            self.pressure,
            "a cell whose volume may change: --cell full or --cell isotropic beside it",
        )
