"""Velocity Verlet: the casebook's numbers, ASE's trajectory, and what Newton's equations conserve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.calculators.lj import LennardJones as AseLennardJones
from ase.md.verlet import VelocityVerlet as AseVerlet

from mdrun import units
from mdrun.errors import SimulationError
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.eam import EAM
from mdrun.potentials.emt import EMT
from mdrun.potentials.lennard_jones import make_lennard_jones
from mdrun.potentials.precision import PRECISIONS
from tests.physics.systems import FS, argon_liquid, smooth_argon, warmed
from tests.systems import DATA, Run, argon, free_particles, pfcc, simulate

# The casebook


def test_the_perturbed_crystal_moves_as_the_casebook_says():
    run = simulate(pfcc(4, 4, 4), argon(shift=True), VelocityVerlet(FS), 500, watch=10)
    seen = {t.step: t for t in run.thermo}
    for step, kinetic, total in (
        (10, 0.021140516, -18.30948),
        (100, 1.150966098, -18.30952),
        (500, 0.796360814, -18.30950),
    ):
        assert seen[step].kinetic_eV == pytest.approx(kinetic, abs=1e-9)
        assert seen[step].total_eV == pytest.approx(total, abs=5e-6)
    np.testing.assert_allclose(run.positions[10][0], [0.01652522, 0.02526623, 0.04411494], atol=5e-9)
    assert run.thermo[-1].time_ps == pytest.approx(0.5)


def test_a_dimer_vibrates_with_its_period():
    rest = 3.4 * 2 ** (1 / 6)
    atoms = Atoms("Ar2", positions=[[0, 0, 0], [rest + 0.02, 0, 0]])
    run = simulate(atoms, argon(), VelocityVerlet(FS), 2600, watch=1)
    length = run.positions[:, 1, 0] - run.positions[:, 0, 0]
    # the bond is longest at 0, at one period and at two
    at_the_top = [k for k in range(1, 2600) if length[k - 1] < length[k] >= length[k + 1]]
    assert at_the_top == [pytest.approx(1261, abs=1), pytest.approx(2522, abs=2)]


def test_the_mass_of_the_file_moves_the_atom():
    atoms = Atoms("H", masses=[2.0141], momenta=[[0.2, 0, 0]])
    run = simulate(atoms, free_particles(), VelocityVerlet(FS), 100)
    assert run.thermo[0].kinetic_eV == pytest.approx(0.009929994, abs=1e-9)
    assert run.positions[-1][0, 0] == pytest.approx(0.97539, abs=5e-6)


def test_temperature_counts_the_degrees_of_freedom_that_are_left():
    atoms = Atoms("Ar2", positions=[[0, 0, 0], [20, 0, 0]], momenta=[[0.5, 0, 0], [-0.5, 0, 0]])
    (thermo,) = simulate(atoms, argon(), VelocityVerlet(FS), 0).thermo
    assert thermo.kinetic_eV == pytest.approx(0.006258136, abs=1e-9)
    assert thermo.temperature_K == pytest.approx(48.4151, abs=1e-4)  # 3N - 3: the centre of mass is at rest
    atoms.set_momenta([[0.5, 0, 0], [0.5, 0, 0]])
    (thermo,) = simulate(atoms, argon(), VelocityVerlet(FS), 0).thermo
    assert thermo.temperature_K == pytest.approx(24.2075, abs=1e-4)  # 3N: it is not


def test_an_atom_that_crosses_the_border_of_a_wide_box():
    atoms = Atoms("Ar2", positions=[[19.9, 10, 10], [24.5, 10, 10]], cell=[40, 20, 20], pbc=True)
    atoms.set_momenta([[40.669, 0, 0], [0, 0, 0]])
    run = simulate(atoms, argon(), VelocityVerlet(FS), 20, watch=1)
    assert run.thermo[0].potential_eV == pytest.approx(-0.005676992, abs=1e-9)
    assert run.thermo[2].potential_eV == pytest.approx(-0.006970890, abs=1e-8)
    np.testing.assert_allclose(run.positions[2][:, 0], [20.1000030, 24.4999970], atol=1e-6)
    np.testing.assert_allclose(run.positions[10][:, 0], [20.9000715, 24.4999285], atol=1e-6)


def test_a_perfect_crystal_shares_its_heat_with_its_springs():
    atoms = warmed(bulk("Ar", a=5.26, cubic=True) * (4, 4, 4), 40)
    run = simulate(atoms, argon(shift=True), VelocityVerlet(2 * FS), 5000, watch=10)
    assert run.thermo[0].temperature_K == pytest.approx(40, abs=1e-9)
    late = np.mean([t.temperature_K for t in run.thermo if t.time_ps > 3])
    assert late == pytest.approx(20, abs=1.5)  # equipartition, but for a little anharmonicity


# Against ASE


def mixed_masses() -> Atoms:
    atoms = warmed(pfcc(2, 2, 2), 60)
    atoms.set_masses(np.random.default_rng(3).uniform(20, 90, 32))
    return atoms


def slab() -> Atoms:
    atoms = warmed(pfcc(3, 3, 2), 80)
    atoms.pbc = (True, True, False)
    return atoms


@pytest.mark.parametrize("make", [mixed_masses, slab], ids=lambda f: f.__name__)
def test_fifty_steps_are_those_of_ase(make):
    atoms = make()
    run = simulate(atoms, argon(shift=True), VelocityVerlet(2 * FS), 50)
    atoms.calc = AseLennardJones(sigma=3.4, epsilon=0.0104, rc=8.5)
    AseVerlet(atoms, 2 * units.FS).run(50)
    np.testing.assert_allclose(run.positions[-1], atoms.positions, rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.momenta[-1], atoms.get_momenta(), rtol=0, atol=1e-9)


# What is conserved


def drift(run) -> float:
    """Slope of the total energy through the whole run, in parts of the kinetic energy per ps."""
    time = np.array([t.time_ps for t in run.thermo])
    return np.polyfit(time, run.total_energies, 1)[0] / run.kinetic_energies.mean()


# Measured with 256 atoms at 95 to 103 K, 10,000 steps of 2 fs, three starts: force-shifted 1e-9 to 3e-8, shifted at
# 3 σ 3e-9 to 6e-8, shifted at 2.5 σ 1e-7 to 6e-7 (its force steps at the cutoff, so the energy walks at random).
# Plain truncation has no conserved energy to follow: 1e-6 to 2e-5, all of it noise of the pairs at the cutoff.
@pytest.mark.parametrize(
    "model", [smooth_argon(), argon(10.2, shift=True), argon(8.5, shift=True)], ids=["smooth", "3_sigma", "2.5_sigma"]
)
def test_energy_drifts_below_a_millionth_of_the_kinetic_energy_per_ps(model):
    run = simulate(argon_liquid(4), model, VelocityVerlet(2 * FS), 10_000, watch=20)
    assert abs(drift(run)) < 1e-6
    assert run.sim.domain.counts.rebuilds > 100
    assert run.sim.domain.counts.dangerous_builds == 0


def test_energy_errors_are_of_second_order_in_the_time_step():
    atoms = argon_liquid(3)
    errors = []
    for timestep, n_steps in ((4, 500), (2, 1000), (1, 2000)):
        run = simulate(atoms, smooth_argon(), VelocityVerlet(timestep * FS), n_steps, watch=20 // timestep)
        errors.append(run.total_energies.std())
    assert errors[0] / errors[1] == pytest.approx(4, abs=0.4)
    assert errors[1] / errors[2] == pytest.approx(4, abs=0.4)


METALS = {
    "setfl": ("Cu", 3.63, lambda: EAM.from_file(DATA / "potentials" / "Cu_mishin1.eam.alloy", (29,))),
    "funcfl": ("Cu", 3.63, lambda: EAM.from_file(DATA / "potentials" / "Cu_u3.eam", (29,))),
    "finnis_sinclair": ("Fe", 2.87, lambda: EAM.from_file(DATA / "potentials" / "Fe_mm.eam.fs", (26,))),
    "emt": ("Cu", 3.63, lambda: EMT.for_species((29,))),
}


@pytest.mark.parametrize("metal", METALS)
def test_metals_conserve_energy_to_second_order_in_the_time_step(metal):
    """Across the knots of tabulated functions too: their slopes are continuous, and forces are exact derivatives."""
    symbol, a, make = METALS[metal]
    errors = []
    for timestep, n_steps in ((4, 200), (2, 400)):
        atoms = warmed(bulk(symbol, a=a, cubic=True) * (3, 3, 3), 600)
        run = simulate(atoms, make(), VelocityVerlet(timestep * FS), n_steps, watch=20 // timestep)
        errors.append(run.total_energies.std())
    assert errors[0] / errors[1] == pytest.approx(4, abs=0.2)
    assert errors[1] < 1e-3 * run.kinetic_energies.mean()


def test_a_run_that_explodes_is_stopped_with_its_atoms_and_its_last_good_step():
    with pytest.raises(SimulationError, match=r"step \d+: .* \(ids \d+, .*last good step is \d+"):
        simulate(warmed(pfcc(4, 4, 4), 300), argon(), VelocityVerlet(200 * FS), 1000)


def test_time_runs_backwards_when_momenta_turn_round():
    atoms = argon_liquid(3)
    there = simulate(atoms, argon(shift=True), VelocityVerlet(2 * FS), 200)
    turned = atoms.copy()
    turned.positions, back = there.positions[-1], -there.momenta[-1]
    turned.set_momenta(back)
    home = simulate(turned, argon(shift=True), VelocityVerlet(2 * FS), 200)
    assert np.abs(there.positions[-1] - atoms.positions).max() > 0.5
    np.testing.assert_allclose(home.positions[-1], atoms.positions, rtol=0, atol=1e-9)
    np.testing.assert_allclose(home.momenta[-1], -atoms.get_momenta(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_steps", [1, 1000])
def test_momentum_is_conserved(n_steps):
    atoms = argon_liquid(3)
    atoms.set_momenta(atoms.get_momenta() + np.array([0.3, -0.2, 0.1]))
    run = simulate(atoms, argon(), VelocityVerlet(2 * FS), n_steps)
    np.testing.assert_allclose(run.momenta[-1].sum(axis=0), atoms.get_momenta().sum(axis=0), rtol=0, atol=1e-10)


def test_unlike_masses_keep_their_centre_of_mass():
    pairs = {(0, 0): (0.0009, 2.56), (0, 1): (0.0042, 3.3), (1, 1): (0.0200, 3.98)}
    atoms = Atoms("He4Xe4", positions=[[x, y, z] for x in (0, 6) for y in (0, 6) for z in (0, 6)], cell=[12] * 3)
    atoms.pbc = True
    warmed(atoms, 300)
    assert np.abs(atoms.get_momenta().sum(axis=0)).max() < 1e-10
    run = simulate(atoms, make_lennard_jones(pairs, 2, 8.5, True, "He-Xe"), VelocityVerlet(FS), 1000)
    assert run.thermo[0].temperature_K == pytest.approx(300, rel=1e-12)
    assert np.abs(run.momenta[-1].sum(axis=0)).max() < 1e-10
    assert np.abs(run.momenta[-1] - run.momenta[0]).max() > 0.1  # they did meet


def test_a_cluster_keeps_its_angular_momentum():
    atoms = warmed(pfcc(2, 2, 2), 40)
    atoms.pbc = False
    run = simulate(atoms, argon(), VelocityVerlet(2 * FS), 1000)
    first, last = (np.cross(run.positions[k], run.momenta[k]).sum(axis=0) for k in (0, -1))
    np.testing.assert_allclose(last, first, rtol=0, atol=1e-9)


# What the trajectory must not depend on


@pytest.mark.parametrize("skin", [0.0, 0.4, 3.0])
def test_the_skin_does_not_change_the_trajectory(skin):
    atoms = argon_liquid(3)
    other = simulate(atoms, argon(shift=True), VelocityVerlet(2 * FS), 200, skin=skin)
    usual = simulate(atoms, argon(shift=True), VelocityVerlet(2 * FS), 200, skin=1.0)
    np.testing.assert_allclose(other.positions[-1], usual.positions[-1], rtol=0, atol=1e-9)
    assert other.sim.domain.counts.rebuilds != usual.sim.domain.counts.rebuilds


def test_atoms_that_drift_over_the_border_move_as_those_at_rest():  # A-15, during the run
    still = warmed(pfcc(2, 2, 2), 60)
    moving = still.copy()
    moving.positions += [500.0, -300.0, 0.0]
    velocity = np.array([0.5, 0.2, -0.3])  # Å per ASE time unit: several cells in the run
    moving.set_momenta(still.get_momenta() + still.get_masses()[:, None] * velocity)
    at_rest = simulate(still, argon(shift=True), VelocityVerlet(2 * FS), 300)
    carried = simulate(moving, argon(shift=True), VelocityVerlet(2 * FS), 300)
    travelled = velocity * 600 * FS
    assert np.abs(travelled).max() > 2 * 10.52
    expected = at_rest.positions[-1] + travelled + [500.0, -300.0, 0.0]
    np.testing.assert_allclose(carried.positions[-1], expected, rtol=0, atol=1e-8)


def test_free_atoms_fly_straight():
    atoms = Atoms("Ar2", positions=[[0, 0, 0], [10, 0, 0]], cell=[30] * 3, pbc=True)
    atoms.set_momenta([[1, 2, 3], [1, -2, 0.5]])
    run = simulate(atoms, argon(5.0), VelocityVerlet(FS), 200)
    flown = atoms.get_velocities() * 200 * FS
    np.testing.assert_allclose(run.positions[-1], atoms.positions + flown, rtol=0, atol=1e-12)


def test_an_atom_may_creep_as_far_as_a_skin_wider_than_its_cell_allows():
    atoms = Atoms("Ar", positions=[[0, 0, 0]], cell=[3, 30, 30], pbc=True)
    atoms.set_momenta([[1, 0, 0]])
    run = simulate(atoms, argon(), VelocityVerlet(10 * FS), 300, watch=300, skin=8.0)
    expected = 3000 * units.FS / atoms.get_masses()[0]  # its images move with it: no force
    assert expected > 4 + 3
    np.testing.assert_allclose(run.positions[-1], [[expected, 0, 0]], atol=1e-9)


def test_fixed_components_keep_their_bits():
    atoms = warmed(pfcc(2, 2, 2), 80)
    mobile = np.random.default_rng(1).random((32, 3)) > 0.4
    atoms.set_momenta(atoms.get_momenta() * mobile)
    run = simulate(atoms, argon(), VelocityVerlet(2 * FS), 300, mobile=mobile)
    assert np.array_equal(run.positions[-1][~mobile], atoms.positions[~mobile])
    assert not run.momenta[-1][~mobile].any()
    assert (run.positions[-1][mobile] != atoms.positions[mobile]).all()
    assert run.sim.n_dof == mobile.sum()


def test_the_time_step_is_in_femtoseconds():
    one = simulate(warmed(pfcc(2, 2, 2), 60), argon(), VelocityVerlet(2.5 * FS), 40)
    assert one.thermo[-1].time_ps == pytest.approx(0.1)
    assert "2.5 fs" in one.sim.integrator.describe()


def test_the_loop_counts_its_steps_and_asks_for_totals_when_they_are_read():
    wanted = []

    class Counting:
        name, cutoff = "counting", 5.0

        def __init__(self):
            self.inner = argon(5.0)

        def __call__(self, domain, totals):
            wanted.append(totals)
            return self.inner(domain, totals)

    run = simulate(pfcc(2, 2, 2), Counting(), VelocityVerlet(FS), 6, watch=3)
    assert run.sim.step == 6
    assert [t.step for t in run.thermo] == [0, 3, 6]
    assert wanted == [True, False, False, True, False, False, True]
    assert torch.is_tensor(run.sim.forces.forces)


def slope(run: Run) -> tuple[float, float]:
    """Of the total energy, meV an atom and ns, and its standard error, by ten means of consecutive steps."""
    n_atoms = run.positions.shape[1]
    time_ns, energy = (np.array([getattr(t, name) for t in run.thermo]) for name in ("time_ps", "total_eV"))
    x, y = (
        np.array([part.mean() for part in np.array_split(v, 10)]) for v in (time_ns / 1000, 1000 * energy / n_atoms)
    )
    (found, _), covariance = np.polyfit(x, y, 1, cov=True)
    return float(found), float(covariance[0, 0] ** 0.5)


@pytest.mark.slow
def test_mixed_precision_drifts_at_most_three_times_as_fast_as_double():
    """100,000 steps of 2 fs. Where double's drift is lost in its own error, that error stands for it."""
    start = argon_liquid(6)
    found = {}
    for name in ("double", "mixed"):
        model = replace(smooth_argon(), precision=PRECISIONS[name])
        found[name] = slope(simulate(start, model, VelocityVerlet(2 * FS), 100_000, watch=100))
        print(f"{name}: {found[name][0]:.2e} ± {found[name][1]:.1e} meV/atom/ns")
    (double, error), (mixed, mixed_error) = found["double"], found["mixed"]
    assert abs(mixed) <= 3 * max(abs(double), error) + 2 * mixed_error
