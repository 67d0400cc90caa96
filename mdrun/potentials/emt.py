"""Effective medium theory of metals, with the parameters and conventions of ASE's ``EMT`` calculator.

K. W. Jacobsen, P. Stoltze, J. K. Nørskov, Surf. Sci. 366 (1996) 394, doi 10.1016/0039-6028(96)00816-3.

For an atom of species A among neighbours of species B, with the logistic cutoff w(r) = 1 / (1 + exp(a (r - r_c))):

    σ1  = Σ w g_B(r) / n0_A                          g_B(r) = n0_B exp(-η2_B (r - β s0_B))
    E   = E_c(σ1) - E0 - ½ Σ w (q_A h_B + q_B h_A)   h_B(r) = n0_B exp(-κ_B (r/β - s0_B)),  q = V0 / (2 γ2 n0)
    E_c = E0 (1 + λ s) exp(-λ s) + 6 V0 exp(-κ s)    s = -ln(σ1 / 12 γ1) / (β η2)

ASE's χ is a ratio of two n0. ``r_c`` and ``a`` come from the largest atom of ASE's whole table
(``asap_cutoff=False``), so the cutoff is the same for every structure. w does not quite vanish there (7e-6), as in
ASE.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numba
import numpy as np
import torch
from numba import njit, prange
from numba.extending import register_jitable

from mdrun.domain import Domain
from mdrun.lanes import indices_at, rows_at
from mdrun.lookup import choice_among, table_rows
from mdrun.potentials.arithmetic import LN2, exp2, sqrt
from mdrun.potentials.base import Forces, UnknownSpecies, symbols_of
from mdrun.potentials.kernels import virial_tensor
from mdrun.potentials.pair_sums import no_pairs, settle, with_pairs
from mdrun.potentials.precision import DOUBLE, Precision
from mdrun.potentials.short_list import ShortList
from mdrun.vectors import FASTMATH, choose, n_lanes, total, zeros
from mdrun.verbs import refresh_neighbors

TOY_SPECIES = ("H", "C", "N", "O")  # in ASE's table "just for fun", not for any serious use

# Columns of ``pairs``; decays are per Å in powers of two: g = G 2^(G_DECAY (REFERENCE - r)), the same for h.
G, G_DECAY, H, H_DECAY, Q = range(5)  # and three zeros: tables are read by four columns
REFERENCE = 3.0  # Å: exponents are small there, and with them what single precision rounds off
# Columns of ``atoms``.
N0, E0, SIX_V0, LAMBDA, KAPPA, BETA_ETA2, INVERSE_12_GAMMA1 = range(7)
# The logistic cutoff; its slope, too, counts powers of two.
SLOPE, MIDPOINT, END = range(3)
LEAST_POWER = -100.0  # of two, that the logistic distinguishes from none; exp2 in single precision ends at -125


@dataclass
class EMT:
    """Two passes over the list, the slope of the embedding energy refreshed between them.

    In mixed precision what a pair contributes is computed in float32; an atom's density, force, energy and virial are
    summed (beyond the few terms that meet in one lane of a vector), and the embedding is computed, in float64.

    Attributes:
        cutoff: Å, where pairs end; 0.5 Å beyond the middle of the logistic.
        logistic: (3,) slope a / ln 2 (1/Å), midpoint r_c (Å), end (Å).
        pairs: (n_types, 8) what the loop over neighbours reads of each species; columns above.
        atoms: (n_types, 7) what the embedding energy reads; columns above.
    """

    is_compiled = True

    name: str
    cutoff: float
    logistic: np.ndarray
    pairs: np.ndarray
    atoms: np.ndarray
    precision: Precision = field(default=DOUBLE, kw_only=True)

    def __post_init__(self) -> None:
        self.short_list = ShortList(np.full((len(self.pairs), len(self.pairs)), self.cutoff * self.cutoff))

    @classmethod
    def for_species(cls, numbers: tuple[int, ...]) -> EMT:
        """With ASE's parameters: Al, Cu, Ag, Au, Ni, Pd, Pt, and toy values of H, C, N, O, which the name tells.

        Args:
            numbers: atomic numbers of the structure's types.

        Raises:
            UnknownSpecies: ASE's table lacks a species.
        """
        from ase.calculators.emt import beta, parameters
        from ase.units import Bohr

        symbols = symbols_of(numbers)
        missing = [z for z, s in zip(numbers, symbols, strict=True) if s not in parameters]
        if missing:
            raise UnknownSpecies("emt", numbers=missing, known=list(parameters))
        # columns E0 (eV), s0, V0 (eV), η2, κ, λ, n0; lengths in Bohr, see ASE's source
        to_angstrom = np.array([1, Bohr, 1, 1 / Bohr, 1 / Bohr, 1 / Bohr, 1 / Bohr**3])
        e0, s0, v0, eta2, kappa, lambda_, n0 = (np.array([parameters[s] for s in symbols]) * to_angstrom).T

        nearest = beta * max(p[1] for p in parameters.values()) * Bohr  # first neighbours in fcc
        third, fourth = math.sqrt(3) * nearest, 2 * nearest
        midpoint = (third + fourth) / 2
        slope = math.log(1 / 1e-4 - 1) / (fourth - midpoint)  # w = 1e-4 at the fourth neighbours

        # γ1 and γ2 make σ1 and the pair sum those of an fcc crystal at equilibrium, of three shells
        shells = beta * s0[:, None] * np.sqrt([1.0, 2.0, 3.0])
        weights = np.array([12, 6, 24]) / (12 * (1 + np.exp(slope * (shells - midpoint))))
        beyond = shells - beta * s0[:, None]
        gamma1 = (weights * np.exp(-eta2[:, None] * beyond)).sum(axis=1)
        gamma2 = (weights * np.exp(-kappa[:, None] / beta * beyond)).sum(axis=1)

        end = midpoint + 0.5
        toys = [s for s in symbols if s in TOY_SPECIES]
        warning = f"; those of {', '.join(toys)} are toy values" if toys else ""
        return cls(
            name=f"effective medium theory, ASE's parameters{warning}",
            cutoff=end,
            logistic=np.array([slope / LN2, midpoint, end]),
            pairs=np.column_stack(
                [
                    n0 * np.exp(eta2 * (beta * s0 - REFERENCE)),
                    eta2 / LN2,
                    n0 * np.exp(kappa * (s0 - REFERENCE / beta)),
                    kappa / beta / LN2,
                    v0 / (2 * gamma2 * n0),
                    np.zeros((len(symbols), 3)),
                ]
            ),
            atoms=np.column_stack([n0, e0, 6 * v0, lambda_, kappa, beta * eta2, 1 / (12 * gamma1)]),
        )

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        number, zero, n_chunks = self.precision.terms, self.precision.sums(0), numba.get_num_threads()
        short, n_short = self.short_list.pick(domain)
        packed = domain.packed_in(number).numpy()
        logistic: np.ndarray = self.logistic.astype(number, copy=False)
        pairs: np.ndarray = self.pairs.astype(number, copy=False)
        # Compiles to loops of their own for few species; that of one has constant parameters and fewer exponentials.
        few = choice_among(len(pairs))
        slope, forces = np.empty(domain.n_owned), np.empty((domain.n_owned, 3))
        embedded = _embed(packed, short, n_short, logistic, pairs, self.atoms, few, slope, zero, n_chunks)
        padded = refresh_neighbors(torch.from_numpy(slope), "slopes").numpy()
        slopes: np.ndarray = np.append(padded, 0.0).astype(number, copy=False)
        sums = _push(
            packed, short, n_short, logistic, pairs, few, slopes, forces, zero, True if totals else None, n_chunks
        )
        if not totals:
            return Forces(torch.from_numpy(forces))
        return Forces(torch.from_numpy(forces), float(embedded + sums[0]), virial_tensor(sums[1:]))


@register_jitable
def _embedding(density, p):
    """E_c - E0 (eV), and the slope dE_c/dσ1 / n0, of an atom with Σ w g = ``density`` around it."""
    if density == 0.0:  # no neighbours: E_c vanishes, and so does its slope
        return -p[E0], 0.0
    s = -math.log(density / p[N0] * p[INVERSE_12_GAMMA1]) / p[BETA_ETA2]
    cohesion = p[E0] * math.exp(-p[LAMBDA] * s)
    repulsion = p[SIX_V0] * math.exp(-p[KAPPA] * s)
    energy = cohesion * (1.0 + p[LAMBDA] * s) + repulsion - p[E0]
    slope_in_s = -p[LAMBDA] * p[LAMBDA] * s * cohesion - p[KAPPA] * repulsion
    return energy, -slope_in_s / (p[BETA_ETA2] * density)


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def _embed(packed, short, n_short, logistic, pairs, atoms, few, slope, zero, n_chunks):
    """Embed each owned row: dE_c/dσ1 / n0 into ``slope``, and the sum of E_c - E0, eV, as the result."""
    n = len(slope)
    steepness, midpoint, end = logistic[SLOPE], logistic[MIDPOINT], logistic[END]
    energy = 0.0
    for chunk in prange(n_chunks):
        for i in range(chunk * n // n_chunks, (chunk + 1) * n // n_chunks):
            xi, yi, zi = packed[i, 0], packed[i, 1], packed[i, 2]
            density = zeros(packed)
            for k in range(0, n_short[i], n_lanes(packed)):  # the last vector is filled up with a row far away
                x, y, z, types = rows_at(packed, short[i], k)
                b = table_rows(pairs, types, few)
                dx, dy, dz = x - xi, y - yi, z - zi
                r2 = dx * dx + dy * dy + dz * dz
                is_far = r2 >= end * end  # false for NaN, which must reach the forces
                r = choose(is_far, end, sqrt(r2))  # keeps the exponents within range
                g = b[G] * exp2(b[G_DECAY] * (REFERENCE - r))
                g /= 1.0 + exp2(max(steepness * (r - midpoint), LEAST_POWER))
                density += choose(is_far, 0.0, g)
            e, slope[i] = _embedding(total(density, zero), atoms[int(packed[i, 3])])
            energy += e
    return energy


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def _push(packed, short, n_short, logistic, pairs, few, slopes, forces, zero, totals, n_chunks):
    """Fill ``forces``; half sums of pair energy and virial unless ``totals`` is None."""
    n = len(forces)
    steepness, midpoint, end = logistic[SLOPE], logistic[MIDPOINT], logistic[END]
    sums = np.zeros((n_chunks, 7))
    for chunk in prange(n_chunks):
        for i in range(chunk * n // n_chunks, (chunk + 1) * n // n_chunks):
            xi, yi, zi = packed[i, 0], packed[i, 1], packed[i, 2]
            a = table_rows(pairs, zeros(packed) + packed[i, 3], few)
            s = no_pairs(packed)
            for k in range(0, n_short[i], n_lanes(packed)):
                x, y, z, types = rows_at(packed, short[i], k)
                b = table_rows(pairs, types, few)
                slope = slopes[indices_at(short[i], k, packed)]
                dx, dy, dz = x - xi, y - yi, z - zi
                r2 = dx * dx + dy * dy + dz * dz
                is_far = r2 >= end * end
                r = choose(is_far, end, sqrt(r2))
                inverse_w = 1.0 + exp2(max(steepness * (r - midpoint), LEAST_POWER))
                inverse = 1.0 / (r * inverse_w)  # one division for both w and 1/r
                w = r * inverse
                w_decay = steepness * (1.0 - w)
                x = REFERENCE - r
                f = slopes[i] * (b[G] * exp2(b[G_DECAY] * x)) * (w_decay + b[G_DECAY])
                f += slope * (a[G] * exp2(a[G_DECAY] * x)) * (w_decay + a[G_DECAY])
                own, other = a[Q] * b[H] * exp2(b[H_DECAY] * x), b[Q] * a[H] * exp2(a[H_DECAY] * x)
                f -= own * (w_decay + b[H_DECAY]) + other * (w_decay + a[H_DECAY])
                # -dE/dr / r of both atoms' energies: w / r is the inverse
                f = choose(is_far, 0.0, LN2 * inverse * f)
                s = with_pairs(s, choose(is_far, 0.0, -w * (own + other)), f, (dx, dy, dz), totals)
            settle(s, zero, forces[i], sums[chunk])
    return 0.5 * sums.sum(axis=0)  # each pair is met from both of its ends
