"""Rows and lists of many kinds of cell, as each rank holds them after a rebuild."""

from __future__ import annotations

import numpy as np
import torch
from ase import Atoms

from mdrun.comm import Comm
from mdrun.decompose.partition import bisect
from mdrun.domain import Domain
from tests.ranks.cases import PROBED
from tests.ranks.jobs.gathering import gathered
from tests.systems import state_of

N_RANDOM = 16
SKIN = 0.4
N_POINTS = 500


def random_cell(seed: int) -> tuple[Atoms, float]:
    """A few atoms anywhere, in a cell of any shape and handedness with any axes periodic; and a reach.

    The reach is between a fraction of the thinnest height and three times it, no more images than can be counted.
    """
    rng = np.random.default_rng(seed)
    while True:
        cell = np.diag(rng.uniform(2.0, 12.0, 3)) + rng.uniform(-5.0, 5.0, (3, 3)) * (rng.random() < 0.8)
        volume = np.linalg.det(cell)
        height = 1 / np.linalg.norm(np.linalg.inv(cell), axis=0).max() if volume else 0.0
        if height > 0.8:
            break
    if rng.random() < 0.5:
        cell = cell[[1, 0, 2]]
    pbc = rng.random(3) < 0.7
    n = int(rng.integers(1, 12))
    positions = rng.uniform(0, 1, (n, 3)) @ cell + (rng.integers(-3, 4, (n, 3)) * pbc) @ cell
    atoms = Atoms(f"Ar{n}", positions=positions, cell=cell, pbc=pbc)
    return atoms, float(rng.uniform(0.4, min(3.0 * height, 8.0)))


def systems() -> dict[str, tuple[Atoms, float]]:
    return {
        **{f"random {seed}": random_cell(seed) for seed in range(N_RANDOM)},
        **{name: (build(), 8.5) for name, build in PROBED.items()},
    }


def rows_and_pairs(domain: Domain) -> tuple[torch.Tensor, torch.Tensor]:
    """(n_padded, 5) x, y, z, id, is owned; (n_pairs, 5) vector from i to j, ids of i and j, as the list has them."""
    is_owned = torch.arange(domain.n_padded) < domain.n_owned
    rows = torch.cat([domain.positions.T, domain.ids[:, None].double(), is_owned[:, None].double()], dim=1)
    i = torch.repeat_interleave(torch.arange(domain.n_owned), domain.n_neighbors.long())
    lists = [domain.neighbors[k, :n] for k, n in enumerate(domain.n_neighbors.tolist())]
    j = torch.cat([torch.empty(0, dtype=torch.int32), *lists]).long()
    vectors = domain.positions[:, j].T - domain.positions[:, i].T
    return rows, torch.cat([vectors, domain.ids[i][:, None].double(), domain.ids[j][:, None].double()], dim=1)


def points() -> np.ndarray:
    return np.random.default_rng(5).uniform(0, 1, (N_POINTS, 3))


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    for name, (atoms, reach) in systems().items():
        domain = Domain(comm, reach - SKIN if reach > SKIN else reach, SKIN)
        domain.follow(state_of(atoms, comm))
        rows, pairs = rows_and_pairs(domain)
        rank = torch.full((len(rows), 1), comm.rank, dtype=torch.float64)
        found[f"{name}/rows"] = gathered(comm, torch.cat([rows, rank], dim=1))
        found[f"{name}/pairs"] = gathered(comm, pairs)
    # points dealt out like cards: where they are held must not matter to where space is cut
    mine = points()[comm.rank :: comm.size]
    partition = bisect(mine, np.ones(len(mine)), np.array([3.0, 2.0, 1.0]), comm)
    for name in ("axis", "cut", "lower", "upper"):
        found[f"partition/{name}"] = getattr(partition, name)
    return found
