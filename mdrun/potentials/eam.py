"""The embedded-atom method: E = Σ_i F(ρ_i) + ½ Σ_ij φ(r_ij), with ρ_i = Σ_j f_j(r_ij).

M. S. Daw and M. I. Baskes, Phys. Rev. B 29 (1984) 6443, doi 10.1103/PhysRevB.29.6443; M. W. Finnis and J. E. Sinclair,
Philos. Mag. A 50 (1984) 45, doi 10.1080/01418618408244210, where f_j depends on the species of i too.

Between grid points the functions are cubic Hermite polynomials whose slopes are five-point differences: the choice of
LAMMPS, whose numbers are the ones that a published file is compared with. Another spline differs by 1e-3 eV/Å.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numba
import numpy as np
import torch
from numba import njit, prange

from mdrun.domain import Domain
from mdrun.errors import InputError
from mdrun.lanes import indices_at, rows_at
from mdrun.lookup import table_rows
from mdrun.potentials.arithmetic import sqrt
from mdrun.potentials.base import Forces, UnknownSpecies, symbols_of
from mdrun.potentials.eam_files import EamTables, read_eam
from mdrun.potentials.kernels import virial_tensor
from mdrun.potentials.pair_sums import no_pairs, settle, with_pairs
from mdrun.potentials.precision import DOUBLE, Precision
from mdrun.potentials.short_list import ShortList
from mdrun.vectors import FASTMATH, choose, floor, n_lanes, total, zeros
from mdrun.verbs import refresh_neighbors

MANY = True  # rows of tables, too many to choose among by comparisons
MOST_ROWS = 2**24  # whole numbers that float32 has


@dataclass
class EAM:
    """Two passes over the list, the embedding's derivative refreshed between them.

    Attributes:
        symbols: elements that the file covers.
        density: (n_types, n_types, n_r, 4) [i, j] cubic of what j contributes at i.
        r_phi: (n_types, n_types, n_r, 4) [i, j] cubic of r φ. The last row of both is zero, for what is farther away.
        embedding: (n_types, n_rho, 4) cubic of F.
    """

    is_compiled = True

    name: str
    symbols: tuple[str, ...]
    cutoff: float
    d_r: float
    d_rho: float
    density: np.ndarray
    r_phi: np.ndarray
    embedding: np.ndarray
    precision: Precision = field(default=DOUBLE, kw_only=True)

    def __post_init__(self) -> None:
        self.short_list = ShortList(np.full(self.density.shape[:2], self.cutoff * self.cutoff))

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
        """The same from tables in memory.

        Raises:
            InputError: they are beyond all measure.
        """
        symbols = symbols_of(numbers)
        missing = [z for z, s in zip(numbers, symbols, strict=True) if s not in tables.symbols]
        if missing:
            raise UnknownSpecies(name, numbers=missing, known=tables.symbols)
        rows = [tables.symbols.index(s) for s in symbols]
        density = hermite(np.swapaxes(tables.density[np.ix_(rows, rows)], 0, 1))
        r_phi = hermite(tables.r_phi[np.ix_(rows, rows)])
        if r_phi.size // 4 > MOST_ROWS:
            raise InputError(
                f"{name}: {r_phi.size // 4} grid points for all pairs of species; {MOST_ROWS} are the most."
            )
        density[..., -1, :] = r_phi[..., -1, :] = 0  # for whatever is beyond the cutoff
        return cls(
            name=f"{name}, cutoff {tables.cutoff:.4g} Å",
            symbols=tables.symbols,
            cutoff=tables.cutoff,
            d_r=tables.d_r,
            d_rho=tables.d_rho,
            density=density,
            r_phi=r_phi,
            embedding=hermite(tables.embedding[rows]),
        )

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        number, zero, n_chunks = self.precision.terms, self.precision.sums(0), numba.get_num_threads()
        short, n_short = self.short_list.pick(domain)
        packed = domain.packed_in(number).numpy()
        density: np.ndarray = self.density.reshape(-1, 4).astype(number, copy=False)
        r_phi: np.ndarray = self.r_phi.reshape(-1, 4).astype(number, copy=False)
        n_types, n_r = self.density.shape[1:3]
        per_r, cutoff2 = number(1 / self.d_r), number(self.cutoff * self.cutoff)
        # Numba compiles a loop of its own for each choice of None
        mixture = None if n_types == 1 else n_types
        slope, forces = np.empty(domain.n_owned), np.empty((domain.n_owned, 3))
        embedded = _embed(
            packed, short, n_short, density, n_r, per_r, cutoff2, self.embedding, 1 / self.d_rho, mixture, slope, zero,
            n_chunks,
        )  # fmt: skip
        padded = refresh_neighbors(torch.from_numpy(slope), "slopes").numpy()
        slopes: np.ndarray = np.append(padded, 0.0).astype(number, copy=False)
        sums = _push(
            packed, short, n_short, density, r_phi, n_r, per_r, cutoff2, slopes, mixture, forces, zero,
            True if totals else None, n_chunks,
        )  # fmt: skip
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


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _interval(t, last):
    """Interval and place in it of coordinates in units of the grid, as LAMMPS has it: below the grid the first cubic
    goes on, above it the last value holds. The place of a NaN is NaN, its interval within the table."""
    m = floor(min(max(0.0, t), last))
    return m, min(t - m, 1.0)


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _value(c, p):
    return ((c[0] * p + c[1]) * p + c[2]) * p + c[3]


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _slope(c, p):
    first = c[0] * p
    half = first + c[1]
    return (first + half + half) * p + c[2]


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def _embed(packed, short, n_short, density, n_r, per_r, cutoff2, embedding, per_rho, n_types, slope, zero, n_chunks):
    """Fill ``slope`` with F'(ρ) of the owned atoms; the sum of their F. ``n_types`` is None for one."""
    n, n_rho = len(slope), embedding.shape[1]
    end = (n_rho - 1) / per_rho
    energy = 0.0
    for chunk in prange(n_chunks):
        for i in range(chunk * n // n_chunks, (chunk + 1) * n // n_chunks):
            xi, yi, zi, ti = packed[i, 0], packed[i, 1], packed[i, 2], int(packed[i, 3])
            sum_rho = zeros(packed)
            for k in range(0, n_short[i], n_lanes(packed)):  # the last vector is filled up with a row far away
                x, y, z, types = rows_at(packed, short[i], k)
                dx, dy, dz = x - xi, y - yi, z - zi
                r2 = dx * dx + dy * dy + dz * dz
                m, p = _interval(sqrt(r2) * per_r, n_r - 2)
                if n_types is not None:
                    m += (ti * n_types + types) * n_r
                at = choose(r2 >= cutoff2, n_r - 1, m)  # false for NaN, which must reach the forces
                sum_rho += _value(table_rows(density, at, MANY), p)
            rho = total(sum_rho, zero)
            m, q = _interval(np.float64(rho * per_rho), n_rho - 2)
            cubic = embedding[ti, int(m)]
            slope[i] = _slope(cubic, q) * per_rho
            energy += _value(cubic, q)
            if rho > end:  # a straight line beyond the table
                energy += slope[i] * (rho - end)
            if not np.isfinite(rho):
                slope[i] = np.nan
    return energy


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def _push(packed, short, n_short, density, r_phi, n_r, per_r, cutoff2, slopes, n_types, forces, zero, totals, n_chunks):
    """Fill ``forces``; half sums of pair energy and virial unless ``totals`` is None."""
    n = len(forces)
    sums = np.zeros((n_chunks, 7))
    for chunk in prange(n_chunks):
        for i in range(chunk * n // n_chunks, (chunk + 1) * n // n_chunks):
            xi, yi, zi, ti = packed[i, 0], packed[i, 1], packed[i, 2], int(packed[i, 3])
            s = no_pairs(packed)
            for k in range(0, n_short[i], n_lanes(packed)):
                x, y, z, types = rows_at(packed, short[i], k)
                slope = slopes[indices_at(short[i], k, packed)]
                dx, dy, dz = x - xi, y - yi, z - zi
                r2 = dx * dx + dy * dy + dz * dz
                inverse = 1.0 / sqrt(r2)
                m, p = _interval(r2 * inverse * per_r, n_r - 2)
                back = choose(r2 >= cutoff2, n_r - 1, m)
                at = back
                if n_types is not None:
                    back = choose(r2 >= cutoff2, n_r - 1, m + (types * n_types + ti) * n_r)
                    at = choose(r2 >= cutoff2, n_r - 1, m + (ti * n_types + types) * n_r)
                phi, here, there = (
                    table_rows(r_phi, at, MANY), table_rows(density, at, MANY), table_rows(density, back, MANY),
                )  # fmt: skip
                u = _value(phi, p) * inverse
                embedded = slopes[i] * _slope(here, p) + slope * _slope(there, p)
                # force over r on j: -dE/dr / r
                f = (u * inverse - (embedded + _slope(phi, p) * inverse) * per_r) * inverse
                s = with_pairs(s, u, f, (dx, dy, dz), totals)
            settle(s, zero, forces[i], sums[chunk])
    return 0.5 * sums.sum(axis=0)  # each pair is met from both of its ends
