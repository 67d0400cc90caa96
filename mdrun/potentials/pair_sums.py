"""What the forces between pairs add up to, written once for the loops over a row of neighbours.

Ten sums of a row: the force on its atom, then energy and virial xx, yy, zz, yz, xz, xy. A tuple, since the compiler
keeps its items in registers, each a vector of partial sums.
"""

from __future__ import annotations

from numba import njit

from mdrun.potentials.kernels import FASTMATH


@njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def with_pair(sums, f, u, dx, dy, dz, totals):
    """The ten sums with one more pair in them; the last seven stay as they are where ``totals`` is None.

    Args:
        sums: ten numbers of the type to sum in.
        f: eV/Å², force over distance, positive where the pair repels.
        u: eV, the pair's energy.
        dx, dy, dz: Å, from the row's atom to the neighbour.
    """
    fx, fy, fz = f * dx, f * dy, f * dz
    if totals is None:
        return (
            sums[0] - fx, sums[1] - fy, sums[2] - fz,
            sums[3], sums[4], sums[5], sums[6], sums[7], sums[8], sums[9],
        )  # fmt: skip
    return (
        sums[0] - fx, sums[1] - fy, sums[2] - fz, sums[3] + u, sums[4] + fx * dx, sums[5] + fy * dy, sums[6] + fz * dz,
        sums[7] + fy * dz, sums[8] + fx * dz, sums[9] + fx * dy,
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
def settle(sums, force, totals):
    """Put a row's sums where they belong: the first three into ``force``, the others onto the seven ``totals``."""
    force[0], force[1], force[2] = sums[0], sums[1], sums[2]
    for k in range(7):
        totals[k] += sums[3 + k]
