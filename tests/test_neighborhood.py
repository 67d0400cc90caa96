"""What a blow-up shows: the atoms concerned, and every row within reach of where they are or were."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mdrun import domain as domains
from mdrun.backends.on_torch import TorchBackend
from mdrun.errors import SimulationError
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.neighborhood import MOST, Rows, neighborhood_of
from mdrun.potentials.base import Forces
from mdrun.units import FS
from tests.systems import argon, pfcc, simulate

REACH = 3.0


def rows_of(positions: np.ndarray, n_owned: int) -> Rows:
    ids = np.arange(len(positions))[::-1].copy()
    return Rows(1, ids, np.zeros(len(positions), np.int32), positions, n_owned, REACH)


@pytest.fixture
def cloud() -> np.ndarray:
    return np.random.default_rng(1).uniform(0, 10, (300, 3))


def test_it_has_every_row_within_reach_and_no_other(cloud):
    offending = np.array([3, 17])
    forces = torch.arange(600.0, dtype=torch.float64).reshape(200, 3)
    found = neighborhood_of(offending, rows_of(cloud, 200), forces)
    apart = np.linalg.norm(cloud[:, None] - cloud[offending], axis=2)
    expected = np.flatnonzero((apart <= REACH).any(axis=1))
    assert found.rows.tolist() == expected.tolist()
    assert found.ids.tolist() == (299 - expected).tolist()
    assert found.rows[found.offends].tolist() == offending.tolist()
    apart[offending, [0, 1]] = np.inf
    assert found.distances == pytest.approx(apart.min(axis=1)[expected])
    assert np.array_equal(found.forces[found.is_owned], forces.numpy()[expected[expected < 200]])
    assert np.isnan(found.forces[~found.is_owned]).all()


def test_an_atom_that_is_nowhere_is_shown_with_what_was_around_it(cloud):
    then = cloud[[5]].copy()
    cloud[5] = np.nan
    found = neighborhood_of(np.array([5]), rows_of(cloud, 300), None, then)
    expected = np.linalg.norm(cloud - then, axis=1) <= REACH
    expected[5] = True
    assert found.rows.tolist() == np.flatnonzero(expected).tolist()
    assert np.isnan(found.distances).all()


def test_where_everything_goes_wrong_at_once_it_stays_affordable(cloud):
    found = neighborhood_of(np.arange(300), rows_of(cloud, 300))
    assert found.offends.sum() == MOST


class GoneBad:
    """A model whose force on atom 3 is not a number from its eighth call on."""

    name, cutoff = "gone bad", 8.5

    def __init__(self) -> None:
        self.n_calls = 0

    def __call__(self, domain, totals):
        forces = torch.zeros((domain.n_owned, 3), dtype=torch.float64)
        self.n_calls += 1
        if self.n_calls > 7:
            forces[domain.ids[: domain.n_owned] == 3] = torch.nan
        return Forces(forces, 0.0, torch.zeros((3, 3), dtype=torch.float64))


@pytest.mark.parametrize("backend", [None, TorchBackend("cpu", looks_late=True)], ids=["at once", "late"])
def test_the_step_that_went_wrong_is_the_one_that_is_shown(backend):
    """Where the host looks late, atoms have moved on by then, with forces that are no numbers."""
    atoms = pfcc(2, 2, 2)
    with pytest.raises(SimulationError, match="step 7: the force on 1 atom") as caught:
        simulate(atoms, GoneBad(), VelocityVerlet(FS), 20, backend=backend)
    around = caught.value.neighborhood
    assert caught.value.last_good_step == 6
    assert around.ids[around.offends].tolist() == [3]
    assert np.isfinite(around.positions).all()
    assert np.isnan(around.forces[around.offends]).all()
    assert not around.forces_are_old


def test_atoms_that_migration_loses_are_missed(monkeypatch):
    def careless(state, owners, comm):
        state.replace_fields({name: values[1:] for name, values in state.fields().items()})
        return 1

    monkeypatch.setattr(domains, "migrate", careless)
    with pytest.raises(SimulationError, match="1 of 32 atoms were lost in migration"):
        simulate(pfcc(2, 2, 2), argon(), VelocityVerlet(FS), 1)
