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

from dataclasses import dataclass, field
from pathlib import Path

import numba
import numpy as np
import torch
from numba import njit, prange

from mdrun.buffers import load, store
from mdrun.domain import Domain
from mdrun.lanes import rows_at
from mdrun.lookup import choice_among, table_rows
from mdrun.potentials.arithmetic import exp, sqrt
from mdrun.potentials.base import Forces
from mdrun.potentials.kernels import virial_tensor
from mdrun.potentials.pair_sums import no_pairs, settle, with_pushes
from mdrun.potentials.precision import DOUBLE, Precision
from mdrun.potentials.short_list import ShortList
from mdrun.potentials.three_body_files import Column, Table, ThreeBodyFile, parse_three_body, read_three_body
from mdrun.potentials.vector_math import logarithm
from mdrun.vectors import FASTMATH, choose, n_lanes, total, zeros
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
N_MOMENTS = 12  # Mxx, Myy, Mzz, Myz, Mxz, Mxy, Vx, Vy, Vz, S, and two that make whole quads
PUBLISHED_POWERS = (4.0, 0.0)  # p and q, which need no logarithms
CLOSEST = 1e-9  # Å to the singular distance aσ, where every exponential is long zero
# Least exponent, so that a product of two exponentials is a normal number still; and the closest, so that such an
# exponential times the square of its inverse is nothing.
LIMITS: dict[type, tuple[float, float]] = {np.float64: (-345.0, CLOSEST), np.float32: (-43.0, 1e-4)}
# Columns of the tables of pairs; the last four of the one that the loops read, of [i, j]: γσ of the centre j, and of
# the centres i and j what an arm has with itself, λε (1 - cos θ0)².
REACH2, SINGULAR, SIGMA, GAMMA_SIGMA, STRENGTH, HARDNESS, P, Q, GAMMA_SIGMA_BACK, OWN, OWN_BACK, _ = range(12)


@dataclass
class StillingerWeber:
    """Two passes over the neighbours, the moments refreshed between them.

    In mixed precision geometry, exponentials and moments are in float32, and so are the partial sums over every
    sixteenth neighbour; their sums are taken in float64.

    Attributes:
        symbols: labels that the parameters cover.
        pair: (n_types, n_types, 8) of [i, j]: squared cutoff Å², aσ Å, σ Å, γσ Å, Aε eV, ABε eV, p, q.
        angle: (n_types, n_types, n_types, 2) of [i, j, k], symmetric in j and k: λε eV, cos θ0.
    """

    is_compiled = True

    name: str
    symbols: tuple[str, ...]
    pair: np.ndarray
    angle: np.ndarray
    precision: Precision = field(default=DOUBLE, kw_only=True)

    def __post_init__(self) -> None:
        self.short_list = ShortList(self.pair[..., REACH2])
        own = np.einsum("ijj->ij", self.angle[..., 0] * (1 - self.angle[..., 1]) ** 2)
        more = [self.pair[..., GAMMA_SIGMA].T, own, own.T, np.zeros_like(own)]
        self._pairs = np.concatenate([self.pair, np.stack(more, axis=-1)], axis=-1)
        self._angles = np.concatenate([self.angle, np.zeros_like(self.angle)], axis=-1)
        self._is_published = bool((self.pair[..., [P, Q]] == PUBLISHED_POWERS).all())

    @property
    def cutoff(self) -> float:
        """Å, the longest of all pairs."""
        return float(self.pair[..., REACH2].max()) ** 0.5

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
        symbols = tuple(dict.fromkeys(triplet[0] for triplet in entries.entries))
        return cls(f"{name}, cutoff {reach:.4g} Å", symbols, pair, angle)

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        number, zero, n_chunks = self.precision.terms, self.precision.sums(0), numba.get_num_threads()
        n, n_types = domain.n_owned, len(self.angle)
        short, n_short = self.short_list.pick(domain)
        packed, few = domain.packed_in(number).numpy(), choice_among(n_types)
        pairs: np.ndarray = self._pairs.astype(number, copy=False)
        angles: np.ndarray = self._angles.astype(number, copy=False)
        moments: np.ndarray = np.zeros((n, n_types, N_MOMENTS), number)
        _survey(packed, short, n_short, pairs, angles, few, LIMITS[number], moments, zero, n_chunks)
        moments, forces = refresh_neighbors(torch.from_numpy(moments), "moments").numpy(), np.empty((n, 3))
        sums = _push(
            packed, short, n_short, pairs, few, self._is_published, LIMITS[number], moments, forces, zero,
            True if totals else None, n_chunks,
        )  # fmt: skip
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
            pair["A"] * pair["epsilon"], pair["A"] * pair["B"] * pair["epsilon"], pair["p"], pair["q"],
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


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _reach(packed, i, row, k, pairs, few, closest):
    """Of the neighbours from the k-th on: parameters, types, whether they are beyond the cutoff, Å to them, the unit
    vector, 1/r, and 1/(r - aσ)."""
    x, y, z, types = rows_at(packed, row, k)
    p = table_rows(pairs, types, few)
    dx, dy, dz = x - packed[i, 0], y - packed[i, 1], z - packed[i, 2]
    r2 = dx * dx + dy * dy + dz * dz
    r = sqrt(r2)
    inverse = 1.0 / r
    depth = 1.0 / min(r - p[SINGULAR], -closest)
    # the second false for NaN, which must reach the forces
    return p, types, r2 >= p[REACH2], (dx, dy, dz), (dx * inverse, dy * inverse, dz * inverse), inverse, depth


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def _survey(packed, short, n_short, pairs, angles, few, limits, moments, zero, n_chunks):
    """Fill ``moments`` of the owned atoms: [i, t] those that an end of type t feels around centre i."""
    n, n_types = len(n_short), len(angles)
    least, closest = limits
    for chunk in prange(n_chunks):
        b = np.empty((5, short.shape[1]), packed.dtype)
        for i in range(chunk * n // n_chunks, (chunk + 1) * n // n_chunks):
            ti = int(packed[i, 3])
            for k in range(0, n_short[i], n_lanes(packed)):  # the last vector is filled up with a row far away
                p, types, is_far, _, (ux, uy, uz), _, depth = _reach(packed, i, short[i], k, pairs[ti], few, closest)
                store(choose(is_far, 0.0, exp(max(p[GAMMA_SIGMA] * depth, least))), b[0], k)
                store(ux, b[1], k)
                store(uy, b[2], k)
                store(uz, b[3], k)
                store(types, b[4], k)
            for t in range(n_types):
                mxx = myy = mzz = myz = mxz = mxy = vx = vy = vz = s = zeros(packed)
                for k in range(0, n_short[i], n_lanes(packed)):
                    a = table_rows(angles[ti, t], load(b[4], k), few)
                    ux, uy, uz = load(b[1], k), load(b[2], k), load(b[3], k)
                    w = a[0] * load(b[0], k)
                    c = a[1] * w
                    wx, wy, wz = w * ux, w * uy, w * uz
                    mxx += wx * ux
                    myy += wy * uy
                    mzz += wz * uz
                    myz += wy * uz
                    mxz += wx * uz
                    mxy += wx * uy
                    vx += c * ux
                    vy += c * uy
                    vz += c * uz
                    s += c * a[1]
                m = moments[i, t]
                m[0], m[1], m[2], m[3] = total(mxx, zero), total(myy, zero), total(mzz, zero), total(myz, zero)
                m[4], m[5], m[6], m[7] = total(mxz, zero), total(mxy, zero), total(vx, zero), total(vy, zero)
                m[8], m[9] = total(vz, zero), total(s, zero)


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _two_body(p, is_far, inverse, depth, is_published, least):
    """eV, the repulsion and the attraction of a pair."""
    if is_published:
        flat = exp(max(p[SIGMA] * depth, least))
        x = p[SIGMA] * inverse
        x *= x
        hard, soft = flat * (x * x), flat
    else:
        power = logarithm(p[SIGMA] * inverse)
        hard = exp(max(p[P] * power + p[SIGMA] * depth, least))
        soft = exp(max(p[Q] * power + p[SIGMA] * depth, least))
    return choose(is_far, 0.0, p[HARDNESS] * hard), choose(is_far, 0.0, p[STRENGTH] * soft)


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _arm(m, g, own, u, inverse, fall):
    """Energy of the angles of a centre that have one arm, and its gradient as that arm's end moves.

    Args:
        m: the moments of the centre for an end of this type.
        g: of this arm; ``own`` what it has with itself.
        u: unit vector along the arm.
        fall: of log g with the distance, 1/Å.
    """
    ux, uy, uz = u
    vx, vy, vz = m[6], m[7], m[8]
    wx = m[0] * ux + m[5] * uy + m[4] * uz - vx
    wy = m[5] * ux + m[1] * uy + m[3] * uz - vy
    wz = m[4] * ux + m[3] * uy + m[2] * uz - vz
    energy = g * (ux * (wx - vx) + uy * (wy - vy) + uz * (wz - vz) + m[9] - own * g)
    turn = 2.0 * g * inverse
    push = -energy * fall - turn * (ux * wx + uy * wy + uz * wz)
    return energy, (push * ux + turn * wx, push * uy + turn * wy, push * uz + turn * wz)


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def _push(packed, short, n_short, pairs, few, is_published, limits, moments, forces, zero, totals, n_chunks):
    """Fill ``forces``; sums of energy and virial unless ``totals`` is None."""
    n, n_types, last = len(n_short), len(pairs), len(packed) - 2
    least, closest = limits
    quads = moments.reshape(-1, 4)
    middle_quads, last_quads = quads[1:], quads[2:]
    sums = np.zeros((n_chunks, 7))
    for chunk in prange(n_chunks):
        at = np.empty(short.shape[1], np.int32)
        for i in range(chunk * n // n_chunks, (chunk + 1) * n // n_chunks):
            row, ti = short[i], int(packed[i, 3])
            for k in range(len(row)):  # where the moments of centre k for an end like i begin; far away, anybody's
                at[k] = N_MOMENTS // 4 * (min(row[k], last) * n_types + ti)
            s = no_pairs(packed)
            for k in range(0, n_short[i], n_lanes(packed)):
                p, types, is_far, d, u, inverse, depth = _reach(packed, i, row, k, pairs[ti], few, closest)
                hard, soft = _two_body(p, is_far, inverse, depth, is_published, least)
                fall = depth * depth
                decay = p[SIGMA] * fall
                slope = soft * (p[Q] * inverse + decay) - hard * (p[P] * inverse + decay)
                # The centre i, as j moves.
                g = choose(is_far, 0.0, exp(max(p[GAMMA_SIGMA] * depth, least)))
                here = table_rows(moments[i], types, few)
                bent, (ax, ay, az) = _arm(here, g, p[OWN], u, inverse, p[GAMMA_SIGMA] * fall)
                # The centre j, seen from it in the opposite direction, as i moves.
                if n_types > 1:
                    g = choose(is_far, 0.0, exp(max(p[GAMMA_SIGMA_BACK] * depth, least)))
                there = rows_at(quads, at, k) + rows_at(middle_quads, at, k) + rows_at(last_quads, at, k)
                ux, uy, uz = u
                _, (bx, by, bz) = _arm(there, g, p[OWN_BACK], (-ux, -uy, -uz), inverse, p[GAMMA_SIGMA_BACK] * fall)
                # The gradient as j moves of all that is j's and i's; the virial takes i's alone, twice.
                sx, sy, sz = slope * ux, slope * uy, slope * uz
                push = bx - sx - ax, by - sy - ay, bz - sz - az
                share = -sx - 2.0 * ax, -sy - 2.0 * ay, -sz - 2.0 * az
                s = with_pushes(s, hard - soft + bent, push, share, d, totals)
            settle(s, zero, forces[i], sums[chunk])
    return 0.5 * sums.sum(axis=0)  # each pair is met from both of its ends
