"""Motion of the whole: stopped at intervals, spared by thermostats, and the degrees of freedom that go with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ase import Atoms
from scipy.spatial.transform import Rotation as Turn

from mdrun.comm import Comm
from mdrun.integrate.momentum import Stopping, measure_flow, measure_rotation, rotation_axes, stop
from mdrun.integrate.nvt import Langevin, ScaledVerlet
from mdrun.integrate.thermostats import Berendsen, Bussi, NoseHooverChain
from mdrun.integrate.velocities import DegreesOfFreedom
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.state import State, temperature
from tests.physics.systems import FS, KB, PS, smooth_argon, warmed
from tests.physics.test_langevin import far_apart
from tests.systems import free_particles, pfcc, simulate, state_of

TURNED = Turn.from_rotvec([0.3, -0.8, 0.5]).as_matrix()
SHAPES = {
    "one atom": ([[3.0, 1, 2]], 0),
    "two atoms": ([[3.0, 1, 2], [4, 1, 2]], 2),
    "straight": ([[0.0, 0, 0], [1, 0, 0], [3, 0, 0], [7.5, 0, 0]], 2),
    "bent": ([[0.0, 0, 0], [1, 0, 0], [1.2, 1, 0]], 3),
    "flat": ([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], 3),
    "solid": ([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 2, 3]], 3),
}


def cluster(name: str) -> Atoms:
    """Turned, far from the origin, of unlike masses, every atom on its way."""
    positions = np.array(SHAPES[name][0]) @ TURNED.T + [100.0, -50, 20]
    n = len(positions)
    atoms = Atoms(f"Ar{n}", positions=positions, masses=4.0 + 30 * np.arange(n))
    atoms.set_momenta(np.random.default_rng(1).standard_normal((n, 3)) + 0.5)
    return atoms


def whole(state: State, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Momentum (3,) and angular momentum about the centre of mass (3,), by NumPy."""
    m, r, p = state.masses.numpy(), state.positions.numpy(), state.momenta.numpy()
    centre = (m[:, None] * r).sum(axis=0) / m.sum()
    return p.sum(axis=0), np.cross(r - centre, p).sum(axis=0)


@pytest.mark.parametrize("name", SHAPES)
def test_a_cluster_is_stopped_and_so_many_degrees_of_freedom_are_gone(name):
    state = state_of(cluster(name))
    axes = rotation_axes(state.cell, state.pbc)
    before = state.momenta.clone()
    lost = stop(state, axes, Comm())
    momentum, angular = whole(state, axes)
    assert np.abs(momentum).max() < 1e-12
    assert np.abs(angular).max() < 1e-10
    # Least change: what went is a motion of the whole, which what is left knows nothing of.
    gone = (before - state.momenta) / state.masses[:, None]
    assert abs(float((gone * state.momenta).sum())) < 1e-10
    assert lost == pytest.approx(float((gone.square().sum(dim=1) * state.masses).sum()) / 2, rel=1e-9)
    n_rotations = measure_rotation(state, axes, measure_flow(state, Comm()), Comm()).n_free
    n = len(state.masses)
    assert n_rotations == SHAPES[name][1]
    left = DegreesOfFreedom(state.mobile, True, n_rotations).count
    assert left == {1: 0, 2: 1}.get(n, 3 * n - 3 - n_rotations)
    if left == 0:
        assert not state.momenta.abs().gt(1e-12).any()


def test_a_wire_is_stopped_along_and_about_its_axis():
    atoms = cluster("solid")
    axis = TURNED @ [0, 0, 1.0]
    atoms.set_cell([[1, 0, 0], [0, 1, 0], 8 * axis])
    atoms.pbc = (False, False, True)
    state = state_of(atoms)
    axes = rotation_axes(state.cell, state.pbc)
    np.testing.assert_allclose(axes, [axis])
    _, before = whole(state, axes)
    atoms.positions[2] -= 3 * atoms.cell[2]  # another image of it: the same wire
    other = state_of(atoms)
    for each in (state, other):
        stop(each, axes, Comm())
        momentum, angular = whole(each, axes)
        assert np.abs(momentum).max() < 1e-12
        assert abs(angular @ axis) < 1e-10
    torch.testing.assert_close(state.momenta, other.momenta, rtol=0, atol=1e-11)
    across = np.cross(axis, [1.0, 0, 0])
    assert abs(whole(state, axes)[1] @ across) > 0.1 * abs(before @ across)  # which nothing conserves


@pytest.mark.parametrize(("pbc", "n_axes"), [((0, 0, 0), 3), ((1, 0, 0), 1), ((1, 1, 0), 0), ((1, 1, 1), 0)])
def test_what_may_turn_depends_on_the_periodic_axes(pbc, n_axes):
    cell = torch.diag(torch.tensor([5.0, 6.0, 7.0], dtype=torch.float64))
    assert len(rotation_axes(cell, tuple(map(bool, pbc)))) == n_axes


def test_the_crystal_is_stopped_every_so_many_steps_and_nothing_is_lost():
    atoms = warmed(pfcc(3, 3, 3), 60)
    atoms.set_momenta(atoms.get_momenta() + atoms.get_masses()[:, None] * [0.02, -0.01, 0.03])
    inner = VelocityVerlet(4 * FS)
    run = simulate(atoms, smooth_argon(), Stopping(inner, 10, np.empty((0, 3)), Comm()), 30, watch=1)
    momenta = np.abs(run.momenta.sum(axis=1)).max(axis=1)
    assert (momenta[:10] > 1).all()
    assert (momenta[10:] < 1e-10).all()
    conserved = np.array([t.conserved_eV for t in run.thermo])
    assert np.ptp(run.total_energies) > 1
    assert np.ptp(conserved) < 1e-3 * np.ptp(run.total_energies)
    assert "momentum zeroed every 10 steps" in run.sim.integrator.describe()


def test_a_cluster_neither_moves_nor_turns_once_it_was_stopped():
    """NVE keeps what is zero; a Langevin bath brings it back, unless it is stopped at each step."""
    atoms = warmed(pfcc(2, 2, 2), 30)
    atoms.pbc = False
    for inner in (VelocityVerlet(4 * FS), Langevin(4 * FS, 30, 5 / PS, 1)):
        every = 50 if inner.ensemble == "nve" else 1
        run = simulate(atoms, smooth_argon(), Stopping(inner, every, np.eye(3), Comm()), 100, watch=25)
        for positions, momenta in zip(run.positions[2:], run.momenta[2:], strict=True):
            assert np.abs(momenta.sum(axis=0)).max() < 1e-10
            assert np.abs(np.cross(positions - positions.mean(axis=0), momenta).sum(axis=0)).max() < 1e-10
    assert "momentum and angular momentum zeroed every step" in run.sim.integrator.describe()


@pytest.mark.parametrize(
    "thermostat", [NoseHooverChain(300, 50 * FS), Bussi(300, 20 * FS, 1), Berendsen(300, 20 * FS)], ids=type
)
def test_thermostats_leave_a_drift_alone(thermostat):
    """Four times as fast as heat would be: momentum stays to rounding, and what is left gets the temperature."""
    atoms = warmed(far_apart(64), 300)
    atoms.set_masses(np.where(np.arange(64) % 2, 4.0, 130.0))
    velocity = 4 * np.sqrt(KB * 300 / 67) * np.array([1, -1, 0.5])
    atoms.set_momenta(atoms.get_momenta() + atoms.get_masses()[:, None] * velocity)
    before = atoms.get_momenta().sum(axis=0)
    n_dof = 3 * 64 - 3
    run = simulate(
        atoms, free_particles(), ScaledVerlet(2 * FS, thermostat, n_dof, Comm(), spares_drift=True), 500, watch=10
    )
    np.testing.assert_allclose(run.momenta.sum(axis=1), np.broadcast_to(before, (51, 3)), rtol=1e-12)
    drift = (before**2).sum() / (2 * atoms.get_masses().sum())
    kelvin = np.array([temperature(k - drift, n_dof) for k in run.kinetic_energies])
    assert kelvin[20:].mean() == pytest.approx(300, abs=300 * 5 * np.sqrt(2 / n_dof / 10))  # no two of 10 alike
    conserved = np.array([t.conserved_eV for t in run.thermo])
    assert np.ptp(conserved) < 1e-3 * max(np.ptp([t.heat_eV for t in run.thermo]), 1.0)


def test_net_momentum_of_unlike_masses_stays_zero():
    atoms = Atoms("He4Xe4", positions=50.0 * np.argwhere(np.ones((2, 2, 2))))
    warmed(atoms, 300)
    assert np.abs(atoms.get_momenta().sum(axis=0)).max() < 1e-10
    assert temperature(atoms.get_kinetic_energy(), 21) == pytest.approx(300, rel=1e-12)
    run = simulate(atoms, free_particles(n_types=2), VelocityVerlet(FS), 1000)
    assert np.abs(run.momenta[-1].sum(axis=0)).max() < 1e-10
    assert run.thermo[-1].temperature_K == pytest.approx(300, rel=1e-12)


@pytest.mark.parametrize(
    ("freedom", "count", "text"),
    [
        (DegreesOfFreedom(torch.ones(10, 3, dtype=torch.bool)), 30, "3N"),
        (DegreesOfFreedom(torch.ones(10, 3, dtype=torch.bool), True), 27, "3N - 3"),
        (DegreesOfFreedom(torch.ones(10, 3, dtype=torch.bool), True, 3), 24, "3N - 6"),
        (DegreesOfFreedom(torch.ones(10, 3, dtype=torch.bool), True, 3, 5), 19, "3N - 6 - 5 bonds"),
        (DegreesOfFreedom(torch.ones(10, 3, dtype=torch.bool), False, 3), 30, "3N"),
        (DegreesOfFreedom(torch.eye(3, dtype=torch.bool), True, 0, 1), 2, "free - 1 bond"),
    ],
)
def test_degrees_of_freedom_say_what_they_count(freedom, count, text):
    assert (freedom.count, str(freedom)) == (count, text)
