"""The atoms that one rank owns, and the table of their fields.

Migration, halo, checkpoint and output read ``FIELDS``: a per-atom quantity declared there travels with its atom.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from mdrun import units


@dataclass(frozen=True)
class Field:
    """One per-atom quantity: its width (``()`` a number, ``(3,)`` a vector), type, and whether ghosts carry it."""

    name: str
    width: tuple[int, ...]
    dtype: torch.dtype
    in_halo: bool = False


FIELDS = (
    Field("ids", (), torch.int64, in_halo=True),
    Field("types", (), torch.int32, in_halo=True),
    Field("charges", (), torch.float64, in_halo=True),
    Field("masses", (), torch.float64),
    Field("mobile", (3,), torch.bool),
    Field("positions", (3,), torch.float64),
    Field("momenta", (3,), torch.float64),
)


@dataclass
class State:
    """Owned atoms in file-independent order; ``ids`` say which atom of the input each row is.

    Attributes:
        cell: (3, 3) row vectors, Å. Rows of open axes may be anything, zero included.
        pbc: periodic axes.
        numbers: atomic number of each type; ``types`` index it.
        ids: (n,) index in the input file.
        types: (n,) index into ``numbers``.
        charges: (n,) e.
        masses: (n,) amu.
        mobile: (n, 3) components that may move.
        positions: (n, 3) Å, unwrapped: they never jump by a cell vector.
        momenta: (n, 3) sqrt(amu·eV).
        n_lattice_changes: how often ``cell`` was given other vectors of its lattice.
        carried: (n, ...) by name, what a method keeps of each atom beside; it travels with the atom, and every rank
            has the same names.
    """

    cell: Tensor
    pbc: tuple[bool, bool, bool]
    numbers: tuple[int, ...]
    ids: Tensor
    types: Tensor
    charges: Tensor
    masses: Tensor
    mobile: Tensor
    positions: Tensor
    momenta: Tensor
    n_total: int = field(default=0)
    n_lattice_changes: int = field(default=0, init=False)
    carried: dict[str, Tensor] = field(default_factory=dict, init=False)
    _looked_at: Tensor | None = field(default=None, init=False, repr=False)
    _is_free: bool = field(default=True, init=False, repr=False)

    @property
    def n_owned(self) -> int:
        return len(self.ids)

    @property
    def is_free(self) -> bool:
        """Whether nothing that is owned here is fixed; looked up once for each ``mobile``, since loops ask."""
        if self._looked_at is not self.mobile:
            self._looked_at, self._is_free = self.mobile, bool(self.mobile.all())
        return self._is_free

    @property
    def table(self) -> tuple[Field, ...]:
        """``FIELDS``, and after them what is carried."""
        return (*FIELDS, *(Field(name, tuple(v.shape[1:]), v.dtype) for name, v in self.carried.items()))

    def fields(self) -> dict[str, Tensor]:
        """Every per-atom array by name, in the order of ``table``."""
        return {**{f.name: getattr(self, f.name) for f in FIELDS}, **self.carried}

    def replace_fields(self, arrays: Mapping[str, Tensor]) -> None:
        """Put new rows in place of the old ones, all fields at once."""
        for f in FIELDS:
            setattr(self, f.name, arrays[f.name])
        self.carried = {name: arrays[name] for name in self.carried}

    def reorder(self, order: Tensor) -> None:
        """Put the rows in another order (n,), field after field: only one of them is there twice."""
        for f in FIELDS:
            setattr(self, f.name, getattr(self, f.name).index_select(0, order))
        for name, values in self.carried.items():
            self.carried[name] = values.index_select(0, order)

    def move_to(self, device: torch.device) -> None:
        """Put the per-atom arrays on a device; the cell stays on the host."""
        self.replace_fields({name: values.to(device) for name, values in self.fields().items()})

    def kinetic_energy(self) -> Tensor:
        """() Σ p²/2m of the owned atoms, eV, on their device."""
        return self.kinetic_tensor().diagonal().sum() / 2

    def kinetic_tensor(self) -> Tensor:
        """(3, 3) Σ p ⊗ p / m of the owned atoms, eV, on their device; its trace is twice the kinetic energy."""
        p = self.momenta
        if p.is_cpu:  # torch makes six passes and as many arrays of it; and the bits of a matrix product follow
            return torch.from_numpy(_kinetic_tensor(p.numpy(), self.masses.numpy()))  # where in memory the rows lie
        columns = [(p[:, a] * p[:, b] / self.masses).sum() for a, b in units.VOIGT.values()]
        xx, yy, zz, yz, xz, xy = columns
        return torch.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz]).reshape(3, 3)

    def change_lattice_vectors(self, cell: Tensor) -> None:
        """Describe the same lattice by other vectors (3, 3) Å; positions, which are unwrapped, stay."""
        self.cell = cell
        self.n_lattice_changes += 1


def temperature(kinetic: float, n_dof: int) -> float:
    """K, from the kinetic energy (eV) of ``n_dof`` degrees of freedom; 0 where there are none."""
    return 2 * kinetic / (n_dof * units.KB) if n_dof > 0 else 0.0


@njit(parallel=True, cache=True)
def _kinetic_tensor(momenta, masses):
    xx = yy = zz = yz = xz = xy = 0.0
    for i in prange(len(momenta)):
        x, y, z = momenta[i, 0], momenta[i, 1], momenta[i, 2]
        lightness = 1 / masses[i]
        xx += lightness * x * x
        yy += lightness * y * y
        zz += lightness * z * z
        yz += lightness * y * z
        xz += lightness * x * z
        xy += lightness * x * y
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
