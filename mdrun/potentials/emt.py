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
from dataclasses import dataclass

import numpy as np
import torch
from numba import njit, prange
from numba.extending import register_jitable

from mdrun.domain import Domain
from mdrun.potentials.arithmetic import LN2, exp2
from mdrun.potentials.base import Forces, UnknownSpecies, symbols_of
from mdrun.potentials.kernels import FASTMATH, virial_tensor
from mdrun.verbs import refresh_neighbors

TOY_SPECIES = ("H", "C", "N", "O")  # in ASE's table "just for fun", not for any serious use

# Columns of ``pairs``; decays are per Å in powers of two: log2 g = G_START - G_DECAY r, the same for h.
G_START, G_DECAY, H_START, H_DECAY, Q = range(5)
# Columns of ``atoms``.
N0, E0, SIX_V0, LAMBDA, KAPPA, BETA_ETA2, INVERSE_12_GAMMA1 = range(7)
# The logistic cutoff; its slope, too, counts powers of two.
SLOPE, MIDPOINT, END = range(3)


@dataclass
class EMT:
    """The force model.

    Attributes:
        cutoff: Å, where pairs end; 0.5 Å beyond the middle of the logistic.
        logistic: (3,) slope a / ln 2 (1/Å), midpoint r_c (Å), end (Å).
        pairs: (n_types, 5) what the loop over neighbours reads of each species; columns above.
        atoms: (n_types, 7) what the embedding energy reads; columns above.
    """

    is_compiled = True

    name: str
    cutoff: float
    logistic: np.ndarray
    pairs: np.ndarray
    atoms: np.ndarray

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
                    (np.log(n0) + eta2 * beta * s0) / LN2,
                    eta2 / LN2,
                    (np.log(n0) + kappa * s0) / LN2,
                    kappa / beta / LN2,
                    v0 / (2 * gamma2 * n0),
                ]
            ),
            atoms=np.column_stack([n0, e0, 6 * v0, lambda_, kappa, beta * eta2, 1 / (12 * gamma1)]),
        )

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        x, neighbors, n_neighbors = (
            domain.positions.numpy(),
            domain.neighbors.numpy(),
            domain.n_neighbors.numpy(),
        )
        # None compiles to a loop of constant parameters that shares its exponentials
        types = None if len(self.pairs) == 1 else domain.types.numpy()
        slopes = np.empty(domain.n_owned)
        embedding = _embed(x, types, neighbors, n_neighbors, self.logistic, self.pairs, self.atoms, slopes)
        padded_slopes = refresh_neighbors(torch.from_numpy(slopes)).numpy()

        forces = np.empty((domain.n_owned, 3))
        arguments = (x, types, neighbors, n_neighbors, self.logistic, self.pairs, padded_slopes, forces)
        if not totals:
            _push(*arguments, None)
            return Forces(torch.from_numpy(forces))
        sums = _push(*arguments, True)
        return Forces(torch.from_numpy(forces), embedding + float(sums[0]), virial_tensor(sums[1:]))


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
def _embed(x, types, neighbors, n_neighbors, logistic, pairs, atoms, slopes):
    """Embed each owned row: dE_c/dσ1 / n0 into ``slopes``, and the sum of E_c - E0, eV, as the result."""
    steepness, midpoint, end = logistic[SLOPE], logistic[MIDPOINT], logistic[END]
    end2 = end * end
    energy = 0.0
    for i in prange(len(slopes)):
        xi, yi, zi = x[0, i], x[1, i], x[2, i]
        density = 0.0
        for k in range(n_neighbors[i]):
            j = neighbors[i, k]
            b = 0 if types is None else types[j]
            dx, dy, dz = x[0, j] - xi, x[1, j] - yi, x[2, j] - zi
            r2 = dx * dx + dy * dy + dz * dz
            near = r2 < end2
            r = math.sqrt(r2) if near else end  # keeps the exponents within range
            g = exp2(pairs[b, G_START] - pairs[b, G_DECAY] * r)
            g /= 1.0 + exp2(steepness * (r - midpoint))
            density += g if near else 0.0
        e, slopes[i] = _embedding(density, atoms[0 if types is None else types[i]])
        energy += e
    return energy


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def _push(x, types, neighbors, n_neighbors, logistic, pairs, slopes, forces, totals):
    """Forces; pair energy and the virial's xx, yy, zz, yz, xz, xy, unless ``totals`` is None."""
    steepness, midpoint, end = logistic[SLOPE], logistic[MIDPOINT], logistic[END]
    end2 = end * end
    energy = wxx = wyy = wzz = wyz = wxz = wxy = 0.0
    for i in prange(len(forces)):
        xi, yi, zi = x[0, i], x[1, i], x[2, i]
        slope_i = slopes[i]
        a = 0 if types is None else types[i]
        fx = fy = fz = e = vxx = vyy = vzz = vyz = vxz = vxy = 0.0
        for k in range(n_neighbors[i]):
            j = neighbors[i, k]
            b = 0 if types is None else types[j]
            dx, dy, dz = x[0, j] - xi, x[1, j] - yi, x[2, j] - zi
            r2 = dx * dx + dy * dy + dz * dz
            near = r2 < end2
            r = math.sqrt(r2) if near else end
            inverse_w = 1.0 + exp2(steepness * (r - midpoint))
            inverse = 1.0 / (r * inverse_w)  # one division for both w and 1/r
            w = r * inverse
            w_decay = steepness * (1.0 - w)
            density = slope_i * exp2(pairs[b, G_START] - pairs[b, G_DECAY] * r)
            f = density * (w_decay + pairs[b, G_DECAY])
            density = slopes[j] * exp2(pairs[a, G_START] - pairs[a, G_DECAY] * r)
            f += density * (w_decay + pairs[a, G_DECAY])
            own = pairs[a, Q] * exp2(pairs[b, H_START] - pairs[b, H_DECAY] * r)
            other = pairs[b, Q] * exp2(pairs[a, H_START] - pairs[a, H_DECAY] * r)
            f -= own * (w_decay + pairs[b, H_DECAY]) + other * (w_decay + pairs[a, H_DECAY])
            # -dE/dr / r of both atoms' energies: w / r is the inverse
            f = LN2 * inverse * f if near else 0.0
            fx -= f * dx
            fy -= f * dy
            fz -= f * dz
            if totals is not None:
                e -= w * (own + other) if near else 0.0
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
    # each pair is met from both of its ends
    return 0.5 * np.array([energy, wxx, wyy, wzz, wyz, wxz, wxy])
