"""Geometry of cells with periodic and open axes, left-handed, skewed and missing ones among them."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ase.cell import Cell
from hypothesis import assume, given
from hypothesis import strategies as st

from mdrun import cell as geometry
from mdrun.state import State

ALL_PBC = list(itertools.product([False, True], repeat=3))
COMPONENTS = st.floats(-20, 20)
CELLS = st.lists(COMPONENTS, min_size=9, max_size=9).map(lambda v: torch.tensor(v).double().reshape(3, 3))


def cross_section_heights(cell: np.ndarray) -> list[float]:
    """Volume over base, face by face."""
    v = abs(np.dot(cell[0], np.cross(cell[1], cell[2])))
    return [v / np.linalg.norm(np.cross(cell[(d + 1) % 3], cell[(d + 2) % 3])) for d in range(3)]


@given(CELLS)
def test_heights_are_volume_over_base(cell):
    assume(abs(np.linalg.det(cell.numpy())) > 1)
    np.testing.assert_allclose(geometry.heights(cell), cross_section_heights(cell.numpy()), rtol=1e-9)


def test_heights_of_the_casebooks_skewed_cell():
    cell = torch.from_numpy(Cell.fromcellpar([20, 20, 20, 41.55, 56.39, 17.52]).array)
    np.testing.assert_allclose(geometry.heights(cell), [3.597, 2.865, 7.925], atol=6e-4)


def test_volume_of_a_left_handed_cell_is_positive():
    cell = torch.tensor([[2.63, 0, 2.63], [0, 2.63, 2.63], [2.63, 2.63, 0]], dtype=torch.float64)
    assert torch.linalg.det(cell) == pytest.approx(-36.382894)
    assert geometry.volume(cell, (True, True, True)) == pytest.approx(36.382894)


@pytest.mark.parametrize("pbc", ALL_PBC[:-1])
def test_an_open_axis_leaves_no_volume(pbc):
    assert math.isnan(geometry.volume(torch.eye(3, dtype=torch.float64), pbc))


@pytest.mark.parametrize("pbc", ALL_PBC)
@given(cell=CELLS)
def test_open_axes_become_lengths_at_right_angles_to_the_periodic_ones(pbc, cell):
    rows = [cell[d].numpy() for d in range(3) if pbc[d]]
    # the periodic rows must span something
    assume(not rows or np.linalg.svd(np.array(rows), compute_uv=False)[-1] > 0.5)
    cell = torch.where(torch.tensor(pbc)[:, None], cell, 0.0)  # a file may give none
    full = geometry.completed(cell, pbc)
    gram = (full @ full.T).numpy()
    for d in range(3):
        if pbc[d]:
            assert torch.equal(full[d], cell[d])
            continue
        others = [k for k in range(3) if k != d]
        assert gram[d, d] == pytest.approx(1)
        np.testing.assert_allclose(gram[d, others] / np.sqrt(gram[others, others]), 0, atol=1e-12)
        assert geometry.heights(full)[d] == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("pbc", ALL_PBC)
def test_a_dummy_vector_of_an_open_axis_has_no_influence(pbc):
    cell = torch.tensor([[9.0, 1, 2], [0, 8, 1], [3, 0, 7]], dtype=torch.float64)
    without = torch.where(torch.tensor(pbc)[:, None], cell, 0.0)
    assert torch.equal(geometry.completed(cell, pbc), geometry.completed(without, pbc))


@given(CELLS, st.lists(st.floats(-50, 50), min_size=3, max_size=3))
def test_fractional_coordinates_rebuild_the_position(cell, point):
    assume(np.linalg.svd(cell.numpy(), compute_uv=False)[-1] > 0.5)
    position = torch.tensor([point], dtype=torch.float64)
    frac, shifts = geometry.folded(position, cell, (True, False, True))
    np.testing.assert_allclose((frac - shifts) @ cell, position, atol=1e-9)


TROUBLE = [-5e-17, -1e-9, 0.0, 1.0, 1 - 1e-16, 2.0, -1.0, -4e-52, -0.0, 1e6, -1e6 - 1e-9]


@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from(TROUBLE), min_size=3, max_size=3))
def test_folded_coordinates_lie_below_one_and_differ_by_whole_numbers(values):
    frac = torch.tensor([values], dtype=torch.float64)
    inside, shifts = geometry.folded(frac, torch.eye(3).double(), (True, True, True))
    assert bool(((inside >= 0) & (inside < 1)).all())
    assert torch.equal(shifts, shifts.round())
    np.testing.assert_allclose(inside, frac + shifts, atol=2e-16)


def test_open_axes_are_not_folded():
    frac = torch.tensor([[-3.7, 1.2, 5.5]], dtype=torch.float64)
    inside, shifts = geometry.folded(frac, torch.eye(3).double(), (False, True, False))
    np.testing.assert_allclose(inside, [[-3.7, 0.2, 5.5]], rtol=1e-14)
    assert shifts.tolist() == [[0, -1, 0]]


def test_deformation_takes_the_old_cell_to_the_new():
    rng = np.random.default_rng(1)
    before, now = (torch.from_numpy(10 * np.eye(3) + rng.normal(size=(3, 3))) for _ in range(2))
    np.testing.assert_allclose(before @ geometry.deformation(before, now), now, atol=1e-12)


@given(st.lists(st.floats(-0.2, 0.2), min_size=9, max_size=9))
def test_no_vector_is_shortened_more_than_the_smallest_stretch(strain):
    deformation = torch.eye(3, dtype=torch.float64) + torch.tensor(strain).double().reshape(3, 3)
    vectors = torch.from_numpy(np.random.default_rng(2).normal(size=(500, 3)))
    stretches = (vectors @ deformation).norm(dim=1) / vectors.norm(dim=1)
    smallest = geometry.smallest_stretch(deformation)
    assert smallest <= float(stretches.min()) * (1 + 1e-12)
    # and it is met: 500 directions come near the worst one
    assert smallest >= float(stretches.min()) - 0.05


def test_nothing_is_shortened_without_strain():
    assert geometry.smallest_stretch(torch.eye(3, dtype=torch.float64)) == pytest.approx(1, abs=1e-15)
    assert geometry.smallest_stretch(0.9 * torch.eye(3, dtype=torch.float64)) == pytest.approx(0.9)


@pytest.mark.parametrize("n", [1, 5, 64, 1001])
def test_products_have_the_same_bits_wherever_the_rows_lie(n):
    """A library's product of matrices has not, and a run would then not repeat itself."""
    rng = np.random.default_rng(n)
    rows, matrix = rng.standard_normal((n, 3)), torch.from_numpy(rng.standard_normal((3, 3)))
    memory, found, tensors = np.empty(3 * n + 8), [], []
    for offset in range(8):
        place = memory[offset : offset + 3 * n].reshape(n, 3)
        place[:] = rows
        found.append(geometry.mapped(torch.from_numpy(place), matrix).numpy().tobytes())
        state = SimpleNamespace(momenta=torch.from_numpy(place), masses=torch.ones(n, dtype=torch.float64))
        tensors.append(State.kinetic_tensor(state).numpy().tobytes())
    assert len(set(found)) == 1
    assert len(set(tensors)) == 1
    np.testing.assert_allclose(np.frombuffer(found[0]).reshape(n, 3), rows @ matrix.numpy(), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(np.frombuffer(tensors[0]).reshape(3, 3), rows.T @ rows, rtol=1e-12, atol=1e-12)
