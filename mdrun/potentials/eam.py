"""The embedded-atom method: E = Σ_i F(ρ_i) + ½ Σ_ij φ(r_ij), with ρ_i = Σ_j f_j(r_ij).

M. S. Daw and M. I. Baskes, Phys. Rev. B 29 (1984) 6443, doi 10.1103/PhysRevB.29.6443; M. W. Finnis and J. E. Sinclair,
Philos. Mag. A 50 (1984) 45, doi 10.1080/01418618408244210, where f_j depends on the species of i too.

Between grid points the functions are cubic Hermite polynomials whose slopes are five-point differences: the choice of
LAMMPS, whose numbers are the ones that a published file is compared with. Another spline differs by 1e-3 eV/Å.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numba import njit, prange

from mdrun.domain import Domain
from mdrun.potentials.base import Forces, UnknownSpecies, symbols_of
from mdrun.potentials.eam_files import EamTables, read_eam
from mdrun.potentials.kernels import FASTMATH, virial_tensor
from mdrun.verbs import refresh_neighbors


@dataclass
class EAM:
    """Two passes over the list, the embedding's derivative refreshed between them.

    Attributes:
        symbols: elements that the file covers.
        density: (n_types, n_types, n_r, 4) [i, j] cubic of what j contributes at i.
        pair: (n_types, n_types, n_r, 8) [i, j] one cache line an interval: the cubic of r φ, then c3, c2, c1 of the
            density above, whose value the forces don't need.
        embedding: (n_types, n_rho, 4) cubic of F.
    """

    is_compiled = True

    name: str
    symbols: tuple[str, ...]
    cutoff: float
    d_r: float
    d_rho: float
    density: np.ndarray
    pair: np.ndarray
    embedding: np.ndarray

    @classmethod
    def from_file(cls, path: Path, numbers: tuple[int, ...]) -> EAM:
        """For the species ``numbers`` of a structure.

        Raises:
            InputError: the file can't be read.
            UnknownSpecies: it lacks a species.
        """
        return cls.from_tables(read_eam(path), numbers, f"EAM, {path.name}")

    @classmethod
    def from_tables(cls, tables: EamTables, numbers: tuple[int, ...], name: str) -> EAM:
        """The same from tables in memory."""
        symbols = symbols_of(numbers)
        missing = [z for z, s in zip(numbers, symbols, strict=True) if s not in tables.symbols]
        if missing:
            raise UnknownSpecies(name, numbers=missing, known=tables.symbols)
        rows = [tables.symbols.index(s) for s in symbols]
        density = hermite(np.swapaxes(tables.density[np.ix_(rows, rows)], 0, 1))
        pair = np.zeros((*density.shape[:3], 8))
        pair[..., :4] = hermite(tables.r_phi[np.ix_(rows, rows)])
        pair[..., 4:7] = density[..., :3]
        return cls(
            name=f"{name}, cutoff {tables.cutoff:.4g} Å",
            symbols=tables.symbols,
            cutoff=tables.cutoff,
            d_r=tables.d_r,
            d_rho=tables.d_rho,
            density=density,
            pair=pair,
            embedding=hermite(tables.embedding[rows]),
        )

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        n = domain.n_owned
        x, types = domain.positions.numpy(), domain.types.numpy()
        neighbors, n_neighbors = domain.neighbors.numpy(), domain.n_neighbors.numpy()
        slope, forces = np.empty(n), np.empty((n, 3))
        cutoff2 = self.cutoff * self.cutoff
        embedded = _embed(
            x, types, neighbors, n_neighbors, self.density, 1 / self.d_r, self.embedding, 1 / self.d_rho, cutoff2, slope
        )
        slopes = refresh_neighbors(torch.from_numpy(slope)).numpy()
        sums = _push(x, types, neighbors, n_neighbors, self.pair, 1 / self.d_r, slopes, cutoff2, forces, totals)
        if not totals:
            return Forces(torch.from_numpy(forces))
        return Forces(torch.from_numpy(forces), float(embedded + sums[0]), virial_tensor(sums[1:]))


def hermite(values: np.ndarray) -> np.ndarray:
    """(..., n, 4) c3, c2, c1, c0 of the cubic on each interval of an even grid, in units of the interval.

    Args:
        values: (..., n) at the grid points; the last row of coefficients holds the last point as a constant.
    """
    slope = np.empty_like(values)
    slope[..., 2:-2] = (values[..., :-4] - values[..., 4:] + 8 * (values[..., 3:-1] - values[..., 1:-3])) / 12
    slope[..., 0], slope[..., -1] = values[..., 1] - values[..., 0], values[..., -1] - values[..., -2]
    slope[..., 1], slope[..., -2] = (values[..., 2] - values[..., 0]) / 2, (values[..., -1] - values[..., -3]) / 2
    rise = np.diff(values)
    cubics = np.zeros((*values.shape, 4))
    cubics[..., :-1, 0] = slope[..., :-1] + slope[..., 1:] - 2 * rise
    cubics[..., :-1, 1] = 3 * rise - 2 * slope[..., :-1] - slope[..., 1:]
    cubics[..., 2], cubics[..., 3] = slope, values
    return cubics


@njit(inline="always")
def _interval(x, n):
    """Interval and place in it of a coordinate in units of the grid, as LAMMPS has it: below the grid the first cubic
    goes on, above it the last value holds. A NaN, whatever integer it becomes, stays within the table."""
    m = max(min(int(x), n - 2), 0)
    return m, min(x - m, 1.0)


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def _embed(x, types, neighbors, n_neighbors, density, per_r, embedding, per_rho, cutoff2, slope):
    """Fill ``slope`` with F'(ρ) of the owned atoms; the sum of their F."""
    n_r, n_rho = density.shape[2], embedding.shape[1]
    end = (n_rho - 1) / per_rho
    energy = 0.0
    for i in prange(len(slope)):
        xi, yi, zi = x[0, i], x[1, i], x[2, i]
        mine = density[types[i]]
        rho = 0.0
        for k in range(n_neighbors[i]):
            j = neighbors[i, k]
            dx, dy, dz = x[0, j] - xi, x[1, j] - yi, x[2, j] - zi
            r2 = dx * dx + dy * dy + dz * dz
            if not r2 >= cutoff2:  # NaN goes on, into the forces
                m, p = _interval(np.sqrt(r2) * per_r, n_r)
                c = mine[types[j], m]
                rho += ((c[0] * p + c[1]) * p + c[2]) * p + c[3]
        m, p = _interval(rho * per_rho, n_rho)
        c = embedding[types[i], m]
        slope[i] = ((3.0 * c[0] * p + 2.0 * c[1]) * p + c[2]) * per_rho
        energy += ((c[0] * p + c[1]) * p + c[2]) * p + c[3]
        if rho > end:  # a straight line beyond the table
            energy += slope[i] * (rho - end)
        if not np.isfinite(rho):
            slope[i] = np.nan
    return energy


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def _push(x, types, neighbors, n_neighbors, pair, per_r, slopes, cutoff2, forces, totals):
    """Fill ``forces``; half sums of pair energy and virial where ``totals``."""
    n_r = pair.shape[2]
    energy = wxx = wyy = wzz = wyz = wxz = wxy = 0.0
    for i in prange(len(forces)):
        xi, yi, zi = x[0, i], x[1, i], x[2, i]
        ti, slope_i = types[i], slopes[i]
        fx = fy = fz = e = vxx = vyy = vzz = vyz = vxz = vxy = 0.0
        for k in range(n_neighbors[i]):
            j = neighbors[i, k]
            dx, dy, dz = x[0, j] - xi, x[1, j] - yi, x[2, j] - zi
            r2 = dx * dx + dy * dy + dz * dz
            if not r2 >= cutoff2:
                r = np.sqrt(r2)
                tj = types[j]
                m, p = _interval(r * per_r, n_r)
                c = pair[ti, tj, m]
                inverse = 1.0 / r
                phi = (((c[0] * p + c[1]) * p + c[2]) * p + c[3]) * inverse
                d_r_phi = ((3.0 * c[0] * p + 2.0 * c[1]) * p + c[2]) * per_r
                d_here = ((3.0 * c[4] * p + 2.0 * c[5]) * p + c[6]) * per_r
                d_there = d_here
                if ti != tj:
                    b = pair[tj, ti, m]
                    d_there = ((3.0 * b[4] * p + 2.0 * b[5]) * p + b[6]) * per_r
                # force over r on j: -dE/dr / r
                f = -(slope_i * d_here + slopes[j] * d_there + (d_r_phi - phi) * inverse) * inverse
                fx -= f * dx
                fy -= f * dy
                fz -= f * dz
                if totals:
                    e += phi
                    vxx += f * dx * dx
                    vyy += f * dy * dy
                    vzz += f * dz * dz
                    vyz += f * dy * dz
                    vxz += f * dx * dz
                    vxy += f * dx * dy
        forces[i, 0], forces[i, 1], forces[i, 2] = fx, fy, fz
        energy += e
        wxx += vxx
        wyy += vyy
        wzz += vzz
        wyz += vyz
        wxz += vxz
        wxy += vxy
    return 0.5 * np.array([energy, wxx, wyy, wzz, wyz, wxz, wxy])
