"""Bonds hold and fixed atoms stay wherever ranks meet; neither that nor a stopped cluster knows how many there are."""

from __future__ import annotations

import numpy as np
import pytest

from tests.molecules import lengths_of, triatomics
from tests.ranks.jobs.bonds import ENSEMBLES, endless_chain

ALL = (1, 2, 3)
RUNS = [f"triatomics/{e}" for e in ENSEMBLES] + [f"endless chain/{e}" for e in ENSEMBLES[:2]]


@pytest.mark.parametrize("n_ranks", ALL)
@pytest.mark.parametrize("run", RUNS)
def test_bonds_hold_on_any_number_of_ranks_and_atoms_move_alike(run, n_ranks, answers):
    found, serial = answers(n_ranks), answers(1)
    atoms, bonds = triatomics(3, apart=4.5) if run.startswith("triatomics") else endless_chain()
    positions = found[f"bonds/{run}/positions"]
    assert np.abs(lengths_of(positions, bonds, atoms.cell.array) - bonds.lengths).max() < 1e-12
    for name in ("positions", "momenta"):
        np.testing.assert_allclose(found[f"bonds/{run}/{name}"], serial[f"bonds/{run}/{name}"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(found[f"bonds/{run}/thermo"], serial[f"bonds/{run}/thermo"], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n_ranks", ALL[1:])
@pytest.mark.parametrize("run", RUNS)
def test_molecules_then_lay_on_several_ranks_and_atoms_migrated(run, n_ranks, answers):
    """Otherwise the agreement above would prove little."""
    found = answers(n_ranks)
    _, bonds = triatomics(3, apart=4.5) if run.startswith("triatomics") else endless_chain()
    owners = found[f"bonds/{run}/owners"]
    a, b = bonds.pairs.T
    assert (owners[a] != owners[b]).sum() >= 2
    assert found[f"bonds/{run}/migrations"] > 0
    if run.startswith("endless"):
        assert len(set(owners[np.unique(bonds.pairs)])) == n_ranks


@pytest.mark.parametrize("n_ranks", ALL)
@pytest.mark.parametrize("ensemble", ENSEMBLES)
@pytest.mark.parametrize("name", ["free", "tied"])
def test_a_fixed_atom_does_not_move_by_a_bit(name, ensemble, n_ranks, answers):
    found = answers(n_ranks)
    positions = found[f"bonds/frozen/{name}/{ensemble}/positions"]
    assert positions[-1, 0].tobytes() == positions[0, 0].tobytes()
    assert np.abs(positions[-1, 1] - positions[0, 1]).max() > 1e-3
    assert len(set(found[f"bonds/frozen/{name}/{ensemble}/owners"])) == min(n_ranks, 2)
    serial = answers(1)[f"bonds/frozen/{name}/{ensemble}/positions"]
    np.testing.assert_allclose(positions, serial, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_ranks", ALL)
def test_a_stopped_cluster_is_the_same_on_any_number_of_ranks(n_ranks, answers):
    found, serial = answers(n_ranks), answers(1)
    positions, momenta = found["bonds/stopped/positions"], found["bonds/stopped/momenta"]
    assert np.abs(momenta[1:].sum(axis=1)).max() < 1e-10
    arms = positions - positions.mean(axis=1, keepdims=True)
    assert np.abs(np.cross(arms, momenta).sum(axis=1)[1:]).max() < 1e-10
    np.testing.assert_allclose(positions, serial["bonds/stopped/positions"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(found["bonds/stopped/conserved"], serial["bonds/stopped/conserved"], rtol=0, atol=1e-9)
