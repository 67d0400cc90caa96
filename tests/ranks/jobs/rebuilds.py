"""When lists are rebuilt, who agrees on it, and what travels with a migrating atom."""

from __future__ import annotations

import numpy as np
import torch

from mdrun import units
from mdrun.comm import Comm
from mdrun.decompose.migrate import pack_rows
from mdrun.domain import Domain
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.run.simulation import Simulation, run, start
from mdrun.scope import Scope
from mdrun.state import FIELDS
from tests.ranks.builders import in_box, warmed
from tests.ranks.cases import argon
from tests.ranks.jobs.gathering import gathered, on_each_rank
from tests.systems import pfcc, state_of

SKIN = 1.0
N_ROUNDS = 6


def tagged_fields(ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Every field but the positions, as a function of the atom's id."""
    return {
        "ids": ids,
        "types": (ids % 7).int(),
        "charges": 0.25 * ids - 3,
        "masses": 1.0 + ids / 64,
        "mobile": (ids[:, None] >> torch.arange(3)) % 2 == 0,
        "momenta": torch.stack([ids + 0.5, -1.0 * ids, 1 / (1.0 + ids)], dim=1),
    }


def agreement(comm: Comm) -> np.ndarray:
    """(3, size) rebuilds so far: at the start, after 0.49 skins by one atom, after 0.51."""
    state, domain = state_of(pfcc(4, 4, 4), comm), Domain(comm, 8.5, SKIN)
    domain.follow(state)
    found = [on_each_rank(comm, domain.counts.rebuilds)[:, 0]]
    for step in (0.49, 0.02):
        state.positions[state.ids == 77, 1] += step * SKIN
        domain.follow(state)
        found.append(on_each_rank(comm, domain.counts.rebuilds)[:, 0])
    return np.array(found)


def creeping(comm: Comm) -> np.ndarray:
    """(steps, size) rebuilds while every atom moves by 0.2 skins a step: one in every three steps."""
    state, domain = state_of(pfcc(2, 2, 2), comm), Domain(comm, 8.5, SKIN)
    found = []
    for _ in range(10):
        domain.follow(state)
        found.append(on_each_rank(comm, domain.counts.rebuilds)[:, 0])
        state.positions[:, 0] += 0.2 * SKIN
    return np.array(found)


def dangerous(comm: Comm, check_every: int) -> np.ndarray:
    """(size, 2) dangerous builds and rebuilds of a hot crystal on a thin skin."""
    atoms = warmed(pfcc(4, 4, 4), 300.0)
    state, model = state_of(atoms, comm), argon(atoms)
    domain = Domain(comm, model.cutoff, skin=0.2, check_every=check_every)
    with Scope(model, domain, len(atoms)) as scope:
        sim = Simulation(state, domain, scope, VelocityVerlet(5 * units.FS), n_dof=3 * len(atoms))
        start(sim)
        run(sim, 40)
    return on_each_rank(comm, domain.counts.dangerous_builds, domain.counts.rebuilds)


def journeys(comm: Comm) -> dict[str, np.ndarray]:
    """Atoms thrown about between rebuilds, all their fields with them; and rank and number of owned each time."""
    atoms = pfcc(4, 2, 2)
    state = state_of(atoms, comm)
    state.replace_fields(tagged_fields(state.ids) | {"positions": state.positions})
    domain = Domain(comm, 6.0, SKIN)
    noise = np.random.default_rng(8)
    expected, owned = atoms.positions.copy(), []
    for _ in range(N_ROUNDS):
        domain.rebuild(state)
        owned.append(on_each_rank(comm, state.n_owned)[:, 0])
        throw = noise.uniform(-12, 12, expected.shape)
        expected += throw
        state.positions += torch.from_numpy(throw)[state.ids]
    domain.rebuild(state)
    n_moved = on_each_rank(comm, domain.counts.migrations)[:, 0]
    return {
        "rows": gathered(comm, pack_rows(state.fields(), FIELDS)),
        "ghost_fields": gathered(
            comm, torch.stack([domain.ids.double(), domain.types.double(), domain.charges], dim=1)
        ),
        "expected_positions": expected,
        "owned": np.array(owned),
        "moved": n_moved,
    }


def gathering_in_a_corner(comm: Comm) -> np.ndarray:
    """(2, size) owned atoms of a gas, and after all of it has moved into one corner."""
    noise = np.random.default_rng(9)
    atoms = in_box(noise.uniform(0, 40, (200, 3)), [40.0] * 3)
    state, domain = state_of(atoms, comm), Domain(comm, 4.0, SKIN)
    found = []
    for _ in range(3):
        domain.rebuild(state)
        found.append(on_each_rank(comm, state.n_owned)[:, 0])
        state.positions *= 0.5
    return np.array(found)


def compute(comm: Comm) -> dict[str, np.ndarray]:
    return {
        "agreement": agreement(comm),
        "creeping": creeping(comm),
        "dangerous": dangerous(comm, check_every=20),
        "careful": dangerous(comm, check_every=1),
        "corner": gathering_in_a_corner(comm),
        **{f"journeys/{name}": value for name, value in journeys(comm).items()},
    }
