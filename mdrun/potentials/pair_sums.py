"""What the forces between pairs add up to, written once for the loops over a row of neighbours.

Ten sums of a row: the force on its atom, then energy and virial xx, yy, zz, yz, xz, xy. A tuple of vectors, each of
partial sums that stay in a register.
"""

from __future__ import annotations

from numba import njit

from mdrun.vectors import FASTMATH, total, zeros


@njit(cache=True)
def no_pairs(like):
    """Ten sums of nothing, in the type of an array."""
    o = zeros(like)
    return o, o, o, o, o, o, o, o, o, o


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def with_pushes(sums, energy, push, share, d, totals):
    """The sums with a vector of pairs more; the last seven stay as they are where ``totals`` is None.

    Args:
        energy: eV, of the pairs.
        push: x, y, z, eV/Å, the force on the neighbours, whose opposite is on the row's atom.
        share: x, y, z, eV/Å, the forces that count in the virial.
        d: x, y, z, Å, from the row's atom to the neighbours.
    """
    x, y, z, e, xx, yy, zz, yz, xz, xy = sums
    px, py, pz = push
    x, y, z = x - px, y - py, z - pz
    if totals is not None:
        sx, sy, sz = share
        dx, dy, dz = d
        e, xx, yy, zz = e + energy, xx + dx * sx, yy + dy * sy, zz + dz * sz
        yz, xz, xy = yz + dy * sz, xz + dx * sz, xy + dx * sy
    return x, y, z, e, xx, yy, zz, yz, xz, xy


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def with_pairs(sums, energy, f, d, totals):
    """The same for central forces: ``f`` is force over distance, eV/Å², positive where a pair repels."""
    dx, dy, dz = d
    push = f * dx, f * dy, f * dz
    return with_pushes(sums, energy, push, push, d, totals)


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def settle(sums, zero, force, totals):
    """Put a row's sums where they belong, added up in the type of ``zero``: the force, and onto the seven others."""
    for k in range(3):
        force[k] = total(sums[k], zero)
    for k in range(7):
        totals[k] += total(sums[3 + k], zero)
