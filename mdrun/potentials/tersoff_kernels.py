"""The loops of the Tersoff potential, whose formula stands in ``tersoff``.

A chunk of centres is worked off in stages over all their pairs and angles, so that exponentials and logarithms can be
taken of whole buffers.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from mdrun.potentials.kernels import FASTMATH
from mdrun.potentials.short_list import CHUNK
from mdrun.potentials.tersoff_parameters import ANGLE, BOND
from mdrun.potentials.vector_math import exponentials, logarithms

MOST_STRETCH = 69.0776  # LAMMPS's bound on the exponent of ζ: e to it is 1e30
STEEPEST = 300.0  # log of (βζ)^n from where on 1 may be neglected beside it
A, LAMBDA_1, B, LAMBDA_2, BETA, N, BOND_INNER, BOND_OUTER = range(len(BOND))
GAMMA, C2_D2, D2, COS_0, STRETCH, M, INNER, OUTER = range(len(ANGLE))
# Rows of the buffer of pairs: unit vector to the neighbour, distance, f_C of the bond and its slope, the exponentials
# of repulsion and attraction, ζ, n log βζ, (βζ)^n, b, ∂E/∂ζ, and the energy's gradient: along the pair, and the rest.
UX, UY, UZ, R, FC, DFC, REPEL, ATTRACT, ZETA, U, POWER, ORDER, DZETA, ALONG, GX, GY, GZ = range(17)


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
def _third(b, q, p, is_like):
    """f_C of pair q as the third atom of an angle, and its slope; that of its own bond where both ends are alike."""
    if is_like:
        return b[FC, q], b[DFC, q]
    return _cutoff_function(b[R, q], p[INNER], p[OUTER])


@njit(inline="always")
def _gather(x, types, short, n_short, first, last, bond, b, kinds, ends):
    """Fill the rows of geometry and radial functions; ``kinds`` and ``ends`` with the bond's and the end's type."""
    n_types = len(bond)
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
            kinds[q] = types[i] * n_types + types[j]
            ends[q] = types[j]
            q += 1
    exponentials(b[REPEL], q)
    exponentials(b[ATTRACT], q)


@njit(inline="always")
def _sum_zeta(types, n_short, first, last, angle, b, ends, stretch):
    """Fill ζ; ``stretch`` with the exponentials of angle (q, s) in the bond q, then of (s, q) in the bond s."""
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
    exponentials(stretch, t)
    q = t = 0
    for i in range(first, last):
        end = q + n_short[i]
        while q < end:
            for s in range(q + 1, end):
                p = angle[types[i], ends[q], ends[s]]
                cosine = b[UX, q] * b[UX, s] + b[UY, q] * b[UY, s] + b[UZ, q] * b[UZ, s]
                is_like = ends[q] == ends[s]
                g, _ = _angular(cosine, p)
                fc, _ = _third(b, s, p, is_like)
                b[ZETA, q] += fc * g * stretch[t]
                if not is_like:
                    p = angle[types[i], ends[s], ends[q]]
                    g, _ = _angular(cosine, p)
                fc, _ = _third(b, q, p, is_like)
                b[ZETA, s] += fc * g * stretch[t + 1]
                t += 2
            q += 1


@njit(inline="always")
def _bonds(bond, b, kinds):
    """Fill the bonds' gradients along the pair and ∂E/∂ζ; the energy.

    b = exp(-log(1 + (βζ)^n) / 2n), one elementary function at a time.
    """
    n_types, n = len(bond), len(kinds)
    flat = bond.reshape(n_types * n_types, len(BOND))
    for q in range(n):
        b[U, q] = flat[kinds[q], BETA] * b[ZETA, q]
    logarithms(b[U], n)
    for q in range(n):
        b[U, q] *= flat[kinds[q], N]
        b[POWER, q] = min(b[U, q], STEEPEST)
    exponentials(b[POWER], n)
    for q in range(n):
        b[ORDER, q] = 1.0 + b[POWER, q]
    logarithms(b[ORDER], n)
    for q in range(n):
        b[ORDER, q] = -0.5 / flat[kinds[q], N] * (b[ORDER, q] + max(b[U, q] - STEEPEST, 0.0))
    exponentials(b[ORDER], n)
    energy = 0.0
    for q in range(n):
        p = flat[kinds[q]]
        fc = b[FC, q]
        repel, attract = p[A] * b[REPEL, q], b[ORDER, q] * p[B] * b[ATTRACT, q]
        energy += 0.5 * fc * (repel - attract)
        b[ALONG, q] = 0.5 * (b[DFC, q] * (repel - attract) + fc * (p[LAMBDA_2] * attract - p[LAMBDA_1] * repel))
        share = b[POWER, q] / (1.0 + b[POWER, q])
        # Without a third atom there is nothing to feel.
        b[DZETA, q] = 0.0 if b[ZETA, q] == 0.0 else 0.25 * fc * attract * share / b[ZETA, q]
    return energy


@njit(inline="always")
def _bend(types, n_short, first, last, angle, b, ends, stretch):
    """Add the angles' share to the gradients."""
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
                fc, dfc = _third(b, s, p, is_like)
                weight = b[DZETA, q] * stretch[t]
                turn = weight * fc * dg
                longer = weight * fc * g * steep
                along_s = weight * dfc * g
                # q as the third atom of the bond s
                if not is_like:
                    p = angle[types[i], ends[s], ends[q]]
                    g, dg = _angular(cosine, p)
                    _, steep = _exponent(-difference, p)
                fc, dfc = _third(b, q, p, is_like)
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


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def push_from_centres(x, types, short, n_short, bond, angle, pushes, totals):
    """Fill ``pushes``: [i, k] the force of centre i's energy on its k-th neighbour. Sums of energy and virial.

    Args:
        short, n_short: a ``ShortList``'s rows.
        bond, angle: see ``Tersoff``.
        pushes: (n_owned, width, 3) eV/Å.
        totals: whether the virial is wanted.
    """
    n_owned = len(n_short)
    energy = sxx = syy = szz = syz = sxz = sxy = 0.0
    for chunk in prange(-(-n_owned // CHUNK)):
        first, last = chunk * CHUNK, min((chunk + 1) * CHUNK, n_owned)
        n_pairs = n_angles = 0
        for i in range(first, last):
            n_pairs += n_short[i]
            n_angles += n_short[i] * (n_short[i] - 1)
        b = np.empty((17, n_pairs))
        kinds, ends = np.empty(n_pairs, np.int32), np.empty(n_pairs, np.int32)
        stretch = np.empty(n_angles)
        _gather(x, types, short, n_short, first, last, bond, b, kinds, ends)
        _sum_zeta(types, n_short, first, last, angle, b, ends, stretch)
        energy += _bonds(bond, b, kinds)
        _bend(types, n_short, first, last, angle, b, ends, stretch)
        vxx = vyy = vzz = vyz = vxz = vxy = 0.0
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
        sxx += vxx
        syy += vyy
        szz += vzz
        syz += vyz
        sxz += vxz
        sxy += vxy
    return np.array([energy, sxx, syy, szz, syz, sxz, sxy])


@njit(parallel=True, cache=True, error_model="numpy")
def collect(short, n_short, pushes, forces):
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
def hand_to_ghosts(short, n_short, pushes, forces):
    """Add to the ghost rows of ``forces`` what owned centres push them with; few rows, so one thread."""
    n_owned = len(n_short)
    for i in range(n_owned):
        for k in range(n_short[i]):
            j = short[i, k]
            if j >= n_owned:
                for d in range(3):
                    forces[j, d] += pushes[i, k, d]
