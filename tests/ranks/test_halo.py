"""Rows and lists of many kinds of cell against the halo rule and every periodic image, one after another."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mdrun.cell import completed
from tests.ranks import brute_force
from tests.ranks.brute_force import is_one_to_one
from tests.ranks.jobs.halo import SKIN, points, systems

ALL = (1, 2, 3, 4, 5)
SYSTEMS = systems()
ID_SCALE = 1000.0  # Å between rows of different atoms when ids stand as a fourth coordinate


def ghost_width(reach: float) -> float:
    return reach if reach > SKIN else reach + SKIN


def expected_ghosts(atoms, own: np.ndarray, others: np.ndarray, width: float) -> np.ndarray:
    """(n, 4) position and id of every image within ``width`` of the tight box around ``own``, itself not counted.

    Args:
        own, others: (n, 4) position and id of the rows that this rank owns, and that the others own.
    """
    if not len(own):
        return np.empty((0, 4))
    cell = completed(torch.from_numpy(atoms.cell.array.copy()), atoms.pbc).numpy()
    inverse = np.linalg.inv(cell)
    margin = width * np.linalg.norm(inverse, axis=0)
    frac = own[:, :3] @ inverse
    lo, hi = frac.min(axis=0) - margin, frac.max(axis=0) + margin
    everyone = np.vstack([own, others])
    across = float(np.linalg.norm((hi - lo) @ np.abs(cell)))  # no two points of the widened box are farther apart
    found = []
    for shift in brute_force.image_vectors(everyone[:, :3], cell, atoms.pbc, across):
        images = everyone[:, :3] + shift
        f = images @ inverse
        inside = ((f >= lo - 1e-10) & (f <= hi + 1e-10)).all(axis=1)
        if not shift.any():
            inside[: len(own)] = False
        found.append(np.column_stack([images[inside], everyone[inside, 3]]))
    return np.vstack(found)


def labelled(rows: np.ndarray) -> np.ndarray:
    """Positions and ids in one space, so that rows match only where both do."""
    return rows * np.array([1, 1, 1, *[ID_SCALE] * (rows.shape[1] - 3)])


@pytest.mark.parametrize("n_ranks", ALL)
@pytest.mark.parametrize("name", SYSTEMS)
def test_every_atom_has_one_owner_and_keeps_its_place_up_to_whole_cells(name, n_ranks, answers):
    atoms, _ = SYSTEMS[name]
    rows = answers(n_ranks)[f"halo/{name}/rows"]
    owned = rows[rows[:, 4] == 1]
    assert sorted(owned[:, 3]) == list(range(len(atoms)))
    cell = completed(torch.from_numpy(atoms.cell.array.copy()), atoms.pbc).numpy()
    shifts = (owned[:, :3] - atoms.positions[owned[:, 3].astype(int)]) @ np.linalg.inv(cell)
    np.testing.assert_allclose(shifts, np.rint(shifts) * atoms.pbc, rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_ranks", ALL)
@pytest.mark.parametrize("name", SYSTEMS)
def test_ghosts_are_the_images_near_the_box_each_once(name, n_ranks, answers):
    atoms, reach = SYSTEMS[name]
    rows = answers(n_ranks)[f"halo/{name}/rows"]
    for rank in range(n_ranks):
        mine = rows[:, 5] == rank
        is_owned = rows[:, 4] == 1
        ghosts = expected_ghosts(atoms, rows[mine & is_owned][:, :4], rows[~mine & is_owned][:, :4], ghost_width(reach))
        assert is_one_to_one(labelled(rows[mine & ~is_owned][:, :4]), labelled(ghosts)), rank


@pytest.mark.parametrize("n_ranks", ALL)
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_lists_hold_every_pair_within_reach_once(name, n_ranks, answers):
    atoms, reach = SYSTEMS[name]
    atoms = atoms.copy()
    atoms.wrap()
    i, j, vectors = brute_force.neighbors(atoms, ghost_width(reach))
    expected = np.column_stack([vectors, i, j])
    assert is_one_to_one(labelled(answers(n_ranks)[f"halo/{name}/pairs"]), labelled(expected))


@pytest.mark.parametrize("n_ranks", ALL)
def test_some_of_these_systems_leave_ranks_empty(n_ranks, answers):
    owners = [set(answers(n_ranks)[f"halo/{name}/rows"][:, 5]) for name in SYSTEMS]
    assert any(len(ranks) < n_ranks for ranks in owners) == (n_ranks > 1)
    assert any(len(ranks) == n_ranks for ranks in owners)


@pytest.mark.parametrize("n_ranks", ALL)
def test_space_is_cut_alike_however_atoms_are_dealt_out(n_ranks, answers):
    """Points that each rank holds some of are cut as if one rank held them all: into equal shares."""
    found = answers(n_ranks)
    axis, cut, lower, upper = (found[f"halo/partition/{name}"] for name in ("axis", "cut", "lower", "upper"))
    counts = np.zeros(n_ranks, int)
    for point in points():
        node = 0 if len(axis) else -1
        while node >= 0:
            node = int((lower if point[axis[node]] < cut[node] else upper)[node])
        counts[-1 - node] += 1
    assert counts.sum() == len(points())
    assert np.ptp(counts) <= 2
