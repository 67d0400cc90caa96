"""Loops that hold bond lengths, molecule by molecule: a linear system with as many unknowns as the molecule has bonds.

RATTLE: H. C. Andersen, J. Comput. Phys. 52 (1983) 24, doi 10.1016/0021-9991(83)90014-1. Newton's method on all bonds of
a molecule together is M-SHAKE: V. Kräutler, W. F. van Gunsteren, P. H. Hünenberger, J. Comput. Chem. 22 (2001) 501,
doi 10.1002/1096-987X(20010415)22:5<501::AID-JCC1021>3.0.CO;2-V.

Every loop takes bonds sorted by molecule: ``starts`` (m + 1,) first bond of each, ``bonds`` (n, 2) rows, ``lengths``
(n,) Å, ``offsets`` (n, 3) Å with d = r_a - r_b - offset, and ``weights`` (rows, 3), 1/m of components that move and 0
of fixed ones. A molecule's numbers depend on nothing but its own atoms.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

TOLERANCE = 1e-13  # of squared lengths, relative
GOOD_ENOUGH = 1e-10  # where rounding stops the iteration before
MOST_ITERATIONS = 40
CHUNKS = (
    64  # molecules that one thread takes in turn share its scratch arrays: fresh ones cost as much as the arithmetic
)


@njit(cache=True)
def _shared_weight(bonds, k, m, weights, d):
    """How a unit impulse along component ``d`` of bond m changes the relative velocity along bond k."""
    a, b = bonds[k, 0], bonds[k, 1]
    e, f = bonds[m, 0], bonds[m, 1]
    weight = 0.0
    if a == e:
        weight += weights[a, d]
    if a == f:
        weight -= weights[a, d]
    if b == e:
        weight -= weights[b, d]
    if b == f:
        weight += weights[b, d]
    return weight


@njit(cache=True)
def _solve(n, matrix, x):
    """The first ``n`` of ``x`` become the solution of matrix · y = x, by elimination with row exchanges; False if there
    is none."""
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(matrix[i, k]) > abs(matrix[pivot, k]):
                pivot = i
        if not abs(matrix[pivot, k]) > 0.0:
            return False
        if pivot != k:
            for j in range(n):
                matrix[k, j], matrix[pivot, j] = matrix[pivot, j], matrix[k, j]
            x[k], x[pivot] = x[pivot], x[k]
        for i in range(k + 1, n):
            factor = matrix[i, k] / matrix[k, k]
            if factor != 0.0:
                for j in range(k + 1, n):
                    matrix[i, j] -= factor * matrix[k, j]
                x[i] -= factor * x[k]
    for k in range(n - 1, -1, -1):
        for j in range(k + 1, n):
            x[k] -= matrix[k, j] * x[j]
        x[k] /= matrix[k, k]
    return True


@njit(cache=True)
def _most(starts):
    """Bonds of the largest molecule."""
    most = 0
    for c in range(len(starts) - 1):
        most = max(most, starts[c + 1] - starts[c])
    return most


@njit(cache=True)
def _bond_vectors(first, n, bonds, offsets, positions, vectors):
    """``vectors`` (n, 3) get d_k."""
    for k in range(n):
        a, b = bonds[first + k, 0], bonds[first + k, 1]
        for d in range(3):
            vectors[k, d] = positions[a, d] - positions[b, d] - offsets[first + k, d]


@njit(cache=True)
def _moves(first, n, bonds, weights, vectors, moves):
    """``moves`` (n, n, 3) get how the velocity along bond k changes by a unit impulse along bond m's vector."""
    for k in range(n):
        a, b = bonds[first + k, 0], bonds[first + k, 1]
        for m in range(n):
            e, f = bonds[first + m, 0], bonds[first + m, 1]
            is_joined = a in (e, f) or b in (e, f)
            for d in range(3):
                weight = _shared_weight(bonds, first + k, first + m, weights, d) if is_joined else 0.0
                moves[k, m, d] = weight * vectors[m, d]


@njit(cache=True)
def _equations(first, n, bonds, offsets, weights, positions, vectors, moves, matrix):
    """``matrix`` (n, n) gets d_k · w d_m: what velocities along the bonds gain by unit impulses along them; ``vectors``
    and ``moves`` as above."""
    _bond_vectors(first, n, bonds, offsets, positions, vectors)
    _moves(first, n, bonds, weights, vectors, moves)
    for k in range(n):
        for m in range(n):
            matrix[k, m] = 0.0
            for d in range(3):
                matrix[k, m] += vectors[k, d] * moves[k, m, d]


@njit(cache=True)
def _push(first, n, bonds, weights, momenta, vectors, sizes):
    """Impulses ``sizes`` times the bond vectors, on components that move."""
    for k in range(n):
        a, b = bonds[first + k, 0], bonds[first + k, 1]
        for d in range(3):
            if weights[a, d] > 0.0:
                momenta[a, d] += sizes[k] * vectors[k, d]
            if weights[b, d] > 0.0:
                momenta[b, d] -= sizes[k] * vectors[k, d]


@njit(parallel=True, cache=True)
def aim(starts, bonds, lengths, offsets, weights, positions, momenta, time):
    """Give ``momenta`` impulses along the bonds, so that a drift over ``time`` ends with every bond at its length.

    Returns:
        (m,) how far each molecule's worst squared length is then from its own, relative; NaN where lost.
    """
    n_molecules, most = len(starts) - 1, _most(starts)
    off = np.empty(n_molecules)
    for chunk in prange(CHUNKS):
        old, free, now = np.empty((most, 3)), np.empty((most, 3)), np.empty((most, 3))
        sizes, change = np.empty(most), np.empty(most)
        slope, moves = np.empty((most, most)), np.empty((most, most, 3))
        for c in range(chunk * n_molecules // CHUNKS, (chunk + 1) * n_molecules // CHUNKS):
            first, n = starts[c], starts[c + 1] - starts[c]
            _bond_vectors(first, n, bonds, offsets, positions, old)
            _moves(first, n, bonds, weights, old, moves)
            for k in range(n):
                a, b = bonds[first + k, 0], bonds[first + k, 1]
                sizes[k] = 0.0
                for d in range(3):
                    free[k, d] = old[k, d] + time * (weights[a, d] * momenta[a, d] - weights[b, d] * momenta[b, d])
            off[c] = _to_lengths(first, n, lengths, free, moves, now, sizes, change, slope)
            for k in range(n):
                sizes[k] /= time
            _push(first, n, bonds, weights, momenta, old, sizes)
    return off


@njit(cache=True)
def _to_lengths(first, n, lengths, free, moves, now, sizes, change, slope):
    """Newton's method for the ``sizes`` of impulses, from zero, that bring ``free`` bonds to their lengths; how far the
    worst is off in the end. The last three are scratch."""
    worst = np.inf
    for _ in range(MOST_ITERATIONS):
        worst = 0.0
        for k in range(n):
            for d in range(3):
                now[k, d] = free[k, d]
                for m in range(n):
                    now[k, d] += sizes[m] * moves[k, m, d]
            wanted = lengths[first + k] ** 2
            change[k] = wanted - (now[k, 0] ** 2 + now[k, 1] ** 2 + now[k, 2] ** 2)
            if not abs(change[k]) / wanted <= worst:  # NaN too
                worst = abs(change[k]) / wanted
        if not worst > TOLERANCE:
            break
        for k in range(n):
            for m in range(n):
                slope[k, m] = 0.0
                for d in range(3):
                    slope[k, m] += 2.0 * now[k, d] * moves[k, m, d]
        if not _solve(n, slope, change):
            return np.nan
        for k in range(n):
            sizes[k] += change[k]
    return worst


@njit(parallel=True, cache=True)
def project(starts, bonds, offsets, weights, positions, momenta):
    """Take off ``momenta`` what would stretch a bond: the nearest ones, by kinetic energy, that stretch none."""
    n_molecules, most = len(starts) - 1, _most(starts)
    for chunk in prange(CHUNKS):
        vectors, sizes = np.empty((most, 3)), np.empty(most)
        matrix, moves = np.empty((most, most)), np.empty((most, most, 3))
        for c in range(chunk * n_molecules // CHUNKS, (chunk + 1) * n_molecules // CHUNKS):
            first, n = starts[c], starts[c + 1] - starts[c]
            _equations(first, n, bonds, offsets, weights, positions, vectors, moves, matrix)
            for k in range(n):
                a, b = bonds[first + k, 0], bonds[first + k, 1]
                sizes[k] = 0.0
                for d in range(3):
                    sizes[k] -= vectors[k, d] * (weights[a, d] * momenta[a, d] - weights[b, d] * momenta[b, d])
            if _solve(n, matrix, sizes):
                _push(first, n, bonds, weights, momenta, vectors, sizes)


@njit(parallel=True, cache=True)
def constraint_virials(starts, bonds, offsets, weights, positions, momenta, forces):
    """(m, 3, 3) Σ r_ij ⊗ g_ij of the forces g that keep the bonds of each molecule from accelerating.

    d/dt (d · v) = 0 along every bond: v² + d · (a_a - a_b) = 0, with a from ``forces`` and g together.
    """
    n_molecules, most = len(starts) - 1, _most(starts)
    virials = np.zeros((n_molecules, 3, 3))
    for chunk in prange(CHUNKS):
        vectors, sizes = np.empty((most, 3)), np.empty(most)
        matrix, moves = np.empty((most, most)), np.empty((most, most, 3))
        for c in range(chunk * n_molecules // CHUNKS, (chunk + 1) * n_molecules // CHUNKS):
            first, n = starts[c], starts[c + 1] - starts[c]
            _equations(first, n, bonds, offsets, weights, positions, vectors, moves, matrix)
            for k in range(n):
                a, b = bonds[first + k, 0], bonds[first + k, 1]
                sizes[k] = 0.0
                for d in range(3):
                    v = weights[a, d] * momenta[a, d] - weights[b, d] * momenta[b, d]
                    sizes[k] -= v * v + vectors[k, d] * (weights[a, d] * forces[a, d] - weights[b, d] * forces[b, d])
            if _solve(n, matrix, sizes):
                for k in range(n):
                    for d in range(3):
                        for e in range(3):
                            virials[c, d, e] += sizes[k] * vectors[k, d] * vectors[k, e]
    return virials


@njit(parallel=True, cache=True)
def independence(starts, bonds, offsets, weights, positions):
    """(m,) the smallest part of a bond's own weight that the bonds before it leave free; 0 if it follows from them."""
    n_molecules, most = len(starts) - 1, _most(starts)
    least = np.ones(n_molecules)
    for chunk in prange(CHUNKS):
        vectors, own = np.empty((most, 3)), np.empty(most)
        matrix, moves = np.empty((most, most)), np.empty((most, most, 3))
        for c in range(chunk * n_molecules // CHUNKS, (chunk + 1) * n_molecules // CHUNKS):
            first, n = starts[c], starts[c + 1] - starts[c]
            _equations(first, n, bonds, offsets, weights, positions, vectors, moves, matrix)
            for k in range(n):
                own[k] = matrix[k, k]
            for k in range(n):
                left = matrix[k, k] / own[k] if own[k] > 0.0 else 0.0
                least[c] = min(least[c], left)
                if not left > 1e-14:
                    break
                for i in range(k + 1, n):
                    factor = matrix[i, k] / matrix[k, k]
                    for j in range(k + 1, n):
                        matrix[i, j] -= factor * matrix[k, j]
    return least
