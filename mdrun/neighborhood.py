"""What lies around atoms that something went wrong with, as the rank that owns them sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from mdrun.domain import Domain

MOST = 100  # atoms whose surroundings are looked at; where more went wrong, these show how


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
    rows: Tensor, domain: Domain, forces: Tensor | None = None, then: Tensor | None = None
) -> Neighborhood:
    """The surroundings of owned rows.

    Args:
        rows: (k,) of atoms that offend; of more than ``MOST`` the first.
        forces: (n_owned, 3), if they are known.
        then: (n_owned, 3) where owned rows were at the last rebuild, in the same frame; what is near that is shown too.
    """
    offending = rows[:MOST].cpu().numpy()
    at = domain.positions.T.cpu().numpy()
    nearest = np.full(len(at), np.inf)
    near = np.zeros(len(at), bool)
    for row in offending:
        distance = np.linalg.norm(at - at[row], axis=1)  # NaN: near to nothing
        near |= distance <= domain.ghost_width
        if then is not None:
            near |= np.linalg.norm(at - then[row].cpu().numpy(), axis=1) <= domain.ghost_width
        distance[row] = np.inf
        np.fmin(nearest, distance, out=nearest)
    near[offending] = True
    chosen = np.flatnonzero(near)
    found = np.full((len(chosen), 3), np.nan)
    here = chosen < domain.n_owned
    if forces is not None:
        found[here] = forces[torch.from_numpy(chosen[here]).to(forces.device)].cpu().numpy()
    nearest = np.where(np.isfinite(nearest), nearest, np.nan)
    return Neighborhood(
        rank=domain.comm.rank,
        ids=domain.ids.cpu().numpy()[chosen],
        types=domain.types.cpu().numpy()[chosen],
        positions=at[chosen],
        forces=found,
        distances=nearest[chosen],
        offends=np.isin(chosen, offending),
        is_owned=here,
        rows=chosen,
        reach=domain.ghost_width,
    )
