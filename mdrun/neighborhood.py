"""What lies around atoms that something went wrong with, as the rank that owns them sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

MOST = 100  # atoms whose surroundings are looked at; where more went wrong, these show how


@dataclass(frozen=True)
class Rows:
    """What a rank sees: ids (n,), types (n,), positions (n, 3) Å, the first ``n_owned`` its own; how far it sees, Å."""

    rank: int
    ids: np.ndarray
    types: np.ndarray
    positions: np.ndarray
    n_owned: int
    reach: float


@dataclass(frozen=True)
class Neighborhood:
    """Atoms that offend and every row, images included, within the ghost reach of where one is or was.

    Attributes:
        ids, types: (n,).
        positions: (n, 3) Å, in the open frame of the rank: an image stands where it is seen.
        forces: (n, 3) eV/Å as found; NaN too on rows that are not owned here.
        distances: (n,) Å to the nearest atom that offends, another than itself; NaN where there is none.
        offends, is_owned: (n,) bool.
        rows: (n,) of the domain.
        reach: Å.
    """

    rank: int
    ids: np.ndarray
    types: np.ndarray
    positions: np.ndarray
    forces: np.ndarray
    distances: np.ndarray
    offends: np.ndarray
    is_owned: np.ndarray
    rows: np.ndarray
    reach: float
    forces_are_old: bool = False

    def with_old_forces(self, forces: Tensor) -> Neighborhood:
        """Where none are known yet: those of the step before (n_owned, 3), which brought the atoms here."""
        found = self.forces.copy()
        if len(forces) > self.rows[self.is_owned].max(initial=-1):
            found[self.is_owned] = forces[torch.from_numpy(self.rows[self.is_owned]).to(forces.device)].cpu().numpy()
        return replace(self, forces=found, forces_are_old=True)


def neighborhood_of(
    rows: np.ndarray, seen: Rows, forces: Tensor | None = None, then: np.ndarray | None = None
) -> Neighborhood:
    """The surroundings of owned rows.

    Args:
        rows: (k,) of atoms that offend; of more than ``MOST`` the first.
        forces: (n_owned, 3), if they are known.
        then: (k, 3) where these atoms were before, in the same frame; what is near that is shown too.
    """
    rows = rows[:MOST]
    at = seen.positions
    nearest = np.full(len(at), np.inf)
    near = np.zeros(len(at), bool)
    for k, row in enumerate(rows):
        distance = np.linalg.norm(at - at[row], axis=1)  # NaN: near to nothing
        near |= distance <= seen.reach
        if then is not None:
            near |= np.linalg.norm(at - then[k], axis=1) <= seen.reach
        distance[row] = np.inf
        np.fmin(nearest, distance, out=nearest)
    near[rows] = True
    chosen = np.flatnonzero(near)
    found = np.full((len(chosen), 3), np.nan)
    here = chosen < seen.n_owned
    if forces is not None:
        found[here] = forces[torch.from_numpy(chosen[here]).to(forces.device)].cpu().numpy()
    return Neighborhood(
        rank=seen.rank,
        ids=seen.ids[chosen],
        types=seen.types[chosen],
        positions=at[chosen],
        forces=found,
        distances=np.where(np.isfinite(nearest), nearest, np.nan)[chosen],
        offends=np.isin(chosen, rows),
        is_owned=here,
        rows=chosen,
        reach=seen.reach,
    )
