"""The loops of the Tersoff potential, whose formula stands in ``tersoff``.

A centre is worked off in stages, each over whole vectors of its neighbours: first all radial functions, then for one
bond after another its ζ out of all third atoms at once, then what all the bonds are worth, then for one bond after
another what its third atoms feel.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from mdrun.buffers import load, store
from mdrun.lanes import LANES, indices_at, rows_at
from mdrun.lookup import table_rows
from mdrun.potentials.arithmetic import exp, sqrt
from mdrun.potentials.tersoff_parameters import ANGLE, BOND, REFERENCE
from mdrun.potentials.vector_math import logarithm, sine_and_cosine
from mdrun.vectors import FASTMATH, choose, n_lanes, total, zeros

# Bound on the exponent of ζ: LAMMPS's, e to which is 1e30; in float32, which ends at 1e38, one from which on a bond's
# order is as good as zero, too.
MOST_STRETCH: dict[type, float] = {np.float64: 69.0776, np.float32: 40.0}
STEEPEST = 40.0  # log of (βζ)^n from where on 1 may be neglected beside it
FARTHEST = 100.0  # Å, the distance that the row far away is given, so that its powers stay finite
A, LAMBDA_1, B, LAMBDA_2, BETA, N, BOND_INNER, BOND_OUTER = range(len(BOND))
GAMMA, C2_D2, D2, COS_0, STRETCH, M, INNER, OUTER = range(len(ANGLE))
# Rows of the buffer of a centre's neighbours: type; unit vector, distance and its inverse; f_C of the bond and its
# slope; energies of repulsion and attraction; ζ, ∂E/∂ζ; the energy's gradient along the pair, and the rest, as the
# pair's end and as a third atom.
(
    TYPE, KIND, UX, UY, UZ, R, INVERSE, FC, DFC, REPEL, ATTRACT, ZETA, DZETA, ALONG, GX, GY, GZ, LONGER, HX, HY, HZ,
    N_ROWS,
) = range(22)  # fmt: skip
CENTRES = 16  # that share the buffers; these stay in the first-level cache


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _cutoff_function(r, inner, outer):
    """f_C, 1 up to ``inner`` and 0 from ``outer`` on, and its slope."""
    per_width = np.pi / (outer - inner)
    angle = (r - 0.5 * (inner + outer)) * per_width
    sine, cosine = sine_and_cosine(min(max(angle, -0.5 * np.pi), 0.5 * np.pi))
    is_short, is_long = r <= inner, r >= outer
    f = choose(is_long, 0.0, choose(is_short, 1.0, 0.5 - 0.5 * sine))
    slope = choose(is_long, 0.0, choose(is_short, 0.0, -0.5 * per_width * cosine))
    return f, slope


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _exponent(difference, p, most_stretch):
    """(λ3 Δ)^m within bounds, and its slope; Δ is r_ij - r_ik."""
    square = choose(p[M] > 2.0, difference * difference, 1.0)
    exponent = p[STRETCH] * difference * square
    bounded = min(max(exponent, -most_stretch), most_stretch)
    return bounded, choose(exponent == bounded, p[M] * p[STRETCH] * square, 0.0)


@njit(cache=True, error_model="numpy")
def _put_side_by_side(short, n_short, first, last, nowhere, centres, ends):
    """Rows of centre and end of the pairs of some centres, and two vectors of the row far away; how many pairs."""
    q = 0
    for i in range(first, last):
        for k in range(n_short[i]):
            centres[q], ends[q] = i, short[i, k]
            q += 1
    for fill in range(q, q + 2 * LANES):
        centres[fill], ends[fill] = first, nowhere
    return q


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _radial(packed, centres, ends, n, bonds, angles, of_two, of_three, b, taper, slope):
    """Fill the rows of geometry and radial functions; of ``taper`` and its ``slope`` [t] f_C of the neighbours as
    third atoms of a bond to type t."""
    n_types = len(taper)
    for q in range(0, n + n_lanes(packed) - 1, n_lanes(packed)):  # as far as the last centre's vectors reach
        xi, yi, zi, ti = rows_at(packed, centres, q)
        x, y, z, tj = rows_at(packed, ends, q)
        p = table_rows(bonds, ti * n_types + tj, of_two)
        dx, dy, dz = x - xi, y - yi, z - zi
        r = sqrt(dx * dx + dy * dy + dz * dz)
        inverse = 1.0 / r
        store(tj, b[TYPE], q)
        store(dx * inverse, b[UX], q)
        store(dy * inverse, b[UY], q)
        store(dz * inverse, b[UZ], q)
        store(inverse, b[INVERSE], q)
        r = min(r, FARTHEST)
        store(r, b[R], q)
        for t in range(n_types):
            third = table_rows(angles, (ti * n_types + t) * n_types + tj, of_three)
            f, df = _cutoff_function(r, third[INNER], third[OUTER])
            store(f, taper[t], q)
            store(df, slope[t], q)
        if n_types > 1:  # else the last one is the bond's
            f, df = _cutoff_function(r, p[BOND_INNER], p[BOND_OUTER])
        store(f, b[FC], q)
        store(df, b[DFC], q)
        store(p[A] * exp(p[LAMBDA_1] * (REFERENCE - r)), b[REPEL], q)
        store(p[B] * exp(p[LAMBDA_2] * (REFERENCE - r)), b[ATTRACT], q)
        store(ti * n_types + tj, b[KIND], q)
        for row in range(ZETA, N_ROWS):
            store(zeros(packed), b[row], q)


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _sum_zeta(start, n, angle, few, most_stretch, order, b, taper, stretch, zero):
    """Fill ζ; ``stretch`` [q] with the exponentials of the bond q and its third atoms, zero for all others."""
    for q in range(n):
        t = int(b[TYPE, start + q])
        ux, uy, uz, r = b[UX, start + q], b[UY, start + q], b[UZ, start + q], b[R, start + q]
        zeta = zeros(b)
        for k in range(0, n, n_lanes(b)):
            at, which = start + k, indices_at(order, k, b)
            p = table_rows(angle[t], load(b[TYPE], at), few)
            v = p[COS_0] - (ux * load(b[UX], at) + uy * load(b[UY], at) + uz * load(b[UZ], at))
            exponent, _ = _exponent(r - load(b[R], at), p, most_stretch)
            e = choose(which >= n, 0.0, choose(which == q, 0.0, exp(exponent)))
            store(e, stretch[start + q], k)
            g = p[GAMMA] + p[GAMMA] * p[C2_D2] * v * v / (p[D2] + v * v)
            zeta += load(taper[t], at) * g * e
        b[ZETA, start + q] = total(zeta, zero)


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _bonds(n, bonds, few, b, zero):
    """Fill the bonds' gradients along the pair and ∂E/∂ζ; the energy.

    b = exp(-log(1 + (βζ)^n) / 2n).
    """
    energy = zeros(b)
    for q in range(0, n, n_lanes(b)):
        p = table_rows(bonds, load(b[KIND], q), few)
        zeta, fc = load(b[ZETA], q), load(b[FC], q)
        u = p[N] * logarithm(p[BETA] * zeta)
        power = exp(min(u, STEEPEST))
        order = exp(-0.5 / p[N] * (logarithm(1.0 + power) + max(u - STEEPEST, 0.0)))
        repel, attract = load(b[REPEL], q), order * load(b[ATTRACT], q)
        energy += fc * (repel - attract)
        along = load(b[DFC], q) * (repel - attract) + fc * (p[LAMBDA_2] * attract - p[LAMBDA_1] * repel)
        store(0.5 * along, b[ALONG], q)
        # Without a third atom there is nothing to feel.
        felt = 0.25 * fc * attract * power / ((1.0 + power) * zeta)
        store(choose(zeta <= 0.0, 0.0, felt), b[DZETA], q)
    return 0.5 * total(energy, zero)


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _bend(start, n, angle, few, most_stretch, b, taper, slope, stretch, zero):
    """Add the angles' share to the gradients."""
    for q in range(n):
        here = start + q
        t = int(b[TYPE, here])
        ux, uy, uz, r, inverse = b[UX, here], b[UY, here], b[UZ, here], b[R, here], b[INVERSE, here]
        all_longer = all_turn = hx = hy = hz = zeros(b)
        for k in range(0, n, n_lanes(b)):
            at = start + k
            p = table_rows(angle[t], load(b[TYPE], at), few)
            x, y, z = load(b[UX], at), load(b[UY], at), load(b[UZ], at)
            cosine = ux * x + uy * y + uz * z
            v = p[COS_0] - cosine
            sharp = 1.0 / (p[D2] + v * v)
            c2_v = p[GAMMA] * p[C2_D2] * v * sharp
            g, dg = p[GAMMA] + c2_v * v, -2.0 * c2_v * p[D2] * sharp
            _, steep = _exponent(r - load(b[R], at), p, most_stretch)
            weight = b[DZETA, here] * load(stretch[here], k)
            near = weight * load(taper[t], at)
            turn, longer = near * dg, near * g * steep
            store(load(b[ALONG], at) + weight * load(slope[t], at) * g - longer, b[ALONG], at)
            side = turn * load(b[INVERSE], at)
            store(load(b[GX], at) + side * (ux - cosine * x), b[GX], at)
            store(load(b[GY], at) + side * (uy - cosine * y), b[GY], at)
            store(load(b[GZ], at) + side * (uz - cosine * z), b[GZ], at)
            all_longer += longer
            all_turn += turn * cosine
            hx += turn * x
            hy += turn * y
            hz += turn * z
        whole = total(all_turn, zero)
        b[LONGER, here] = total(all_longer, zero)
        b[HX, here] = (total(hx, zero) - whole * ux) * inverse
        b[HY, here] = (total(hy, zero) - whole * uy) * inverse
        b[HZ, here] = (total(hz, zero) - whole * uz) * inverse


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _push(start, n, order, b, pushes, zero, totals, sums):
    """Fill a centre's ``pushes``, zeros after the last."""
    vxx = vyy = vzz = vyz = vxz = vxy = zeros(b)
    for k in range(0, n, n_lanes(b)):
        at, is_other = start + k, indices_at(order, k, b) >= n
        x, y, z, r = load(b[UX], at), load(b[UY], at), load(b[UZ], at), load(b[R], at)
        along = load(b[ALONG], at) + load(b[LONGER], at)
        fx = choose(is_other, 0.0, -along * x - load(b[GX], at) - load(b[HX], at))
        fy = choose(is_other, 0.0, -along * y - load(b[GY], at) - load(b[HY], at))
        fz = choose(is_other, 0.0, -along * z - load(b[GZ], at) - load(b[HZ], at))
        store(fx, pushes[0], k)
        store(fy, pushes[1], k)
        store(fz, pushes[2], k)
        x, y, z = r * x, r * y, r * z
        vxx += x * fx
        vyy += y * fy
        vzz += z * fz
        vyz += y * fz
        vxz += x * fz
        vxy += x * fy
    if totals:
        sums[1] += total(vxx, zero)
        sums[2] += total(vyy, zero)
        sums[3] += total(vzz, zero)
        sums[4] += total(vyz, zero)
        sums[5] += total(vxz, zero)
        sums[6] += total(vxy, zero)


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def push_from_centres(
    packed, short, n_short, bond, angle, of_one, of_two, of_three, most_stretch, pushes, zero, totals, n_chunks
):
    """Fill ``pushes``: [i, :, k] the force of centre i's energy on its k-th neighbour. Sums of energy and virial.

    Args:
        packed: see ``Domain``.
        short, n_short: a ``ShortList``'s rows.
        bond, angle: see ``Tersoff``.
        of_one, of_two, of_three: see ``choice_among``, for as many types together.
        most_stretch: bound on the exponent of ζ.
        pushes: (n_owned, 3, width) eV/Å, zeros after a centre's last neighbour.
        zero: of the type to sum in.
        totals: whether the virial is wanted.
    """
    n_owned, n_types, nowhere = len(n_short), len(bond), len(packed) - 1
    bonds, angles = bond.reshape(n_types * n_types, len(BOND)), angle.reshape(n_types**3, len(ANGLE))
    sums = np.zeros((n_chunks, 7))
    for chunk in prange(n_chunks):
        width = short.shape[1]
        room = CENTRES * width + 2 * LANES
        centres, ends = np.empty(room, np.int32), np.empty(room, np.int32)
        b = np.empty((N_ROWS, room), packed.dtype)
        taper, slope = np.empty((n_types, room), packed.dtype), np.empty((n_types, room), packed.dtype)
        stretch, order = np.empty((room, width), packed.dtype), np.arange(width).astype(np.int32)
        stop = (chunk + 1) * n_owned // n_chunks
        for first in range(chunk * n_owned // n_chunks, stop, CENTRES):
            last = min(first + CENTRES, stop)
            n_pairs = _put_side_by_side(short, n_short, first, last, nowhere, centres, ends)
            _radial(packed, centres, ends, n_pairs, bonds, angles, of_two, of_three, b, taper, slope)
            start = 0
            for i in range(first, last):
                mine = angle[int(packed[i, 3])]
                _sum_zeta(start, n_short[i], mine, of_one, most_stretch, order, b, taper, stretch, zero)
                start += n_short[i]
            sums[chunk, 0] += _bonds(n_pairs, bonds, of_two, b, zero)
            start = 0
            for i in range(first, last):
                mine = angle[int(packed[i, 3])]
                _bend(start, n_short[i], mine, of_one, most_stretch, b, taper, slope, stretch, zero)
                start += n_short[i]
            start = 0
            for i in range(first, last):
                _push(start, n_short[i], order, b, pushes[i], zero, totals, sums[chunk])
                start += n_short[i]
    return sums.sum(axis=0)


@njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def collect(short, n_short, pushes, forces, zero, n_chunks):
    """Fill the owned rows of ``forces``: what a centre's neighbours push back, and what owned neighbours push."""
    n_owned = len(n_short)
    for chunk in prange(n_chunks):
        for i in range(chunk * n_owned // n_chunks, (chunk + 1) * n_owned // n_chunks):
            fx = fy = fz = zeros(pushes)
            for k in range(0, n_short[i], n_lanes(pushes)):
                fx -= load(pushes[i, 0], k)
                fy -= load(pushes[i, 1], k)
                fz -= load(pushes[i, 2], k)
            for k in range(n_short[i]):
                j = short[i, k]
                if j < n_owned:
                    for s in range(0, n_short[j], n_lanes(pushes)):
                        is_here = indices_at(short[j], s, pushes) == i
                        fx += choose(is_here, load(pushes[j, 0], s), 0.0)
                        fy += choose(is_here, load(pushes[j, 1], s), 0.0)
                        fz += choose(is_here, load(pushes[j, 2], s), 0.0)
            forces[i, 0], forces[i, 1], forces[i, 2] = total(fx, zero), total(fy, zero), total(fz, zero)


@njit(cache=True, error_model="numpy")
def hand_to_ghosts(short, n_short, pushes, forces):
    """Add to the ghost rows of ``forces`` what owned centres push them with; few rows, so one thread."""
    n_owned = len(n_short)
    for i in range(n_owned):
        for k in range(n_short[i]):
            j = short[i, k]
            if j >= n_owned:
                for d in range(3):
                    forces[j, d] += pushes[i, d, k]
