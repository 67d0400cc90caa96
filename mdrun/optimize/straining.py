"""The cell as variables of a search: symmetric logarithmic strains, masked, and what they do to the atoms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from mdrun import cell as geometry
from mdrun.errors import InputError
from mdrun.state import State
from mdrun.units import VOIGT

KINDS = ("isotropic", "shape", "full")
LEAST_EXTENT = 3.0  # Å, of matter along an open axis: a layer of atoms


def strain(state: State, deformation: Tensor) -> None:
    """Deform the cell's periodic vectors, and all positions with them, in place: r ← r F, F (3, 3)."""
    state.cell = torch.where(torch.tensor(state.pbc)[:, None], state.cell @ deformation, state.cell)
    state.positions = geometry.mapped(state.positions, deformation)


def allowed_strains(cell: Tensor, pbc: Sequence[bool], kind: str, components: Sequence[str]) -> Tensor:
    """Orthonormal basis of the strains that a search may make of a cell.

    Args:
        cell: (3, 3) Å.
        kind: ``isotropic``, all periodic directions alike; ``shape``, no change of volume; ``full``.
        components: the names in ``VOIGT`` that may differ from zero.

    Returns:
        (k, 3, 3) symmetric; none strains a direction at right angles to the periodic axes. k may be 0.
    """
    along = torch.from_numpy(geometry.filled_space(cell, pbc))
    if kind == "isotropic":
        return (along / along.norm())[None] if any(pbc) else torch.zeros((0, 3, 3), dtype=cell.dtype)
    symmetric = torch.from_numpy(geometry.unit_strains(VOIGT.values()))
    rules = [(one - along @ one @ along).flatten() for one in symmetric]
    forbidden = torch.stack(rules, dim=1)
    masked = torch.diag(torch.tensor([float(name not in components) for name in VOIGT], dtype=cell.dtype))
    trace = torch.einsum("kii->k", symmetric)[None] * float(kind == "shape")
    _, values, rows = torch.linalg.svd(torch.cat([forbidden, masked, trace]))
    return torch.einsum("ka,aij->kij", rows[values < 1e-9], symmetric)


@dataclass
class Straining:
    """cell = cell₀ exp(ε), positions likewise, with ε = Σ_k c_k B_k / L symmetric: no rotation, and no collapse.

    The exponential and its gradient: as ASE's ``FrechetCellFilter``. L = (V/N)^1/3 N^1/2 makes the cell about as stiff
    as an atom: D. Sheppard et al., J. Chem. Phys. 136 (2012) 074103, doi 10.1063/1.3684549.

    Attributes:
        basis: B (k, 3, 3), orthonormal.
        length: L, Å.
        pressure: eV/Å³, what the matter is under; its work counts in the enthalpy.
        thickness: product of the extents (Å) of the matter along open axes, which no cell vector bounds; 1 without any.
        coordinates: c (k,) Å.
    """

    basis: Tensor
    length: float
    pressure: float = 0.0
    thickness: float = 1.0
    coordinates: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.coordinates = torch.zeros(len(self.basis), dtype=torch.float64)

    @property
    def strain(self) -> Tensor:
        """ε (3, 3)."""
        return self.combined(self.coordinates) / self.length

    def combined(self, coefficients: Tensor) -> Tensor:
        """(3, 3) Σ_k c_k B_k."""
        return (coefficients[:, None, None] * self.basis).sum(dim=0)

    def volume(self, state: State) -> float:
        """Å³ that the matter takes up."""
        return abs(float(torch.linalg.det(geometry.completed(state.cell, state.pbc)))) * self.thickness

    def gradient(self, virial: Tensor, volume: float) -> Tensor:
        """(k,) eV/Å dH/dc of H = E + P V at fixed positions in the unstrained cell, given the virial of all ranks.

        dH = (P V 1 - W) : U⁻¹dU with U = exp(ε).
        """
        work = self.pressure * volume * torch.eye(3, dtype=torch.float64)
        by_stretch = _solve(exponential(self.strain), work - virial)
        slope = exponential_slope(self.strain, (by_stretch + by_stretch.T) / 2)
        return (self.basis * slope).sum(dim=(1, 2)) / self.length

    def stress(self, gradient: Tensor, volume: float) -> float:
        """eV/Å³, the largest component of the stress that the gradient leaves to the allowed strains."""
        return float((self.combined(gradient) * self.length / volume).abs().max())

    def move(self, state: State, change: Tensor) -> Tensor:
        """Change c, the cell and the positions with it; the present U (3, 3)."""
        before = exponential(self.strain)
        self.coordinates = self.coordinates + change
        stretch = exponential(self.strain)
        strain(state, _solve(before, stretch))
        return stretch


def make_straining(state: State, kind: str, components: Sequence[str], pressure: float) -> Straining:
    """The allowed strains of the whole system, all of whose atoms are in ``state``.

    Raises:
        InputError: no strain is allowed.
    """
    basis = allowed_strains(state.cell, state.pbc, kind, components)
    if not len(basis):
        raise InputError(
            f"--cell {kind} leaves no strain to relax: the cell is periodic along "
            f"{' '.join(a for a, p in zip('abc', state.pbc, strict=True) if p) or 'no axis'}, and --cell-mask allows "
            f"{','.join(components)}."
        )
    box = geometry.completed(state.cell, state.pbc)
    coordinates = state.positions @ torch.linalg.inv(box)
    extents = coordinates.amax(dim=0) - coordinates.amin(dim=0)
    thickness = math.prod(max(e, LEAST_EXTENT) for e, p in zip(extents.tolist(), state.pbc, strict=True) if not p)
    volume = abs(float(torch.linalg.det(box))) * thickness
    length = (volume / state.n_total) ** (1 / 3) * state.n_total**0.5
    return Straining(basis, length, pressure, thickness)


# By NumPy: the last bits of what torch's library makes of small matrices depend on where in memory they lie.


def _solve(matrix: Tensor, right: Tensor) -> Tensor:
    return torch.from_numpy(np.linalg.solve(matrix.numpy(), right.numpy()))


def exponential(symmetric: Tensor) -> Tensor:
    """(3, 3) exp of a symmetric matrix."""
    return torch.from_numpy(geometry.exponential(symmetric.numpy())[0])


def exponential_slope(symmetric: Tensor, slope: Tensor) -> Tensor:
    """(3, 3) dφ/dA, given A and dφ/d exp(A), both symmetric.

    Divided differences of the exponential in A's eigenvectors: Ju. L. Daleckii, S. G. Krein (1965); N. J. Higham,
    *Functions of Matrices* (2008), theorem 3.11.
    """
    values, vectors = np.linalg.eigh(symmetric.numpy())
    half_gap = (values[:, None] - values) / 2
    safe = np.where(half_gap == 0, 1.0, half_gap)
    ratios = np.exp((values[:, None] + values) / 2) * np.where(half_gap == 0, 1.0, np.sinh(safe) / safe)
    return torch.from_numpy(vectors @ (ratios * (vectors.T @ slope.numpy() @ vectors)) @ vectors.T)
