"""The neighbours within a potential's own cutoff, row by row: a many-body kernel looks at each several times."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from mdrun.domain import Domain

CHUNK = 64  # owned rows that share the kernels' working buffers; these stay in the first-level cache
ROUND_TO = 4


class ShortList:
    """Picks them anew at each evaluation out of the domain's list, whose skin makes it several times longer.

    Attributes:
        reach2: (n_types, n_types) Å², symmetric, so that each of two owned rows lists the other.
    """

    def __init__(self, reach2: np.ndarray) -> None:
        self.reach2 = np.maximum(reach2, reach2.T)
        self._width = ROUND_TO

    def pick(self, domain: Domain) -> tuple[np.ndarray, np.ndarray]:
        """(n_owned, width) int32 padded rows, and how many of each row are valid."""
        n_short = np.empty(domain.n_owned, np.int32)
        arguments = (
            domain.positions.numpy(), domain.types.numpy(), domain.neighbors.numpy(), domain.n_neighbors.numpy(),
            self.reach2,
        )  # fmt: skip
        while True:
            short = np.empty((domain.n_owned, self._width), np.int32)
            _pick(*arguments, short, n_short)
            longest = int(n_short.max(initial=0))
            if longest <= self._width:
                return short, n_short
            self._width = -(-longest // ROUND_TO) * ROUND_TO


@njit(parallel=True, cache=True, error_model="numpy")
def _pick(x, types, neighbors, n_neighbors, reach2, short, n_short):
    n_owned, width = short.shape
    single = len(reach2) == 1
    for chunk in prange(-(-n_owned // CHUNK)):
        r2 = np.empty(neighbors.shape[1])
        row = np.empty(neighbors.shape[1] + 1, np.int32)
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, n_owned)):
            xi, yi, zi = x[0, i], x[1, i], x[2, i]
            for k in range(n_neighbors[i]):
                j = neighbors[i, k]
                dx, dy, dz = x[0, j] - xi, x[1, j] - yi, x[2, j] - zi
                r2[k] = dx * dx + dy * dy + dz * dz
            count = 0
            if single:
                limit = reach2[0, 0]
                for k in range(n_neighbors[i]):
                    row[count] = neighbors[i, k]
                    count += not r2[k] >= limit  # NaN goes on, into the forces
            else:
                for k in range(n_neighbors[i]):
                    row[count] = neighbors[i, k]
                    count += not r2[k] >= reach2[types[i], types[neighbors[i, k]]]
            n_short[i] = count
            kept = min(count, width)
            short[i, :kept] = row[:kept]
