"""The neighbours within a potential's own cutoff, row by row: a many-body kernel looks at each several times."""

from __future__ import annotations

import numba
import numpy as np
from numba import njit, prange

from mdrun.domain import Domain
from mdrun.lanes import LANES, append_negative, gather_rows


class ShortList:
    """Picks them anew at each evaluation out of the domain's list, whose skin makes it several times longer.

    Attributes:
        reach2: (n_types, n_types) Å², symmetric, so that each of two owned rows lists the other.
    """

    def __init__(self, reach2: np.ndarray) -> None:
        self.reach2 = np.maximum(reach2, reach2.T)
        self._storage = np.empty(0, np.int32)
        self._width = LANES

    def pick(self, domain: Domain) -> tuple[np.ndarray, np.ndarray]:
        """(n_owned, width) int32 padded rows, and how many of each row are valid.

        As in the domain's list, some may lie a hair beyond the cutoff, and whole vectors are filled up with the row
        that is far from everything. The next call writes over them.
        """
        n_short = np.empty(domain.n_owned, np.int32)
        packed = domain.packed_in(np.float32).numpy()
        reach2 = (domain.reach_in_single(np.sqrt(self.reach2)) ** 2).astype(np.float32)
        neighbors, n_neighbors = domain.neighbors.numpy(), domain.n_neighbors.numpy()
        mixture = None if (reach2 == reach2[0, 0]).all() else True
        while True:
            short = self._rows(domain.n_owned)
            _pick(packed, neighbors, n_neighbors, reach2, mixture, short, n_short, numba.get_num_threads())
            longest = int(n_short.max(initial=0))
            if longest <= self._width:
                return short, n_short
            self._width = -(-longest // LANES) * LANES

    def _rows(self, n_owned: int) -> np.ndarray:
        if self._storage.size < n_owned * self._width:
            self._storage = np.empty(int(n_owned * 1.05) * self._width + self._width, np.int32)
        return self._storage[: n_owned * self._width].reshape(n_owned, self._width)


@njit(parallel=True, cache=True, error_model="numpy")
def _pick(packed, neighbors, n_neighbors, reach2, mixture, short, n_short, n_chunks):
    nowhere = len(packed) - 1
    n_owned, width = short.shape
    for chunk in prange(n_chunks):
        room = neighbors.shape[1]
        x, y, z = np.empty(room, np.float32), np.empty(room, np.float32), np.empty(room, np.float32)
        types, beyond = np.empty(room, np.float32), np.empty(room, np.float32)
        near = np.empty(room + 2 * LANES, np.int32)
        for i in range(chunk * n_owned // n_chunks, (chunk + 1) * n_owned // n_chunks):
            xi, yi, zi = packed[i, 0], packed[i, 1], packed[i, 2]
            row, mine = neighbors[i], reach2[int(packed[i, 3])]
            limit = mine[0]
            n_lanes = (n_neighbors[i] + LANES - 1) & -LANES  # filled up with a row far away
            for k in range(0, n_lanes, LANES):
                if mixture is None:
                    gather_rows(packed, row, k, x, y, z, None)
                else:
                    gather_rows(packed, row, k, x, y, z, types)
            for k in range(n_lanes):
                if mixture is not None:
                    limit = mine[np.int32(types[k])]
                dx, dy, dz = x[k] - xi, y[k] - yi, z[k] - zi
                beyond[k] = dx * dx + dy * dy + dz * dz - limit
            count = 0
            for k in range(0, n_lanes, LANES):
                count += append_negative(beyond, row, k, near, count)  # NaN goes on, into the forces
            for k in range(count, count + LANES):
                near[k] = nowhere
            n_short[i] = count
            if count <= width:
                for k in range((count + LANES - 1) & -LANES):
                    short[i, k] = near[k]
