"""The Tersoff potential, J. Tersoff, Phys. Rev. B 37 (1988) 6991, doi 10.1103/PhysRevB.37.6991, and B 39 (1989) 5566,
doi 10.1103/PhysRevB.39.5566, for any number of species, with the parameters of LAMMPS's ``pair_style tersoff``:

    E = ½ Σ_i Σ_{j≠i} f_C(r_ij) [A exp(-λ1 r_ij) - b_ij B exp(-λ2 r_ij)],   b_ij = (1 + (β ζ_ij)^n)^(-1/2n),
    ζ_ij = Σ_{k≠i,j} f_C(r_ik) g(θ_ijk) exp((λ3 (r_ij - r_ik))^m),   g = γ [1 + c²/d² - c²/(d² + (cos θ0 - cos θ)²)].

Each centre's energy pushes the atoms around it; the pushes are kept pair by pair, then every owned atom collects those
that its neighbours hold for it. No thread writes another's row; what falls to ghosts is summed into their owners.
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
from mdrun.potentials.tersoff_parameters import ANGLE, BOND, read_tersoff, tables_of
from mdrun.potentials.three_body_files import ThreeBodyFile
from mdrun.potentials.vector_math import exponentials, logarithms
from mdrun.verbs import sum_into_owners

MOST_STRETCH = 69.0776  # LAMMPS's bound on the exponent of ζ: e to it is 1e30
STEEPEST = 300.0  # log of (βζ)^n from where on 1 may be neglected beside it
(A, LAMBDA_1, B, LAMBDA_2, BETA, N, BOND_INNER, BOND_OUTER) = range(len(BOND))
(GAMMA, C2_D2, D2, COS_0, STRETCH, M, INNER, OUTER) = range(len(ANGLE))
# Rows of the buffer of pairs: unit vector to the neighbour, distance, f_C of the bond and its slope, the exponentials of
# repulsion and attraction, ζ, n log βζ, (βζ)^n, b, ∂E/∂ζ, and the energy's gradient: along the pair, and the rest.
UX, UY, UZ, R, FC, DFC, REPEL, ATTRACT, ZETA, U, POWER, ORDER, DZETA, ALONG, GX, GY, GZ = range(17)


@dataclass
class Tersoff:
    """See the module's text.

    Attributes:
        symbols: labels that the parameters cover.
        bond: (n_types, n_types, 8) of [i, j], columns ``BOND``.
        angle: (n_types, n_types, n_types, 8) of [i, j, k], columns ``ANGLE``.
    """

    name: str
    symbols: tuple[str, ...]
    bond: np.ndarray
    angle: np.ndarray

    def __post_init__(self) -> None:
        # A neighbour matters to a centre as the end of a bond or as the third atom of another bond's angle.
        self.short_list = ShortList(np.maximum(self.bond[..., BOND_OUTER], self.angle[..., OUTER].max(axis=1)) ** 2)

    @property
    def cutoff(self) -> float:
        """Å, the longest of all pairs."""
        return float(self.short_list.reach2.max()) ** 0.5

    @classmethod
    def load(cls, path: Path | None, numbers: tuple[int, ...], labels: dict[str, str] | None = None) -> Tersoff:
        """For the species ``numbers`` of a structure, from a file or, without one, as published for Si and C.

        Args:
            labels: the file's label of a chemical symbol, where it is not the symbol itself.

        Raises:
            InputError: the file can't be read, or its parameters don't make a potential.
            UnknownSpecies: it lacks a species.
        """
        name = "Tersoff" if path is None else f"Tersoff, {path.name}"
        return cls.from_entries(read_tersoff(path, numbers), numbers, labels, name)

    @classmethod
    def from_entries(
        cls, entries: ThreeBodyFile, numbers: tuple[int, ...], labels: dict[str, str] | None, name: str
    ) -> Tersoff:
        bond, angle = tables_of(entries.table(name, numbers, labels or {}))
        symbols = tuple(dict.fromkeys(triplet[0] for triplet in entries.entries))
        model = cls(name, symbols, bond, angle)
        model.name = f"{name}, cutoff {model.cutoff:.4g} Å"
        return model

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        n = domain.n_owned
        x, types = domain.positions.numpy(), domain.types.numpy()
        short, n_short = self.short_list.pick(domain)
        pushes = np.empty((*short.shape, 3))
        forces = torch.zeros((domain.n_padded, 3), dtype=domain.positions.dtype)
        sums = _centres(x, types, short, n_short, self.bond, self.angle, pushes, totals)
        _collect(short, n_short, pushes, forces.numpy())
        _hand_to_ghosts(short, n_short, pushes, forces.numpy())
        owned = sum_into_owners(forces)[:n]
        if not totals:
            return Forces(owned)
        return Forces(owned, float(sums[0]), virial_tensor(sums[1:]))


@njit(inline="always")
def _cutoff_function(r, inner, outer):
    """f_C, 1 up to ``inner`` and 0 from ``outer`` on, and its slope."""
    if r <= inner:
        return 1.0, 0.0
    if r >= outer:
        return 0.0, 0.0
    per_width = np.pi / (outer - inner)
    angle = (r - 0.5 * (inner + outer)) * per_width
    return 0.5 - 0.5 * np.sin(angle), -0.5 * per_width * np.cos(angle)


@njit(inline="always")
def _angular(cosine, p):
    """g of a cosine, and its slope."""
    v = p[COS_0] - cosine
    inverse = 1.0 / (p[D2] + v * v)
    c2_v = p[GAMMA] * p[C2_D2] * v * inverse
    return p[GAMMA] + c2_v * v, -2.0 * c2_v * p[D2] * inverse


@njit(inline="always")
def _exponent(difference, p):
    """(λ3 Δ)^m within LAMMPS's bounds, and its slope; Δ is r_ij - r_ik."""
    square = difference * difference if p[M] == 3.0 else 1.0
    exponent = p[STRETCH] * difference * square
    if exponent > MOST_STRETCH:
        return MOST_STRETCH, 0.0
    if exponent < -MOST_STRETCH:
        return -MOST_STRETCH, 0.0
    return exponent, p[M] * p[STRETCH] * square


@njit(inline="always")
def _end_factor(buffer, q, p, is_like):
    """f_C of the third atom of an angle and its slope; that of its own bond where both ends are alike."""
    if is_like:
        return buffer[FC, q], buffer[DFC, q]
    return _cutoff_function(buffer[R, q], p[INNER], p[OUTER])


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def _centres(x, types, short, n_short, bond, angle, pushes, totals):
    """Fill ``pushes``: [i, k] the force of centre i's energy on its k-th neighbour. Sums of energy and virial."""
    n_owned = len(n_short)
    energy = sxx = syy = szz = syz = sxz = sxy = 0.0
    for chunk in prange(-(-n_owned // CHUNK)):
        first, last = chunk * CHUNK, min((chunk + 1) * CHUNK, n_owned)
        n_pairs = n_angles = 0
        for i in range(first, last):
            n_pairs += n_short[i]
            n_angles += n_short[i] * (n_short[i] - 1)
        b = np.empty((17, n_pairs))
        ends = np.empty(n_pairs, types.dtype)
        stretch = np.empty(n_angles)  # of angle (j, k) in the bond j, then of (k, j) in the bond k
        q = 0
        for i in range(first, last):
            for k in range(n_short[i]):
                j = short[i, k]
                p = bond[types[i], types[j]]
                dx, dy, dz = x[0, j] - x[0, i], x[1, j] - x[1, i], x[2, j] - x[2, i]
                r = np.sqrt(dx * dx + dy * dy + dz * dz)
                inverse = 1.0 / r
                b[UX, q], b[UY, q], b[UZ, q], b[R, q] = dx * inverse, dy * inverse, dz * inverse, r
                b[FC, q], b[DFC, q] = _cutoff_function(r, p[BOND_INNER], p[BOND_OUTER])
                b[REPEL, q] = -p[LAMBDA_1] * r
                b[ATTRACT, q] = -p[LAMBDA_2] * r
                b[ZETA, q] = 0.0
                b[GX, q] = b[GY, q] = b[GZ, q] = 0.0
                ends[q] = types[j]
                q += 1
        exponentials(b[REPEL], n_pairs)
        exponentials(b[ATTRACT], n_pairs)
        q = t = 0
        for i in range(first, last):
            end = q + n_short[i]
            while q < end:
                for s in range(q + 1, end):
                    difference = b[R, q] - b[R, s]
                    stretch[t], _ = _exponent(difference, angle[types[i], ends[q], ends[s]])
                    stretch[t + 1], _ = _exponent(-difference, angle[types[i], ends[s], ends[q]])
                    t += 2
                q += 1
        exponentials(stretch, n_angles)
        q = t = 0
        for i in range(first, last):
            end = q + n_short[i]
            while q < end:
                for s in range(q + 1, end):
                    p = angle[types[i], ends[q], ends[s]]
                    cosine = b[UX, q] * b[UX, s] + b[UY, q] * b[UY, s] + b[UZ, q] * b[UZ, s]
                    is_like = ends[q] == ends[s]
                    g, _ = _angular(cosine, p)
                    b[ZETA, q] += _end_factor(b, s, p, is_like)[0] * g * stretch[t]
                    if not is_like:
                        p = angle[types[i], ends[s], ends[q]]
                        g, _ = _angular(cosine, p)
                    b[ZETA, s] += _end_factor(b, q, p, is_like)[0] * g * stretch[t + 1]
                    t += 2
                q += 1
        # The bond order b = exp(-log(1 + (βζ)^n) / 2n), one elementary function at a time.
        q = 0
        for i in range(first, last):
            for k in range(n_short[i]):
                b[U, q] = bond[types[i], ends[q], BETA] * b[ZETA, q]
                q += 1
        logarithms(b[U], n_pairs)
        q = 0
        for i in range(first, last):
            for k in range(n_short[i]):
                b[U, q] *= bond[types[i], ends[q], N]
                b[POWER, q] = min(b[U, q], STEEPEST)
                q += 1
        exponentials(b[POWER], n_pairs)
        for q in range(n_pairs):
            b[ORDER, q] = 1.0 + b[POWER, q]
        logarithms(b[ORDER], n_pairs)
        q = 0
        for i in range(first, last):
            for k in range(n_short[i]):
                b[ORDER, q] = -(b[ORDER, q] + max(b[U, q] - STEEPEST, 0.0)) / (2.0 * bond[types[i], ends[q], N])
                q += 1
        exponentials(b[ORDER], n_pairs)
        e = vxx = vyy = vzz = vyz = vxz = vxy = 0.0
        q = 0
        for i in range(first, last):
            for k in range(n_short[i]):
                p = bond[types[i], ends[q]]
                fc, order, zeta = b[FC, q], b[ORDER, q], b[ZETA, q]
                repel, attract = p[A] * b[REPEL, q], order * p[B] * b[ATTRACT, q]
                e += 0.5 * fc * (repel - attract)
                b[ALONG, q] = 0.5 * (
                    b[DFC, q] * (repel - attract) + fc * (p[LAMBDA_2] * attract - p[LAMBDA_1] * repel)
                )
                # ∂E/∂ζ; without a third atom there is none.
                share = b[POWER, q] / (1.0 + b[POWER, q])
                b[DZETA, q] = 0.0 if zeta == 0.0 else 0.25 * fc * attract * share / zeta
                q += 1
        q = t = 0
        for i in range(first, last):
            end = q + n_short[i]
            while q < end:
                for s in range(q + 1, end):
                    p = angle[types[i], ends[q], ends[s]]
                    cosine = b[UX, q] * b[UX, s] + b[UY, q] * b[UY, s] + b[UZ, q] * b[UZ, s]
                    difference = b[R, q] - b[R, s]
                    is_like = ends[q] == ends[s]
                    # s as the third atom of the bond q
                    g, dg = _angular(cosine, p)
                    _, steep = _exponent(difference, p)
                    fc, dfc = _end_factor(b, s, p, is_like)
                    weight = b[DZETA, q] * stretch[t]
                    turn = weight * fc * dg
                    longer = weight * fc * g * steep
                    along_s = weight * dfc * g
                    # q as the third atom of the bond s
                    if not is_like:
                        p = angle[types[i], ends[s], ends[q]]
                        g, dg = _angular(cosine, p)
                        _, steep = _exponent(-difference, p)
                    fc, dfc = _end_factor(b, q, p, is_like)
                    weight = b[DZETA, s] * stretch[t + 1]
                    turn += weight * fc * dg
                    longer -= weight * fc * g * steep
                    b[ALONG, q] += longer + weight * dfc * g
                    b[ALONG, s] += along_s - longer
                    turn_q, turn_s = turn / b[R, q], turn / b[R, s]
                    b[GX, q] += turn_q * (b[UX, s] - cosine * b[UX, q])
                    b[GY, q] += turn_q * (b[UY, s] - cosine * b[UY, q])
                    b[GZ, q] += turn_q * (b[UZ, s] - cosine * b[UZ, q])
                    b[GX, s] += turn_s * (b[UX, q] - cosine * b[UX, s])
                    b[GY, s] += turn_s * (b[UY, q] - cosine * b[UY, s])
                    b[GZ, s] += turn_s * (b[UZ, q] - cosine * b[UZ, s])
                    t += 2
                q += 1
        q = 0
        for i in range(first, last):
            for k in range(n_short[i]):
                fx = -b[ALONG, q] * b[UX, q] - b[GX, q]
                fy = -b[ALONG, q] * b[UY, q] - b[GY, q]
                fz = -b[ALONG, q] * b[UZ, q] - b[GZ, q]
                pushes[i, k, 0], pushes[i, k, 1], pushes[i, k, 2] = fx, fy, fz
                if totals:
                    dx, dy, dz = b[R, q] * b[UX, q], b[R, q] * b[UY, q], b[R, q] * b[UZ, q]
                    vxx += dx * fx
                    vyy += dy * fy
                    vzz += dz * fz
                    vyz += dy * fz
                    vxz += dx * fz
                    vxy += dx * fy
                q += 1
        energy += e
        sxx += vxx
        syy += vyy
        szz += vzz
        syz += vyz
        sxz += vxz
        sxy += vxy
    return np.array([energy, sxx, syy, szz, syz, sxz, sxy])


@njit(parallel=True, cache=True, error_model="numpy")
def _collect(short, n_short, pushes, forces):
    """Fill the owned rows of ``forces``: what a centre's neighbours push back, and what owned neighbours push."""
    n_owned = len(n_short)
    for i in prange(n_owned):
        fx = fy = fz = 0.0
        for k in range(n_short[i]):
            fx -= pushes[i, k, 0]
            fy -= pushes[i, k, 1]
            fz -= pushes[i, k, 2]
            j = short[i, k]
            if j < n_owned:
                for s in range(n_short[j]):
                    if short[j, s] == i:
                        fx += pushes[j, s, 0]
                        fy += pushes[j, s, 1]
                        fz += pushes[j, s, 2]
        forces[i, 0], forces[i, 1], forces[i, 2] = fx, fy, fz


@njit(cache=True, error_model="numpy")
def _hand_to_ghosts(short, n_short, pushes, forces):
    """Add to the ghost rows of ``forces`` what owned centres push them with; few rows, so one thread."""
    n_owned = len(n_short)
    for i in range(n_owned):
        for k in range(n_short[i]):
            j = short[i, k]
            if j >= n_owned:
                for d in range(3):
                    forces[j, d] += pushes[i, k, d]
