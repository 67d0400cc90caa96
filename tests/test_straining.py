"""Strains that a cell may make, the gradient of the enthalpy with them, and a halo that follows them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import expm

from mdrun import units
from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.errors import InputError
from mdrun.optimize.landscape import Landscape, Vector
from mdrun.optimize.straining import allowed_strains, exponential, exponential_slope, make_straining, strain
from mdrun.potentials.registry import load_model
from mdrun.scope import Scope
from mdrun.units import VOIGT
from tests.ranks.builders import argon_wire, slab
from tests.relaxing import disturbed
from tests.systems import argon, evaluate, pfcc, state_of

ALL = tuple(VOIGT)
CELL = torch.tensor([[5.0, 0.2, 0.1], [0.4, 6.0, -0.3], [0.0, 0.5, 7.0]], dtype=torch.float64)
PERIODIC = (True, True, True)


@pytest.mark.parametrize(
    ("pbc", "kind", "mask", "n"),
    [
        (PERIODIC, "full", ALL, 6),
        (PERIODIC, "full", ("xx", "xy"), 2),
        (PERIODIC, "shape", ALL, 5),
        (PERIODIC, "shape", ("xx", "yy"), 1),
        (PERIODIC, "isotropic", ALL, 1),
        ((True, True, False), "full", ALL, 3),
        ((True, True, False), "shape", ALL, 2),
        ((True, True, False), "isotropic", ALL, 1),
        ((False, False, True), "full", ALL, 1),
        ((False, False, True), "shape", ALL, 0),
        ((False, False, False), "full", ALL, 0),
        ((False, False, False), "isotropic", ALL, 0),
    ],
)  # fmt: skip
def test_strains_are_symmetric_orthonormal_and_spare_what_they_must(pbc, kind, mask, n):
    basis = allowed_strains(CELL, pbc, kind, mask)
    assert tuple(basis.shape) == (n, 3, 3)
    assert torch.einsum("aij,bij->ab", basis, basis).numpy() == pytest.approx(np.eye(n), abs=1e-12)
    periodic = CELL[list(pbc)].numpy()
    across = np.linalg.svd(periodic)[2][len(periodic) :]
    for one in basis.numpy():
        assert one == pytest.approx(one.T, abs=1e-12)
        assert across @ one == pytest.approx(np.zeros((len(across), 3)), abs=1e-12)
        if kind == "shape":
            assert np.trace(one) == pytest.approx(0, abs=1e-12)
        for name, (a, b) in VOIGT.items():
            assert name in mask or abs(one[a, b]) < 1e-12


def test_a_mask_that_leaves_nothing_is_refused():
    state = state_of(slab(60))
    for kind, mask, words in (("full", ("zz",), "zz"), ("shape", ("xx",), "xx")):
        with pytest.raises(InputError, match=f"--cell {kind} leaves no strain.*a b, and --cell-mask allows {words}"):
            make_straining(state, kind, mask, 0.0)


def test_the_exponential_and_its_gradient():
    noise = np.random.default_rng(4)
    for matrix in (np.zeros((3, 3)), np.diag([0.1, 0.1, -0.2]), noise.uniform(-0.3, 0.3, (3, 3))):
        a, slope = ((m + m.T) / 2 for m in (matrix, noise.uniform(-1, 1, (3, 3))))
        assert exponential(torch.from_numpy(a)).numpy() == pytest.approx(expm(a), abs=1e-14)
        found = exponential_slope(torch.from_numpy(a), torch.from_numpy(slope)).numpy()
        for i in range(3):
            for j in range(3):
                h = np.zeros((3, 3))
                h[i, j] = h[j, i] = 1e-5
                expected = ((expm(a + h) - expm(a - h)) * slope).sum() / 2e-5 / (1 if i == j else 2)
                assert found[i, j] == pytest.approx(expected, abs=1e-9)


def enthalpy(state, model, landscape) -> tuple[float, Vector]:
    domain = Domain(Comm(), model.cutoff, 0.5)
    with Scope(model, domain, state.n_total) as scope:
        domain.follow(state)
        point = landscape.survey(state, scope(domain, totals=True))
    return point.enthalpy, point.gradient


@pytest.mark.parametrize(
    ("atoms", "kind", "pressure_GPa"),
    [
        (disturbed("Si", "diamond", 5.431, 1), "full", 3.0),
        (disturbed("Si", "diamond", 5.431, 1), "shape", 0.0),
        (disturbed("Si", "diamond", 5.431, 1), "isotropic", -2.0),
    ],
    ids=["full, pressed", "shape", "isotropic, pulled"],
)
def test_the_gradient_is_that_of_the_enthalpy(atoms, kind, pressure_GPa):
    """At a strained cell, where positions and strains are coupled; by central differences along random directions."""
    model, noise, comm = load_model("sw", (14,)), np.random.default_rng(5), Comm()
    state = state_of(atoms)
    straining = make_straining(state, kind, ALL, pressure_GPa * units.GPA)
    landscape = Landscape(comm, straining)
    n, k = len(atoms), len(straining.basis)
    there = Vector(torch.zeros((n, 3), dtype=torch.float64), torch.from_numpy(noise.uniform(-0.05, 0.05, k)))
    landscape.move(state, there.scaled(straining.length))
    _, gradient = enthalpy(state, model, landscape)
    order = state.ids.clone()
    for _ in range(3):
        rows = torch.from_numpy(noise.standard_normal((n, 3)))
        cell = torch.from_numpy(noise.standard_normal(k))
        slope = float((gradient.rows * rows[order]).sum() + gradient.cell @ cell)
        ends = []
        for h in (1e-4, -2e-4):
            landscape.move(state, Vector(h * rows[state.ids], h * cell))
            ends.append(enthalpy(state, model, landscape)[0])
        landscape.move(state, Vector(1e-4 * rows[state.ids], 1e-4 * cell))
        assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(slope, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("amount", [-0.2, -0.1, 0.1, 0.2])
@pytest.mark.parametrize(
    "system", [lambda: pfcc(3, 3, 3), argon_wire, lambda: slab(60)], ids=["crystal", "wire", "slab"]
)
def test_the_halo_holds_while_the_cell_strains(system, amount):
    """One domain that follows, against a new one, while the cell shrinks or grows, and shears, by up to 20 %."""
    atoms, model, comm = system(), argon(), Comm()
    state = state_of(atoms)
    domain = Domain(comm, model.cutoff, 1.0)
    basis = allowed_strains(state.cell, state.pbc, "full", ALL)
    weights = torch.linspace(1.0, 0.3, len(basis), dtype=torch.float64)
    with Scope(model, domain, len(atoms)) as scope:
        domain.follow(state)
        for _ in range(10):
            strain(state, exponential(torch.einsum("k,kij->ij", weights * amount / 10, basis)))
            domain.follow(state)
            found = scope(domain, totals=True)
            now = atoms.copy()
            now.set_cell(state.cell.numpy())
            now.positions[state.ids.numpy()] = state.positions.numpy()
            fresh = evaluate(now, model)
            assert found.energy == pytest.approx(fresh.energy, rel=1e-12)
            assert found.forces.numpy() == pytest.approx(fresh.forces[state.ids.numpy()], abs=1e-11)
    assert domain.counts.dangerous_builds == 0
