"""Langevin dynamics: the distributions that it must sample, and the noise that it is driven by.

Every statistical test has a fixed seed; its false-alarm rate is that of a seed picked blindly. ``SIGMAS`` = 5 is
6e-7 for each two-sided comparison with a normal error; ``RARE`` is the same rate for a p-value.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from ase import Atoms
from scipy import stats

from mdrun.integrate.nvt import Langevin
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.base import Forces
from tests.physics.systems import FS, KB, PS, argon_liquid, smooth_argon, warmed
from tests.systems import argon, free_particles, pfcc, simulate

SIGMAS, RARE = 5, 6e-7


def far_apart(n: int, symbol: str = "Ar") -> Atoms:
    """Atoms that never meet, in the open."""
    grid = np.stack(np.meshgrid(*[range(math.ceil(n ** (1 / 3)))] * 3, indexing="ij"), -1).reshape(-1, 3)[:n]
    return Atoms(f"{symbol}{n}", positions=1000.0 * grid)


class Springs:
    """Every atom on a spring of its own: the potential whose statistics are known for any time step."""

    name, cutoff = "springs", 1.0

    def __init__(self, atoms: Atoms, stiffness: float) -> None:
        self.rest, self.stiffness = torch.from_numpy(atoms.positions.copy()), stiffness

    def __call__(self, domain, totals):
        n = domain.n_owned
        stretch = domain.positions[:, :n].T - self.rest[domain.ids[:n]]
        return Forces(-self.stiffness * stretch, float(self.stiffness * stretch.square().sum() / 2))


# What is sampled


def test_velocities_of_free_atoms_become_maxwells():
    """A Kolmogorov-Smirnov test of 6000 components against the normal distribution; false alarms: RARE."""
    atoms = far_apart(2000)
    atoms.set_masses(np.where(np.arange(2000) % 2, 4.0, 130.0))  # from rest, in 12 relaxation times
    run = simulate(atoms, free_particles(), Langevin(10 * FS, 300, 10 / PS, seed=1), 120)
    scaled = run.momenta[-1] / np.sqrt(atoms.get_masses() * KB * 300)[:, None]
    assert stats.kstest(scaled.ravel(), "norm").pvalue > RARE
    for light_or_heavy in (scaled[0::2], scaled[1::2]):
        assert light_or_heavy.var() == pytest.approx(1, abs=SIGMAS * math.sqrt(2 / 3000))
    assert abs(scaled.mean()) < SIGMAS / math.sqrt(6000)


def test_velocities_forget_at_the_rate_of_the_friction():
    """<v(0) v(t)> = (kT/m) exp(-γ t): 6000 components, 8 times; false alarms: 8 of SIGMAS."""
    friction, every, n = 5 / PS, 5, 2000
    atoms = warmed(far_apart(n), 200)
    run = simulate(atoms, free_particles(), Langevin(10 * FS, 200, friction, seed=2), 40, watch=every)
    v = run.momenta / math.sqrt(atoms.get_masses()[0] * KB * 200)
    for k, momenta in enumerate(v):
        expected = math.exp(-friction * k * every * 10 * FS)
        error = SIGMAS * math.sqrt((1 + expected**2) / v[0].size)
        assert (v[0] * momenta).mean() == pytest.approx(expected, abs=error)
    # 1/e at 1/friction, which is step 20
    assert (v[0] * v[4]).mean() == pytest.approx(1 / math.e, abs=SIGMAS * math.sqrt(1.14 / v[0].size))


def test_free_atoms_diffuse_as_einstein_says():
    """<x²> = 2 (kT/mγ) (t - (1 - exp(-γt))/γ) from equilibrium velocities; 6000 components, SIGMAS."""
    friction, n_steps = 5 / PS, 100
    atoms = warmed(far_apart(2000), 200)
    run = simulate(atoms, free_particles(), Langevin(10 * FS, 200, friction, seed=3), n_steps)
    time = n_steps * 10 * FS
    memory = (1 - math.exp(-friction * time)) / friction
    expected = 2 * KB * 200 / atoms.get_masses()[0] / friction * (time - memory)
    moved2 = np.square(run.positions[-1] - run.positions[0])
    # BAOAB's drift is a trapezoid: off by (γ dt)²/12 = 2e-4, far within the error of 9 %
    assert moved2.mean() == pytest.approx(expected, rel=SIGMAS * math.sqrt(2 / moved2.size))


@pytest.mark.parametrize("reduced_step", [0.2, 1.0])
def test_springs_sample_the_exact_canonical_positions_at_any_time_step(reduced_step):
    """BAOAB's <x²> = kT/k holds for all ω dt < 2, and <p²> = m kT (1 - (ω dt)²/4) tells it from other splittings.

    Leimkuhler and Matthews (2013), section 4. 30 looks, far enough apart to be independent, at 3000 components each:
    0.5 % error in a variance. False alarms: two of SIGMAS, and RARE.
    """
    mass, stiffness, temperature = 40.0, 0.5, 150.0
    timestep = reduced_step * math.sqrt(mass / stiffness)
    atoms = far_apart(1000)
    atoms.set_masses([mass] * 1000)
    friction = 2 * math.sqrt(stiffness / mass)  # critical: positions and velocities forget fastest
    between = math.ceil(8 / (reduced_step * 0.9))
    langevin = Langevin(timestep, temperature, friction, seed=4)
    run = simulate(atoms, Springs(atoms, stiffness), langevin, 32 * between, watch=between)
    stretch = (run.positions[3:] - atoms.positions) / math.sqrt(KB * temperature / stiffness)
    momenta = run.momenta[3:] / math.sqrt(mass * KB * temperature)
    error = SIGMAS * math.sqrt(2 / stretch.size)
    assert stretch.var() == pytest.approx(1, abs=error)
    assert momenta.var() == pytest.approx(1 - reduced_step**2 / 4, abs=error)
    assert stats.kstest(stretch[-1].ravel(), "norm").pvalue > RARE


def test_a_crystal_has_the_temperature_that_was_asked_for():
    """25 ps of 324 degrees of freedom that forget twice in each 1/γ: some 200 samples, 0.6 % error; SIGMAS."""
    atoms = warmed(pfcc(3, 3, 3), 40)
    run = simulate(atoms, smooth_argon(), Langevin(5 * FS, 40, 4 / PS, seed=5), 5400, watch=10)
    temperatures = [t.temperature_K for t in run.thermo if t.time_ps > 2]
    n_samples = 25 * 4 * 2
    assert run.sim.n_dof == 324  # the heat bath moves the centre of mass too
    assert np.mean(temperatures) == pytest.approx(40, rel=SIGMAS * math.sqrt(2 / 324 / n_samples))
    # and it fluctuates as the canonical ensemble does
    assert np.std(temperatures) / 40 == pytest.approx(math.sqrt(2 / 324), rel=SIGMAS / math.sqrt(2 * n_samples))
    scaled = run.momenta[-1] / np.sqrt(atoms.get_masses() * KB * 40)[:, None]
    assert stats.kstest(scaled.ravel(), "norm").pvalue > RARE


def test_a_liquid_started_cold_is_brought_to_the_temperature():
    """10 ps of 324 degrees of freedom after ten relaxation times; some 80 samples; SIGMAS."""
    atoms = argon_liquid(3)
    atoms.set_momenta(np.zeros((108, 3)))
    run = simulate(atoms, smooth_argon(), Langevin(4 * FS, 110, 4 / PS, seed=6), 3200, watch=10)
    temperatures = [t.temperature_K for t in run.thermo if t.time_ps > 2.5]
    assert np.mean(temperatures) == pytest.approx(110, rel=SIGMAS * math.sqrt(2 / 324 / 80))


# Limits that are exact


def test_without_friction_it_is_newtons_motion():
    atoms = argon_liquid(3)
    langevin = simulate(atoms, smooth_argon(), Langevin(FS, 100, 0.0, seed=7), 100)
    verlet = simulate(atoms, smooth_argon(), VelocityVerlet(FS), 100)
    np.testing.assert_allclose(langevin.positions[-1], verlet.positions[-1], rtol=0, atol=1e-10)


def test_at_zero_temperature_free_atoms_slow_down_exponentially():
    atoms = warmed(far_apart(5), 300)
    run = simulate(atoms, free_particles(), Langevin(10 * FS, 0.0, 5 / PS, seed=8), 30)
    np.testing.assert_allclose(run.momenta[-1], atoms.get_momenta() * math.exp(-1.5), rtol=1e-12)


def test_the_cell_keeps_its_bits():
    atoms = argon_liquid(3)
    run = simulate(atoms, argon(), Langevin(4 * FS, 100, 1 / PS, seed=9), 100)
    assert np.array_equal(run.sim.state.cell, atoms.cell.array)


def test_the_friction_is_told_in_inverse_picoseconds():
    text = Langevin(2 * FS, 100, 0.5 / PS, seed=10).describe()
    assert "2 fs" in text
    assert "100 K" in text
    assert "friction 0.5 /ps" in text
    assert "seed 10" in text


# The noise


def noise(seed: int, n: int = 1000, n_steps: int = 1, ids_from: int = 0) -> np.ndarray:
    """(n, 3) kicks that free atoms at rest get in ``n_steps``, in standard deviations of one step's kick."""
    atoms = far_apart(n + ids_from)
    langevin = Langevin(10 * FS, 300, 1000 / PS, seed)  # so much friction that only the last step is remembered
    run = simulate(atoms, free_particles(), langevin, n_steps)
    kicks = run.momenta[-1] / np.sqrt(atoms.get_masses() * KB * 300 * (1 - math.exp(-20)))[:, None]
    return kicks[ids_from:]


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """In units of its standard error under independence."""
    return np.corrcoef(a.ravel(), b.ravel())[0, 1] * math.sqrt(a.size)


def test_neighboring_seeds_make_unrelated_noise():
    kicks = [noise(seed) for seed in (1, 2, 3, 2**32 + 1)]
    for i in range(4):
        for j in range(i):
            assert abs(correlation(kicks[i], kicks[j])) < SIGMAS


def test_neighboring_atoms_and_components_get_unrelated_noise():
    kicks = noise(1, 4000)
    for lag in (1, 2, 3, 16, 64):
        assert abs(correlation(kicks[lag:], kicks[:-lag])) < SIGMAS
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert abs(correlation(kicks[:, a], kicks[:, b])) < SIGMAS
        assert abs(correlation(kicks[:, a] ** 2, kicks[:, b] ** 2)) < SIGMAS


def test_neighboring_steps_make_unrelated_noise():
    kicks = [noise(1, n_steps=n) for n in (1, 2, 3)]
    for a, b in ((0, 1), (1, 2), (0, 2)):
        assert abs(correlation(kicks[a], kicks[b])) < SIGMAS


def test_noise_belongs_to_the_atom_and_not_to_its_company():
    assert np.array_equal(noise(1, n=20), noise(1, n=500)[:20])


def test_the_same_seed_makes_the_same_trajectory_and_another_does_not():
    atoms = argon_liquid(3)
    runs = [simulate(atoms, argon(), Langevin(4 * FS, 100, 1 / PS, seed), 50).positions[-1] for seed in (1, 1, 2)]
    assert np.array_equal(runs[0], runs[1])
    assert np.abs(runs[0] - runs[2]).max() > 1e-3


def test_two_atoms_in_like_places_go_different_ways():
    atoms = Atoms("Ar2", positions=[[5, 10, 10], [25, 10, 10]], cell=[40, 20, 20], pbc=True)
    run = simulate(atoms, argon(), Langevin(FS, 300, 10 / PS, seed=1), 100)
    moved = run.positions[-1] - atoms.positions
    assert np.abs(moved[0] - moved[1]).min() > 1e-4


def test_the_skin_and_the_rows_order_do_not_change_the_trajectory():
    atoms = argon_liquid(3)
    a, b = (simulate(atoms, argon(), Langevin(4 * FS, 100, 1 / PS, 1), 100, skin=skin) for skin in (0.3, 2.5))
    assert not torch.equal(a.sim.state.ids, b.sim.state.ids)
    np.testing.assert_allclose(a.positions[-1], b.positions[-1], rtol=0, atol=1e-9)


# Fixed atoms


def test_fixed_components_keep_their_bits_and_the_rest_has_the_temperature():
    """5 ps of 162 degrees of freedom at γ = 4/ps: some 40 samples, 1.8 % error; SIGMAS."""
    atoms = warmed(pfcc(3, 3, 3), 40)
    mobile = np.ones((108, 3), bool)
    mobile[:40] = False  # whole atoms
    mobile[40:61, [0, 2]] = False  # and single components
    atoms.set_momenta(atoms.get_momenta() * mobile)
    run = simulate(atoms, smooth_argon(), Langevin(5 * FS, 40, 4 / PS, 1), 1400, watch=10, mobile=mobile)
    assert np.array_equal(run.positions[-1][~mobile], atoms.positions[~mobile])
    assert not run.momenta[-1][~mobile].any()
    assert run.sim.n_dof == 162
    late = [t.temperature_K for t in run.thermo if t.time_ps > 2]
    assert np.mean(late) == pytest.approx(40, rel=SIGMAS * math.sqrt(2 / 162 / 40))


def test_where_all_atoms_are_fixed_the_temperature_is_zero():
    run = simulate(pfcc(2, 2, 2), argon(), Langevin(5 * FS, 40, 4 / PS, 1), 3, mobile=np.zeros((32, 3), bool))
    assert run.thermo[-1].temperature_K == 0
    assert np.array_equal(run.positions[-1], run.positions[0])
