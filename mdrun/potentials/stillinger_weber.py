"""The Stillinger-Weber potential, F. H. Stillinger and T. A. Weber, Phys. Rev. B 31 (1985) 5262,
doi 10.1103/PhysRevB.31.5262, for any number of species, with the parameters of LAMMPS's ``pair_style sw``:

    E = Σ_{i<j} A ε [B (σ/r)^p - (σ/r)^q] exp(σ / (r - aσ))
      + Σ_i Σ_{j<k} λ ε g_ij g_ik (cos θ_jik - cos θ0)²,   g_ij = exp(γσ / (r_ij - aσ)).

The square of the cosine makes the second sum a quadratic form of a few moments of the centre's surroundings,

    Σ_k λε g_ik (u·u_k - cos θ0)² = u·M u - 2 u·V + S,   M = Σ λε g u_k⊗u_k,  V = Σ λε cos θ0 g u_k,  S = Σ λε cos²θ0 g,

less the term k = j. So there is no loop over triplets, and the force on an atom needs, of each neighbour, ten numbers
that a refresh brings to ghosts: as in the embedded-atom method, nothing is written into another atom's row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numba import njit, prange

from mdrun.domain import Domain
from mdrun.potentials.base import Forces
from mdrun.potentials.kernels import FASTMATH, virial_tensor
from mdrun.potentials.short_list import CHUNK, ShortList
from mdrun.potentials.three_body_files import Column, Table, ThreeBodyFile, parse_three_body, read_three_body
from mdrun.potentials.vector_math import exponentials, logarithms
from mdrun.verbs import refresh_neighbors

COLUMNS = (
    Column("epsilon", 0, is_energy=True), Column("sigma", 0), Column("a", 0), Column("lambda", 0), Column("gamma", 0),
    Column("costheta0", -1, 1), Column("A", 0), Column("B", 0), Column("p", 0), Column("q", 0), Column("tol", 0),
)  # fmt: skip
COLUMN_NAMES = tuple(column.name for column in COLUMNS)
BUILT_IN = parse_three_body(
    "Si Si Si 2.1683 2.0951 1.80 21.0 1.20 -0.333333333333 7.049556277 0.6022245584 4 0 0",
    COLUMNS, "sw", "Stillinger-Weber's own parameters",
)  # fmt: skip
ROUNDING = 1e-5  # relative, between entries that should agree in a file of few digits
MOST_TOLERANCE = 0.01  # as in LAMMPS
N_MOMENTS = 10  # Mxx, Myy, Mzz, Myz, Mxz, Mxy, Vx, Vy, Vz, S
CLOSEST = 1e-9  # Å to the singular distance aσ, where every exponential is long zero
# Columns of the table of pairs.
REACH2, SINGULAR, SIGMA, GAMMA_SIGMA, STRENGTH, B, P, Q = range(8)


@dataclass
class StillingerWeber:
    """Two passes over the neighbours, the moments refreshed between them.

    Attributes:
        symbols: labels that the parameters cover.
        pair: (n_types², 8) of [i, j]: squared cutoff Å², aσ Å, σ Å, γσ Å, Aε eV, B, p, q.
        angle: (n_types, n_types, n_types, 2) of [i, j, k], symmetric in j and k: λε eV, cos θ0.
    """

    is_compiled = True

    name: str
    symbols: tuple[str, ...]
    pair: np.ndarray
    angle: np.ndarray

    def __post_init__(self) -> None:
        n_types = len(self.angle)
        self.short_list = ShortList(self.pair[:, REACH2].reshape(n_types, n_types))

    @property
    def cutoff(self) -> float:
        """Å, the longest of all pairs."""
        return float(self.pair[:, REACH2].max()) ** 0.5

    @classmethod
    def load(cls, path: Path | None, numbers: tuple[int, ...], labels: dict[str, str] | None = None) -> StillingerWeber:
        """For the species ``numbers`` of a structure, from a file or, without one, as published for silicon.

        Args:
            labels: the file's label of a chemical symbol, where it is not the symbol itself.

        Raises:
            InputError: the file can't be read, or its parameters don't make a potential.
            UnknownSpecies: it lacks a species.
        """
        if path is None:
            return cls.from_entries(BUILT_IN, numbers, labels, "Stillinger-Weber")
        entries = read_three_body(path, COLUMNS, "sw")
        return cls.from_entries(entries, numbers, labels, f"Stillinger-Weber, {path.name}")

    @classmethod
    def from_entries(
        cls, entries: ThreeBodyFile, numbers: tuple[int, ...], labels: dict[str, str] | None, name: str
    ) -> StillingerWeber:
        table = entries.table(name, numbers, labels or {})
        pair, angle = _pairs(table), _angles(table)
        reach = float(pair[..., REACH2].max()) ** 0.5
        n = len(numbers)
        symbols = tuple(dict.fromkeys(triplet[0] for triplet in entries.entries))
        return cls(f"{name}, cutoff {reach:.4g} Å", symbols, pair.reshape(n * n, -1), angle)

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        n, n_types = domain.n_owned, len(self.angle)
        x, types = domain.positions.numpy(), domain.types.numpy()
        short, n_short = self.short_list.pick(domain)
        moments = np.empty((n, n_types, N_MOMENTS))
        _survey(x, types, short, n_short, self.pair, self.angle, moments)
        moments = refresh_neighbors(torch.from_numpy(moments)).numpy()
        forces = np.empty((n, 3))
        sums = _push(x, types, short, n_short, self.pair, self.angle, moments, forces, totals)
        if not totals:
            return Forces(torch.from_numpy(forces))
        return Forces(torch.from_numpy(forces), float(sums[0]), virial_tensor(sums[1:]))


def _pairs(table: Table) -> np.ndarray:
    """(n, n, 8); a pair's parameters are those of the entry whose second and third element are the same."""
    second = np.arange(len(table.lines))
    is_pair = second[:, None] == second[None, :]
    table.require(~is_pair | ((table["sigma"] > 0) & (table["a"] > 0)), "sigma and a of a pair must be positive")
    pair = {column: table[column][:, second, second] for column in COLUMN_NAMES}
    tolerance = np.minimum(pair["tol"], MOST_TOLERANCE)
    # Where the exponential that decays more slowly falls to the tolerance.
    slower = pair["sigma"] * np.minimum(pair["gamma"], 1.0)
    early = np.where(tolerance > 0, slower / np.log(np.where(tolerance > 0, tolerance, 0.5)), 0.0)
    pair["cutoff"] = pair["sigma"] * pair["a"] + early
    table.require(~is_pair | (pair["cutoff"] > 0)[..., None], "tol is so large that no cutoff is left")
    for column in ("epsilon", "sigma", "a", "A", "B", "p", "q", "cutoff"):
        values = pair[column]
        table.require(
            ~is_pair | np.isclose(values, values.T, rtol=ROUNDING, atol=0)[..., None],
            f"{column} differs from that of the entry with centre and neighbours exchanged: a pair has one energy",
        )
        pair[column] = (values + values.T) / 2
    return np.stack(
        [
            pair["cutoff"] ** 2, pair["sigma"] * pair["a"], pair["sigma"], pair["gamma"] * pair["sigma"],
            pair["A"] * pair["epsilon"], pair["B"], pair["p"], pair["q"],
        ],
        axis=-1,
    )  # fmt: skip


def _angles(table: Table) -> np.ndarray:
    """(n, n, n, 2); the two neighbours of an angle have no order."""
    values = np.stack([table["lambda"] * table["epsilon"], table["costheta0"]], axis=-1)
    mirrored = np.swapaxes(values, 1, 2)
    table.require(
        np.isclose(values, mirrored, rtol=ROUNDING, atol=0).all(axis=-1),
        "lambda epsilon or costheta0 differs from that of the entry with second and third element exchanged: an angle "
        "has one energy",
    )
    return (values + mirrored) / 2


@njit(inline="always")
def _count(n_short, first, last):
    n = 0
    for i in range(first, last):
        n += n_short[i]
    return n


@njit(inline="always")
def _reach_of(x, i, j, singular):
    """Unit vector from i to j, 1/r, and 1/(r - aσ)."""
    dx, dy, dz = x[0, j] - x[0, i], x[1, j] - x[1, i], x[2, j] - x[2, i]
    r = np.sqrt(dx * dx + dy * dy + dz * dz)
    inverse = 1.0 / r
    return dx * inverse, dy * inverse, dz * inverse, inverse, 1.0 / min(r - singular, -CLOSEST)


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def _survey(x, types, short, n_short, pair, angle, moments):
    """Fill ``moments`` of the owned atoms: [i, t] those that an end of type t feels around centre i."""
    n_owned, n_types = moments.shape[0], moments.shape[1]
    for chunk in prange(-(-n_owned // CHUNK)):
        first, last = chunk * CHUNK, min((chunk + 1) * CHUNK, n_owned)
        n = _count(n_short, first, last)
        g = np.empty(n)
        u = np.empty((n, 3))
        q = 0
        for i in range(first, last):
            for k in range(n_short[i]):
                j = short[i, k]
                p = pair[types[i] * n_types + types[j]]
                u[q, 0], u[q, 1], u[q, 2], _, depth = _reach_of(x, i, j, p[SINGULAR])
                g[q] = p[GAMMA_SIGMA] * depth
                q += 1
        exponentials(g, n)
        q = 0
        for i in range(first, last):
            start = q
            for t in range(n_types):
                mxx = myy = mzz = myz = mxz = mxy = vx = vy = vz = s = 0.0
                q = start
                for k in range(n_short[i]):
                    a = angle[types[i], t, types[short[i, k]]]
                    w = a[0] * g[q]
                    c = a[1] * w
                    ux, uy, uz = u[q, 0], u[q, 1], u[q, 2]
                    mxx += w * ux * ux
                    myy += w * uy * uy
                    mzz += w * uz * uz
                    myz += w * uy * uz
                    mxz += w * ux * uz
                    mxy += w * ux * uy
                    vx += c * ux
                    vy += c * uy
                    vz += c * uz
                    s += c * a[1]
                    q += 1
                m = moments[i, t]
                m[0], m[1], m[2], m[3], m[4], m[5] = mxx, myy, mzz, myz, mxz, mxy
                m[6], m[7], m[8], m[9] = vx, vy, vz, s


@njit(inline="always")
def _quadratic(m, i, t, ux, uy, uz):
    """The quadratic form of the moments of centre i for an end of type t at a unit vector, and half its gradient."""
    vx, vy, vz = m[i, t, 6], m[i, t, 7], m[i, t, 8]
    wx = m[i, t, 0] * ux + m[i, t, 5] * uy + m[i, t, 4] * uz - vx
    wy = m[i, t, 5] * ux + m[i, t, 1] * uy + m[i, t, 3] * uz - vy
    wz = m[i, t, 4] * ux + m[i, t, 3] * uy + m[i, t, 2] * uz - vz
    return ux * (wx - vx) + uy * (wy - vy) + uz * (wz - vz) + m[i, t, 9], wx, wy, wz


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def _push(x, types, short, n_short, pair, angle, moments, forces, totals):
    """Fill ``forces``; sums of energy and virial where ``totals``."""
    n_owned, n_types = forces.shape[0], moments.shape[1]
    energy = sxx = syy = szz = syz = sxz = sxy = 0.0
    for chunk in prange(-(-n_owned // CHUNK)):
        first, last = chunk * CHUNK, min((chunk + 1) * CHUNK, n_owned)
        n = _count(n_short, first, last)
        logs, steep, flat = np.empty(n), np.empty(n), np.empty(n)  # the last two: B (σ/r)^p e^…, (σ/r)^q e^…
        here, there = np.empty(n), np.empty(n)  # g of the angles at i, of those at j
        d = np.empty((n, 5))  # unit vector to j, 1/r, 1/(r - aσ)
        q = 0
        for i in range(first, last):
            for k in range(n_short[i]):
                j = short[i, k]
                p = pair[types[i] * n_types + types[j]]
                ux, uy, uz, inverse, depth = _reach_of(x, i, j, p[SINGULAR])
                d[q, 0], d[q, 1], d[q, 2], d[q, 3], d[q, 4] = ux, uy, uz, inverse, depth
                logs[q] = p[SIGMA] * inverse
                here[q] = p[GAMMA_SIGMA] * depth
                there[q] = pair[types[j] * n_types + types[i], GAMMA_SIGMA] * depth
                q += 1
        logarithms(logs, n)
        q = 0
        for i in range(first, last):
            for k in range(n_short[i]):
                p = pair[types[i] * n_types + types[short[i, k]]]
                steep[q] = p[P] * logs[q] + p[SIGMA] * d[q, 4]
                flat[q] = p[Q] * logs[q] + p[SIGMA] * d[q, 4]
                q += 1
        exponentials(steep, n)
        exponentials(flat, n)
        exponentials(here, n)
        exponentials(there, n)
        q = 0
        for i in range(first, last):
            fx = fy = fz = e = vxx = vyy = vzz = vyz = vxz = vxy = 0.0
            for k in range(n_short[i]):
                j = short[i, k]
                ti, tj = types[i], types[j]
                p = pair[ti * n_types + tj]
                ux, uy, uz, inverse, depth = d[q, 0], d[q, 1], d[q, 2], d[q, 3], d[q, 4]
                g, h = here[q], there[q]
                hard, soft = p[STRENGTH] * p[B] * steep[q], p[STRENGTH] * flat[q]
                decay = p[SIGMA] * depth * depth
                slope = soft * (p[Q] * inverse + decay) - hard * (p[P] * inverse + decay)
                # The centre i: energy of its angles with an arm to j, and its gradient as j moves.
                own, wx, wy, wz = _quadratic(moments, i, tj, ux, uy, uz)
                a = angle[ti, tj, tj]
                own -= a[0] * g * (1.0 - a[1]) ** 2
                along = ux * wx + uy * wy + uz * wz
                turn = 2.0 * g * inverse
                push = -own * g * p[GAMMA_SIGMA] * depth * depth - turn * along
                ax, ay, az = push * ux + turn * wx, push * uy + turn * wy, push * uz + turn * wz
                # The centre j, seen from it in the opposite direction, as i moves.
                other, wx, wy, wz = _quadratic(moments, j, ti, -ux, -uy, -uz)
                a = angle[tj, ti, ti]
                other -= a[0] * h * (1.0 - a[1]) ** 2
                along = ux * wx + uy * wy + uz * wz
                turn = 2.0 * h * inverse
                push = other * h * pair[tj * n_types + ti, GAMMA_SIGMA] * depth * depth - turn * along
                fx += slope * ux + ax - push * ux - turn * wx
                fy += slope * uy + ay - push * uy - turn * wy
                fz += slope * uz + az - push * uz - turn * wz
                if totals:
                    e += 0.5 * (hard - soft + g * own)
                    r = 1.0 / inverse
                    half = 0.5 * slope
                    vxx -= r * ux * (half * ux + ax)
                    vyy -= r * uy * (half * uy + ay)
                    vzz -= r * uz * (half * uz + az)
                    vyz -= r * uy * (half * uz + az)
                    vxz -= r * ux * (half * uz + az)
                    vxy -= r * ux * (half * uy + ay)
                q += 1
            forces[i, 0], forces[i, 1], forces[i, 2] = fx, fy, fz
            energy += e
            sxx += vxx
            syy += vyy
            szz += vzz
            syz += vyz
            sxz += vxz
            sxy += vxy
    return np.array([energy, sxx, syy, szz, syz, sxz, sxy])
