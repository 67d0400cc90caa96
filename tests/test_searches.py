"""The two ways downhill, against textbooks: dense BFGS, and ASE's FIRE."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from ase.build import bulk
from ase.calculators.lj import LennardJones
from ase.optimize import FIRE2

from mdrun.comm import Comm
from mdrun.optimize.fire import Fire
from mdrun.optimize.landscape import Landscape, Point, Vector, Vectors
from mdrun.optimize.lbfgs import HISTORY, LBFGS
from tests.relaxing import relaxed
from tests.systems import argon, pfcc, state_of

N = 32


class Bowl:
    """x·A x / 2, the stiffest direction so many times as stiff as the softest."""

    def __init__(self, condition: float) -> None:
        noise = np.random.default_rng(7)
        vectors = np.linalg.qr(noise.standard_normal((3 * N, 3 * N)))[0]
        self.matrix = vectors @ np.diag(np.geomspace(1.0, condition, 3 * N)) @ vectors.T
        self.state = state_of(pfcc(2, 2, 2))
        self.state.positions = torch.from_numpy(noise.uniform(-0.1, 0.1, (N, 3)))
        self.landscape = Landscape(Comm())

    @property
    def x(self) -> np.ndarray:
        return self.state.positions.numpy().ravel().copy()

    def point(self) -> Point:
        g = self.matrix @ self.x
        gradient = Vector(torch.from_numpy(g.reshape(N, 3)), torch.zeros(0, dtype=torch.float64))
        return Point(float(self.x @ g) / 2, gradient, float(np.abs(g).max()), 0.0)


def dense_direction(steps: list[np.ndarray], changes: list[np.ndarray], g: np.ndarray) -> np.ndarray:
    """-H g, H by the update of J. Nocedal, S. J. Wright, Numerical Optimization (2006), eq. 6.17 and 7.20."""
    s, y = steps[-1], changes[-1]
    h = (s @ y) / (y @ y) * np.eye(len(g))
    for s, y in zip(steps, changes, strict=True):
        v = np.eye(len(g)) - np.outer(y, s) / (y @ s)
        h = v.T @ h @ v + np.outer(s, s) / (y @ s)
    return -h @ g


def test_directions_are_those_of_dense_bfgs_with_the_same_memory():
    bowl, memory = Bowl(30.0), 4
    search = LBFGS(bowl.landscape, memory=memory, longest_step=1e9)
    points = []
    while len(points) < 25:
        here = bowl.x, bowl.matrix @ bowl.x
        move = search.step(bowl.state, bowl.point())
        bowl.landscape.move(bowl.state, move)
        if search._n_tries:  # the last direction once more, shorter
            continue
        points.append(here)
        if len(points) > 1:
            steps = [b[0] - a[0] for a, b in itertools.pairwise(points)][-memory:]
            changes = [b[1] - a[1] for a, b in itertools.pairwise(points)][-memory:]
            expected = dense_direction(steps, changes, points[-1][1])
            assert move.rows.numpy().ravel() == pytest.approx(expected, rel=1e-7, abs=1e-9 * np.abs(expected).max())


def test_a_step_that_climbs_is_shortened_along_its_direction():
    bowl = Bowl(5000.0)  # 70 eV/Å², which is taken at first, is far too soft
    search = LBFGS(bowl.landscape)
    start, steps = bowl.x, []
    for _ in range(6):
        step = search.step(bowl.state, bowl.point())
        bowl.landscape.move(bowl.state, step)
        steps.append(bowl.x - start)
        if search._n_tries == 0 and len(steps) > 1:
            break
    tries = np.array(steps[:-1])
    assert len(tries) > 1
    lengths = np.linalg.norm(tries, axis=1)
    assert (lengths[1:] <= 0.5 * lengths[:-1] + 1e-12).all()
    assert tries @ tries[0] == pytest.approx(lengths * lengths[0], rel=1e-12)


def test_the_history_follows_the_atoms():
    bowl, other = Bowl(30.0), Bowl(30.0)
    searches = [LBFGS(b.landscape) for b in (bowl, other)]
    shuffled = torch.from_numpy(np.random.default_rng(1).permutation(N))
    for _ in range(12):
        steps = []
        for b, search in zip((bowl, other), searches, strict=True):
            back = b.state.ids.argsort()
            x = b.state.positions[back].numpy().ravel()
            g = torch.from_numpy((b.matrix @ x).reshape(N, 3))[b.state.ids]
            point = Point(float(x @ b.matrix @ x) / 2, Vector(g, torch.zeros(0).double()), 1.0, 0.0)
            step = search.step(b.state, point)
            b.landscape.move(b.state, step)
            steps.append(step.rows[back].numpy())
        assert steps[0] == pytest.approx(steps[1], abs=1e-12)
        other.state.reorder(shuffled)
    assert tuple(other.state.carried[HISTORY].shape) == (N, 22, 3)


def test_products_and_sums_of_vectors_have_the_same_bits_wherever_they_lie_in_memory():
    noise = np.random.default_rng(3)
    shapes = [(N, 3, 3), (3, 6), (N, 21, 3), (21, 6)]
    values = [torch.from_numpy(noise.standard_normal(shape)) for shape in shapes]
    landscape, weights = Landscape(Comm()), noise.standard_normal(21)

    def moved(tensor: torch.Tensor, offset: int) -> torch.Tensor:
        return torch.empty(tensor.numel() + offset, dtype=tensor.dtype)[offset:].view(tensor.shape).copy_(tensor)

    seen = set()
    for offsets in itertools.product(range(4), repeat=4):
        parts = [moved(*pair) for pair in zip(values, offsets, strict=True)]
        new, old = Vectors(*parts[:2]), Vectors(*parts[2:])
        total = old.combined(weights)
        products = landscape.inner_products(new, old)
        seen.add((products.tobytes(), total.rows.numpy().tobytes(), total.cell.numpy().tobytes()))
    assert len(seen) == 1


def test_fire_takes_the_steps_of_ases():
    """Until the first turn, after which ASE's evaluates forces once more; and its limit, here never reached, is on the
    length of all atoms' steps together."""
    atoms = pfcc(2, 2, 2)
    atoms.positions = bulk("Ar", "fcc", a=5.26, cubic=True).repeat(2).positions
    atoms.rattle(0.01, seed=1)
    ours = relaxed(atoms, argon(), "fire", fmax=1e-9, most=28)
    atoms.calc = LennardJones(sigma=3.4, epsilon=0.0104, rc=8.5)
    theirs = []
    dynamics = FIRE2(atoms, logfile=None)
    dynamics.attach(lambda: theirs.append(atoms.positions.copy()))
    dynamics.run(fmax=1e-9, steps=28)
    assert dynamics.dt > 0.19  # it has grown
    assert len(ours.positions) == len(theirs) == 29
    assert np.abs(ours.positions[28] - ours.positions[0]).max() > 0.01
    assert ours.positions == pytest.approx(np.array(theirs), abs=1e-10)


def test_fire_stops_and_goes_half_a_step_back_where_it_would_climb():
    """The algorithm of the paper in a few lines, on a bowl in which it turns several times."""
    bowl = Bowl(30.0)
    search = Fire(bowl.landscape, longest_step=1e9)
    x, v, t, mixing, n_downhill, n_turns = bowl.x, np.zeros(3 * N), 0.1, 0.25, 0, 0
    for step in range(150):
        assert bowl.x == pytest.approx(x, abs=1e-12)
        bowl.landscape.move(bowl.state, search.step(bowl.state, bowl.point()))
        f = -bowl.matrix @ x
        if f @ v > 0:
            n_downhill += 1
            if n_downhill > 20:
                t, mixing = min(1.1 * t, 1.0), 0.99 * mixing
        elif step > 0:
            n_downhill, t, mixing, n_turns = 0, max(t / 2, 0.002), 0.25, n_turns + 1
            x, v = x - t * v / 2, 0 * v
        v = v + t * f
        v = (1 - mixing) * v + mixing * f * np.linalg.norm(v) / np.linalg.norm(f)
        x = x + t * v
    assert n_turns > 2
