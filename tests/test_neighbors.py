"""The neighbour list against a search over every pair and every image."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.cell import Cell
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mdrun.cell import completed
from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.errors import SimulationError
from mdrun.neighbors.cell_list import NeighborList
from mdrun.neighbors.grid import BINS_PER_ATOM, bin_number, make_grid, order_by_bin_and_id, sort_by_bin
from mdrun.state import State
from tests.systems import pfcc, state_of

ALL_PBC = list(itertools.product([False, True], repeat=3))
Pair = tuple[int, int, int, int, int]  # i, j, and the cell vectors that lead from i to this image of j
EDGE = 1e-9  # pairs this near the reach may fall on either side
ROUNDING = 1e-6  # of the system's extent: how far beyond the reach the search in single precision may go


def brute_force(state: State, reach: float) -> dict[Pair, float]:
    """Every (i, j, image) within ``reach``, with its distance, from positions as they stand in the file."""
    cell = completed(state.cell, state.pbc).numpy()
    positions = state.positions[state.ids.argsort()].numpy()
    inverse = np.linalg.inv(cell)
    spread = np.ptp(positions @ inverse, axis=0)
    most = np.ceil(reach * np.linalg.norm(inverse, axis=0) + spread).astype(int) * np.array(state.pbc)
    images = np.array(list(itertools.product(*(range(-m, m + 1) for m in most))))
    shifts = images @ cell
    found: dict[Pair, float] = {}
    for i, here in enumerate(positions):
        r = np.linalg.norm(positions[:, None] + shifts - here, axis=2)
        r[i, (images == 0).all(axis=1)] = np.inf
        j, k = np.nonzero(r < reach)
        keys = zip([i] * len(j), j.tolist(), *images[k].T.tolist(), strict=True)
        found.update(zip(keys, r[j, k].tolist(), strict=True))
    return found


def listed(domain: Domain, state: State) -> Counter[Pair]:
    """What the list holds, in the words of ``brute_force``; a pair that it holds twice counts twice."""
    inverse = np.linalg.inv(completed(state.cell, state.pbc).numpy())
    unwrapped = state.positions[state.ids.argsort()].T.numpy()
    x, ids, n = domain.positions.numpy(), domain.ids.numpy(), domain.n_neighbors.numpy()
    i = np.repeat(np.arange(domain.n_owned), n)
    j = np.concatenate([np.empty(0, int), *(row[:k] for row, k in zip(domain.neighbors.numpy(), n, strict=True))])
    moved = (x[:, j] - x[:, i]) - (unwrapped[:, ids[j]] - unwrapped[:, ids[i]])
    shifts = moved.T @ inverse
    np.testing.assert_allclose(shifts, shifts.round(), atol=1e-6)
    return Counter(zip(ids[i].tolist(), ids[j].tolist(), *shifts.round().astype(int).T.tolist(), strict=True))


def extent(domain: Domain) -> float:
    """Å, of the widest axis."""
    return float((domain.positions.max(dim=1).values - domain.positions.min(dim=1).values).max())


def assert_complete(domain: Domain, state: State, within: float, exactly: bool = False) -> None:
    """Nothing nearer than ``within`` is missing, nothing is there twice; ``exactly``: and nothing farther is there."""
    have, want = listed(domain, state), brute_force(state, within + EDGE + ROUNDING * extent(domain))
    assert max(have.values(), default=1) == 1
    assert not {pair: r for pair, r in want.items() if pair not in have and r < within - EDGE}
    if exactly:
        assert have.keys() <= want.keys()


def assert_exact(domain: Domain, state: State) -> None:
    """What holds right after a rebuild."""
    assert_complete(domain, state, domain.ghost_width, exactly=True)


def built(atoms: Atoms, cutoff: float, skin: float = 0.0) -> tuple[Domain, State]:
    state = state_of(atoms)
    domain = Domain(Comm(), cutoff, skin)
    domain.follow(state)
    return domain, state


# Against every pair

LENGTHS = st.floats(2, 12)


@st.composite
def systems(draw):
    """Random cells, skewed and left-handed ones among them; any mix of axes; atoms inside and far outside."""
    cell = np.diag([draw(LENGTHS) for _ in range(3)])
    skew = np.array(draw(st.lists(st.floats(-1, 1), min_size=3, max_size=3)))
    cell[1, 0], cell[2, 0], cell[2, 1] = skew * np.diag(cell)[[0, 0, 1]]
    cell = cell[list(draw(st.permutations(range(3))))] * draw(st.sampled_from([1.0, -1.0]))
    pbc = draw(st.sampled_from(ALL_PBC))
    fractions = st.floats(-2, 3) | st.sampled_from([0.0, 1.0, -5e-17, 0.5, -1e-9])
    n = draw(st.integers(1, 7))
    points = np.array(draw(st.lists(fractions, min_size=3 * n, max_size=3 * n))).reshape(n, 3)
    return Atoms(f"Ar{n}", positions=points @ cell, cell=cell, pbc=pbc)


@settings(max_examples=150, deadline=None)
@given(systems(), st.floats(0.5, 7), st.floats(0, 1.5))
@example(Atoms("Ar", cell=[4.0, 4.0, 4.0], pbc=True), 8.5, 0.0)
@example(Atoms("Ar", positions=[[1e3, -1e3, 7]], cell=[4.0, 4.0, 4.0], pbc=(True, False, True)), 8.5, 1.0)
@example(Atoms("Ar2", positions=[[0, 0, 0], [3, 0, 0]]), 3.0, 0.0)  # just out of reach
def test_every_image_of_every_pair_is_listed_once(atoms, cutoff, skin):
    domain, state = built(atoms, cutoff, skin)
    assert_exact(domain, state)


@pytest.mark.parametrize("pbc", ALL_PBC)
def test_clusters_far_apart_keep_their_own_neighbors(pbc):
    rng = np.random.default_rng(4)
    ball = rng.normal(scale=2.0, size=(6, 3))
    far = np.array([[0, 0, 0], [300, 0, 0], [0, -4000, 0], [1e6, 1e6, 1e6]])
    positions = (ball + far[:, None]).reshape(-1, 3)
    domain, _ = built(Atoms(f"Ar{len(positions)}", positions=positions, cell=[2e7] * 3, pbc=pbc), 5.0)
    together, state = built(Atoms("Ar6", positions=ball), 5.0)
    expected = {(i + 6 * k, j + 6 * k) for i, j, *_ in listed(together, state) for k in range(len(far))}
    rows = domain.ids.numpy()
    found = [
        (int(rows[i]), int(rows[j]))
        for i in range(domain.n_owned)
        for j in domain.neighbors[i, : domain.n_neighbors[i]].tolist()
    ]
    assert len(found) == len(set(found))
    assert expected <= set(found)
    beyond = [np.linalg.norm(positions[i] - positions[j]) for i, j in set(found) - expected]
    assert max(beyond, default=0) < 5.0 + ROUNDING * extent(domain)


def test_neighbors_of_the_casebooks_small_cells():
    primitive = [[0, 2.63, 2.63], [2.63, 0, 2.63], [2.63, 2.63, 0]]
    for cell, n in ((primitive, 78), (np.array(primitive)[::-1], 78), (np.eye(3) * 4.0, 32)):
        domain, _ = built(Atoms("Ar", cell=cell, pbc=True), 8.5)
        assert domain.n_neighbors.tolist() == [n]
    two = Atoms("Ar2", positions=[[0.2, 1, 0.3], [4, 1.5, 3.3]], cell=[[5, 0, 0], [0, 20, 0], [1, 0, 6]], pbc=True)
    assert built(two, 8.5)[0].n_neighbors.tolist() == [15, 15]


def test_the_shortest_distance_in_a_strongly_skewed_cell():
    cell = Cell.fromcellpar([20, 20, 20, 41.55, 56.39, 17.52])
    atoms = Atoms("Ar2", positions=[[8.029, 5.236, 5.067], [13.771, 5.666, 14.13]], cell=cell, pbc=True)
    domain, state = built(atoms, 7.0)
    distances = {pair: r for pair, r in brute_force(state, 7.0).items() if pair[0] != pair[1]}
    assert distances == {(0, 1, -4, 5, -2): pytest.approx(6.97543, abs=5e-6), (1, 0, 4, -5, 2): pytest.approx(6.97543)}
    assert_exact(domain, state)


@pytest.mark.parametrize(("n_owned", "n_padded"), [(0, 0), (0, 5), (1, 1)])
def test_a_list_of_no_pairs(n_owned, n_padded):
    neighbors = NeighborList()
    neighbors.build(torch.zeros((3, n_padded), dtype=torch.float64), n_owned, 3.0)
    assert neighbors.counts.tolist() == [0] * n_owned
    assert len(neighbors.matrix) == n_owned


# Order


def test_rows_do_not_depend_on_how_the_atoms_came_to_lie():
    state = state_of(pfcc(3, 2, 2))
    first = Domain(Comm(), 6.0, 0.5)
    first.follow(state)
    shuffled = state_of(pfcc(3, 2, 2))
    order = torch.from_numpy(np.random.default_rng(3).permutation(48))
    shuffled.replace_fields({name: rows[order] for name, rows in shuffled.fields().items()})
    second = Domain(Comm(), 6.0, 0.5)
    second.follow(shuffled)
    assert torch.equal(first.ids, second.ids)
    assert torch.equal(first.positions, second.positions)
    assert torch.equal(first.n_neighbors, second.n_neighbors)
    for i, n in enumerate(first.n_neighbors.tolist()):
        assert torch.equal(first.neighbors[i, :n], second.neighbors[i, :n])


def test_rows_near_in_space_are_near_in_memory():
    rng = np.random.default_rng(5)
    atoms = Atoms("Ar4000", positions=rng.uniform(0, 60, (4000, 3)), cell=[60, 60, 60], pbc=False)
    domain, _ = built(atoms, 5.0)
    x = domain.positions[:, : domain.n_owned]
    step = (x[:, 1:] - x[:, :-1]).norm(dim=0).median()
    assert step < 8  # 39 Å in file order


# Bins


@given(st.integers(0, 60), st.floats(0.1, 5), st.sampled_from([1.0, 1e3, 1e9]))
@settings(max_examples=50, deadline=None)
def test_the_counting_sort_is_a_stable_sort_by_bin(n, edge, size):
    x = np.random.default_rng(n).uniform(-size, size, (3, n))
    grid = make_grid(x, edge)
    assert grid.n_bins <= BINS_PER_ATOM * n + 64  # memory follows the atoms, not the space
    order, starts = sort_by_bin(x, grid.origin, grid.inverse_edge, grid.dims)
    cells = np.minimum(((x - grid.origin[:, None]) * grid.inverse_edge[:, None]).astype(int), grid.dims[:, None] - 1)
    bins = (cells[2] * grid.dims[1] + cells[1]) * grid.dims[0] + cells[0]
    np.testing.assert_array_equal(order, np.argsort(bins, kind="stable"))
    np.testing.assert_array_equal(np.diff(starts), np.bincount(bins, minlength=grid.n_bins))


@settings(deadline=None)
@given(st.tuples(*[st.integers(1, 9)] * 3), st.integers(0, 3))
def test_bin_numbers_count_every_bin_once_and_block_by_block(dims, bits):
    bins = list(itertools.product(*(range(d) for d in dims)))
    numbers = [int(bin_number(*b, np.array(dims), bits)) for b in bins]
    assert sorted(numbers) == list(range(len(bins)))
    in_order = sorted(bins, key=lambda b: numbers[bins.index(b)])
    blocks = [tuple(k >> bits for k in b) for b in in_order]
    assert blocks == sorted(blocks, key=lambda block: block[::-1])


def test_atoms_of_one_bin_are_ordered_by_id():
    x = np.array([[0.1, 0.2, 9.0, 0.3], [0.0] * 4, [0.0] * 4])
    grid = make_grid(x, 3.0)
    rows = order_by_bin_and_id(x, np.array([7, 2, 1, 5]), grid.origin, grid.inverse_edge, grid.dims)
    assert rows.tolist() == [1, 3, 0, 2]


# Growth


def test_a_crowded_row_makes_the_matrix_wider_once_and_loses_nothing():
    rng = np.random.default_rng(6)
    direction = rng.normal(size=(300, 3))
    ball = 10 * direction / np.linalg.norm(direction, axis=1)[:, None] * rng.uniform(size=(300, 1)) ** (1 / 3)
    domain, state = built(Atoms("Ar300", positions=ball + 30, cell=[60] * 3, pbc=True), 8.5, 0.5)
    assert domain.list_growths == 1
    assert_exact(domain, state)
    domain.rebuild(state)
    assert domain.list_growths == 1


def test_a_list_that_fills_while_the_cell_shrinks_is_never_cut_short():
    grid = np.stack(np.meshgrid(*[range(5)] * 3, indexing="ij"), -1).reshape(-1, 3)
    state = state_of(Atoms("Ar125", positions=grid * 12.0, cell=[60] * 3, pbc=True))
    domain = Domain(Comm(), 8.5, 1.0)
    domain.follow(state)
    assert not domain.n_neighbors.any()
    while float(state.cell[0, 0]) > 18.0:
        state.cell *= 0.97
        state.positions *= 0.97
        domain.follow(state)
    fresh = Domain(Comm(), 8.5, 1.0)
    fresh.rebuild(state)
    domain.rebuild(state)
    assert torch.equal(domain.n_neighbors, fresh.n_neighbors)
    assert int(domain.n_neighbors.min()) > 56
    assert domain.list_growths < 6


# Between rebuilds


@pytest.mark.parametrize("skin", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("pbc", [(True, True, True), (True, False, True), (False, False, False)])
def test_the_list_stays_complete_while_atoms_move(pbc, skin):
    atoms = pfcc(2, 2, 2)
    atoms.pbc = pbc
    domain, state = built(atoms, 5.0, skin)
    rng = np.random.default_rng(7)
    velocities = torch.from_numpy(rng.normal(scale=0.08, size=(32, 3)))
    for _ in range(12):
        state.positions += velocities[state.ids]
        domain.follow(state)
        assert_complete(domain, state, 5.0)
    assert domain.counts.rebuilds > 1
    assert domain.counts.dangerous_builds == 0
    if skin == 1.0:
        assert domain.counts.rebuilds < 12


def test_the_list_stays_complete_while_the_cell_deforms():
    domain, state = built(pfcc(2, 2, 2), 5.0, 0.6)
    strain = torch.eye(3) + torch.tensor([[-0.01, 0.008, 0.0], [0.0, 0.005, -0.006], [0.004, 0.0, -0.007]])
    for _ in range(15):
        state.cell @= strain.double()
        state.positions @= strain.double()
        domain.follow(state)
        assert_complete(domain, state, 5.0)
    assert 1 < domain.counts.rebuilds < 15


def test_atoms_that_follow_the_cell_do_not_count_as_moved():
    atoms = pfcc(3, 3, 3)
    atoms.positions += 1000  # far from the origin: the strain alone moves them by Å
    domain, state = built(atoms, 5.0, 1.0)
    state.cell *= 1.01
    state.positions *= 1.01
    domain.follow(state)
    assert domain.counts.rebuilds == 1
    assert_complete(domain, state, 5.0)


def test_a_late_look_at_the_displacements_is_counted_as_a_dangerous_build():
    state = state_of(pfcc(2, 2, 2))
    domain = Domain(Comm(), 5.0, 0.5, check_every=5)
    domain.follow(state)
    for _ in range(10):
        state.positions[0, 0] += 0.1  # half the skin is 0.25
        domain.follow(state)
    assert domain.counts.dangerous_builds == 2


def test_a_rebuild_in_time_is_not_dangerous():
    state = state_of(pfcc(2, 2, 2))
    domain = Domain(Comm(), 5.0, 0.5, check_every=5)
    domain.follow(state)
    for step in range(10):
        state.positions[0, 0] += 0.15 if step % 5 == 4 else 0.03
        domain.follow(state)
    assert domain.counts.rebuilds == 3
    assert domain.counts.dangerous_builds == 0


@pytest.mark.parametrize("jump", [6.0, 1e4, 1e300, np.inf, np.nan])
def test_an_atom_that_leaps_out_of_its_box_is_named(jump):
    domain, state = built(pfcc(3, 3, 3), 4.0, 1.0)
    row = int((state.ids == 17).nonzero())
    state.positions[row, 1] += jump
    with pytest.raises(SimulationError, match=r"lost 1 atom \(ids 17\)"):
        domain.follow(state)
