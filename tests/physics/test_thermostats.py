"""Thermostats beside Langevin's: the distributions they must sample, what they conserve, ASE's trajectory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ase.calculators.lj import LennardJones
from ase.md.nose_hoover_chain import NoseHooverChainNVT
from scipy import stats

from mdrun.comm import Comm
from mdrun.errors import SimulationError
from mdrun.integrate.nvt import Andersen, ScaledVerlet
from mdrun.integrate.thermostats import Berendsen, Bussi, NoseHooverChain, Ramp, Thermostat
from mdrun.state import temperature
from tests.physics.systems import FS, KB, PS, argon_liquid, smooth_argon, warmed
from tests.physics.test_langevin import RARE, SIGMAS, far_apart
from tests.systems import argon, free_particles, pfcc, simulate
from tests.test_thermo import WithoutVirial


def scaled(thermostat: Thermostat, n_dof: int, timestep: float = 2 * FS) -> ScaledVerlet:
    return ScaledVerlet(timestep, thermostat, n_dof, Comm())


THERMOSTATS = {
    "nose-hoover": lambda n_dof, t: scaled(NoseHooverChain(90, 200 * FS), n_dof, t),
    "bussi": lambda n_dof, t: scaled(Bussi(90, 200 * FS, seed=3), n_dof, t),
    "berendsen": lambda n_dof, t: scaled(Berendsen(90, 200 * FS), n_dof, t),
    "andersen": lambda n_dof, t: Andersen(t, 90, 2 / PS, seed=3),
}
every_thermostat = pytest.mark.parametrize("name", THERMOSTATS)


# What is sampled


def test_rescaling_gives_the_kinetic_energy_of_the_canonical_ensemble():
    """K of free atoms after five time constants at a time is gamma-distributed: a Kolmogorov-Smirnov test."""
    n_dof, kt = 11, KB * 300
    bussi, kinetic, seen = Bussi(300, 10 * FS, seed=1), 0.1, []
    for half_step in range(40000):
        kinetic *= bussi.factor(kinetic, n_dof, 5 * FS, half_step) ** 2
        seen.append(kinetic)
    assert stats.kstest(seen[200::10], stats.gamma(n_dof / 2, scale=kt).cdf).pvalue > RARE


def test_rescaling_forgets_at_the_pace_that_was_asked_for():
    """The autocorrelation of K is exp(-t/τ), here e^-1 and e^-2; its error is about 1/sqrt(20000)."""
    bussi, kinetic, seen = Bussi(300, 100 * FS, seed=2), 0.1, []
    for half_step in range(20000):
        kinetic *= bussi.factor(kinetic, 30, 100 * FS, half_step) ** 2
        seen.append(kinetic)
    k = np.array(seen[100:]) - np.mean(seen[100:])
    for lag in (1, 2):
        assert (k[lag:] * k[:-lag]).mean() / k.var() == pytest.approx(math.exp(-lag), abs=SIGMAS / math.sqrt(len(k)))


def test_one_degree_of_freedom_turns_round_as_often_as_it_should():
    """A lone component's momentum becomes normal, either sign alike (Bussi et al., eq. A8)."""
    bussi, p = Bussi(300, 10 * FS, seed=4), 1.0
    seen = []
    for half_step in range(40000):
        p *= bussi.factor(p * p / 2, 1, 5 * FS, half_step)
        seen.append(p / math.sqrt(KB * 300))
    assert stats.kstest(seen[200::20], "norm").pvalue > RARE


def test_collisions_make_velocities_maxwells():
    atoms = far_apart(2000)
    atoms.set_masses(np.where(np.arange(2000) % 2, 4.0, 130.0))
    run = simulate(atoms, free_particles(), Andersen(10 * FS, 300, 20 / PS, seed=1), 100)  # all have met, but e^-20
    momenta = run.momenta[-1] / np.sqrt(atoms.get_masses() * KB * 300)[:, None]
    assert stats.kstest(momenta.ravel(), "norm").pvalue > RARE


def test_so_many_atoms_collide_in_a_step():
    atoms = warmed(far_apart(4000), 100)
    run = simulate(atoms, free_particles(), Andersen(10 * FS, 300, 10 / PS, seed=1), 1)
    met = (run.momenta[-1] != run.momenta[0]).any(axis=1).sum()
    p = -math.expm1(-0.1)
    assert met == pytest.approx(4000 * p, abs=SIGMAS * math.sqrt(4000 * p * (1 - p)))


@pytest.mark.parametrize("name", ["nose-hoover", "bussi", "andersen"])
def test_a_liquid_has_the_temperature_and_its_fluctuation(name):
    """Mean and variance of K over blocks; 5 standard errors, from the blocks themselves, on either."""
    atoms = argon_liquid(3)
    n_dof = 3 * len(atoms) - (0 if name == "andersen" else 3)
    run = simulate(atoms, smooth_argon(), THERMOSTATS[name](n_dof, 4 * FS), 24000, watch=10)
    kinetic = run.kinetic_energies[401:] / (n_dof * KB * 90 / 2)
    blocks = kinetic.reshape(20, -1)
    assert kinetic.mean() == pytest.approx(1, abs=SIGMAS * blocks.mean(axis=1).std() / math.sqrt(20))
    squares = ((blocks - 1) ** 2).mean(axis=1)
    assert squares.mean() == pytest.approx(2 / n_dof, abs=SIGMAS * squares.std() / math.sqrt(20))


def test_weak_coupling_relaxes_exponentially():
    atoms = warmed(far_apart(50), 100)
    n_dof = 3 * len(atoms) - 3
    run = simulate(atoms, free_particles(), scaled(Berendsen(300, 50 * FS), n_dof), 100, watch=10)
    t = np.arange(11) * 20.0
    expected = 300 + (100 - 300) * np.exp(-t / 50)
    np.testing.assert_allclose([temperature(k, n_dof) for k in run.kinetic_energies], expected, rtol=1e-10)


def test_a_ramp_is_followed():
    ramp = Ramp(100, 300, 1000)
    assert [ramp(s) for s in (0, 500, 1000, 2000)] == [100, 200, 300, 300]
    atoms = warmed(far_apart(50), 100)
    n_dof = 3 * len(atoms) - 3
    run = simulate(atoms, free_particles(), scaled(Berendsen(ramp, 5 * FS), n_dof), 1000, watch=250)
    found = [temperature(k, n_dof) for k in run.kinetic_energies]
    np.testing.assert_allclose(found, [100, 150, 200, 250, 300], atol=1.5)


# What is conserved


@every_thermostat
def test_what_the_bath_took_is_accounted_for(name):
    """Total energy and heat together stay, to the error of the time step: a quarter of it at half the step."""
    atoms = argon_liquid(3)
    n_dof, fluctuation = 3 * len(atoms) - 3, {}
    for timestep, n_steps in ((8 * FS, 500), (4 * FS, 1000)):
        run = simulate(atoms, smooth_argon(), THERMOSTATS[name](n_dof, timestep), n_steps, watch=n_steps // 250)
        conserved = np.array([t.conserved_eV for t in run.thermo]) / len(atoms)
        heat = np.array([t.heat_eV for t in run.thermo]) / len(atoms)
        fluctuation[timestep] = conserved.std()
        assert np.abs(conserved - conserved[0]).max() < 0.02 * np.ptp(heat)
    if name != "andersen":  # whose two runs are different trajectories
        assert fluctuation[4 * FS] < 0.5 * fluctuation[8 * FS]


@pytest.mark.slow
def test_a_chain_drifts_below_a_millionth_of_the_kinetic_energy_per_ps():
    """10,000 steps of 2 fs. Measured: 2e-8 with 256 atoms, 7e-8 with 108."""
    atoms = argon_liquid(4)
    chain = scaled(NoseHooverChain(95, 200 * FS), 3 * len(atoms) - 3)
    run = simulate(atoms, smooth_argon(), chain, 10_000, watch=20)
    slope = np.polyfit([t.time_ps for t in run.thermo], [t.conserved_eV for t in run.thermo], 1)[0]
    assert abs(slope) < 1e-6 * run.kinetic_energies.mean()
    assert np.ptp([t.total_eV for t in run.thermo]) > 0.1 * run.kinetic_energies.mean()  # the bath did work
    assert run.sim.domain.counts.dangerous_builds == 0


@pytest.mark.parametrize("name", ["nose-hoover", "bussi", "berendsen"])
def test_momentum_stays_zero_and_fixed_atoms_where_they_are(name):
    atoms = warmed(pfcc(3, 3, 3), 90)
    run = simulate(atoms, argon(), THERMOSTATS[name](321, 4 * FS), 100)
    assert np.abs(run.momenta[-1].sum(axis=0)).max() < 1e-12
    mobile = np.ones((len(atoms), 3), bool)
    mobile[:10] = False
    mobile[10, 2] = False
    atoms.set_momenta(atoms.get_momenta() * mobile)
    run = simulate(atoms, argon(), THERMOSTATS[name](3 * len(atoms) - 31, 4 * FS), 100, mobile=mobile)
    assert (run.positions[-1] == run.positions[0])[~mobile].all()
    assert (run.positions[-1] != run.positions[0])[mobile].all()


# Beside ASE


def test_the_chain_follows_ases():
    """The same factorisation and masses: the same fifty steps, to rounding."""
    atoms = warmed(pfcc(4, 4, 4), 120)
    run = simulate(atoms, argon(), scaled(NoseHooverChain(90, 50 * FS), 3 * len(atoms)), 50)
    atoms.calc = LennardJones(epsilon=0.0104, sigma=3.40, rc=8.5, smooth=False)
    theirs = NoseHooverChainNVT(atoms, 2 * FS, temperature_K=90, tdamp=50 * FS)
    theirs.run(50)
    np.testing.assert_allclose(run.positions[-1], atoms.positions, rtol=0, atol=1e-10)
    np.testing.assert_allclose(run.momenta[-1], atoms.get_momenta(), rtol=0, atol=1e-10)


@every_thermostat
def test_nothing_to_scale_is_no_trouble(name):
    atoms = far_apart(3)
    run = simulate(atoms, free_particles(), THERMOSTATS[name](9, 2 * FS), 3)
    assert np.isfinite(run.momenta[-1]).all()


@every_thermostat
def test_the_panel_names_it_and_its_parameters(name):
    text = THERMOSTATS[name](9, 2 * FS).describe().lower()
    for word in ("nvt", name.replace("nose", "nosé"), "90 k", "2 fs"):
        assert word in text


def test_a_bath_at_zero_kelvin_leaves_a_chain_at_rest():
    chain: Thermostat = NoseHooverChain(0, 100 * FS)
    assert chain.factor(1.0, 9, FS, 0) == 1.0
    assert chain.heat == 0


# Casebook


@pytest.mark.parametrize("length", [1, 3, 10])
def test_a_chain_of_any_length_holds_the_temperature(length):
    """A-33, A-38: 256 atoms at 40 K, τ = 100 fs, 5 ps. A chain of one is Nosé and Hoover's."""
    atoms = warmed(pfcc(4, 4, 4), 40)
    n_dof = 3 * len(atoms) - 3
    chain = scaled(NoseHooverChain(40, 100 * FS, length), n_dof)
    run = simulate(atoms, smooth_argon(), chain, 2500, watch=5)
    kelvin = np.array([temperature(k, n_dof) for k in run.kinetic_energies[100:]])
    assert kelvin.mean() == pytest.approx(40, abs=2)
    assert kelvin.min() > 20
    conserved = np.array([t.conserved_eV for t in run.thermo]) / len(atoms)
    assert abs(np.polyfit(np.arange(len(conserved)) * 0.01, conserved, 1)[0]) < 1e-5  # eV/atom/ps


def test_a_chain_of_none_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        NoseHooverChain(40, 100 * FS, 0)


@every_thermostat
def test_a_model_without_stress_will_do_and_the_cell_stays(name):
    atoms = warmed(far_apart(8), 90)
    atoms.cell, atoms.pbc = [30.0, 31.0, 32.0], True
    run = simulate(atoms, WithoutVirial(), THERMOSTATS[name](24, 2 * FS), 20)
    assert (run.sim.state.cell.numpy() == atoms.cell.array).all()
    assert math.isnan(run.thermo[-1].pressure_GPa)


@pytest.mark.parametrize(("n_dof", "period_fs"), [(300, 100), (300_000, 100), (3_000_000, 100), (96_000, 20)])
@pytest.mark.parametrize("excess", [0.25, 0.5, 2.0, 4.0])
def test_a_large_system_far_from_its_temperature_is_followed(n_dof, period_fs, excess):
    """Free atoms and a chain alone: what they hold together stays, within a thousandth of the kinetic energy."""
    target = n_dof * KB * 300 / 2
    chain, start = NoseHooverChain(300, period_fs * FS), excess * target
    kinetic, worst = start, 0.0
    for half_step in range(400):
        kinetic *= chain.factor(kinetic, n_dof, FS, half_step) ** 2
        worst = max(worst, abs(kinetic + chain.heat - start))
    assert worst < 1e-3 * target


def test_what_a_chain_cannot_follow_is_told():
    with pytest.raises(SimulationError, match="--thermostat-time"):
        NoseHooverChain(300, 1e-3 * FS).factor(1e6, 300, FS, 0)
