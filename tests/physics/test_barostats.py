"""Barostats: the distributions of the volume that they must sample, what they conserve, ASE's trajectory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.calculators.lj import LennardJones
from ase.md.nose_hoover_chain import IsotropicMTKNPT
from scipy import stats

from mdrun import cell as geometry
from mdrun import units
from mdrun.cell import volume
from mdrun.errors import InputError, SimulationError
from mdrun.integrate import cell_motion
from mdrun.integrate.base import Integrator
from mdrun.integrate.cell_motion import exponential
from mdrun.potentials.base import Forces
from mdrun.potentials.eam import EAM
from mdrun.run.simulation import Observer
from tests.physics.barostats import BAROSTATS, SAMPLING, Deforming, barostat, motion_of
from tests.physics.systems import FS, KB, argon_liquid, smooth_argon, warmed
from tests.physics.test_langevin import RARE
from tests.systems import DATA, argon, evaluate, pfcc, simulate, state_of
from tests.test_thermo import WithoutVirial

GPA = units.GPA
every_barostat = pytest.mark.parametrize("name", BAROSTATS)


def cells_of(*arguments, every: int = 1, **more) -> tuple:
    """A run, and the cell (n, 3, 3) Å at each ``every``-th step."""
    seen = []
    watch = Observer(every, lambda sim: seen.append(sim.state.cell.numpy().copy()), needs_totals=False)
    run = simulate(*arguments, observers=[watch], **more)
    return run, np.array(seen)


def far_in_a_box(n: int, side: float) -> Atoms:
    return Atoms(f"Ar{n}", positions=np.random.default_rng(1).random((n, 3)) * side, cell=[side] * 3, pbc=True)


def volumes_of_a_gas(atoms: Atoms, integrator: Integrator, n_steps: int, every: int) -> np.ndarray:
    """Å³ at each ``every``-th step, of atoms that do not feel each other: the integrator alone."""
    state, seen = state_of(atoms), []
    zero = torch.zeros((3, 3), dtype=torch.float64)
    nothing = Forces(torch.zeros_like(state.positions), 0.0, zero)
    for step in range(n_steps):
        integrator.before_forces(state, nothing, step)
        integrator.after_forces(state, nothing)
        if step % every == 0:
            seen.append(volume(state.cell, state.pbc))
    return np.array(seen)


# Beside ASE


def test_the_extended_system_follows_ases():
    """The same operators in the same order, and the same masses: the same fifty steps, to rounding."""
    atoms = warmed(pfcc(3, 3, 3), 120)
    p, n_dof = 0.1 * GPA, 3 * len(atoms)
    integrator = barostat("mtk", atoms, 90, p, n_dof=n_dof, period=100 * FS)
    run = simulate(atoms, argon(shift=True), integrator, 50)
    atoms.calc = LennardJones(epsilon=0.0104, sigma=3.40, rc=8.5, smooth=False)
    theirs = IsotropicMTKNPT(atoms, 2 * FS, temperature_K=90, pressure_au=p, tdamp=100 * FS, pdamp=100 * FS)
    start = theirs.get_conserved_energy()
    theirs.run(50)
    np.testing.assert_allclose(run.positions[-1], atoms.positions, rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.momenta[-1], atoms.get_momenta(), rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.sim.state.cell.numpy(), atoms.cell.array, rtol=0, atol=1e-9)
    assert abs(atoms.cell[0, 0] - 3 * 5.26) > 1e-3
    ours = run.thermo[-1].conserved_eV - run.thermo[0].conserved_eV
    assert ours == pytest.approx(theirs.get_conserved_energy() - start, abs=1e-8)


# What is conserved


@pytest.mark.parametrize(
    ("name", "box"),
    [*((name, "iso") for name in BAROSTATS), *((n, b) for n in ("mtk", "stochastic") for b in ("xyz", "triclinic"))],
)
def test_what_the_barostat_took_is_accounted_for(name, box):
    """Energy, heat and work together stay, to the error of the time step: a quarter of it at half the step."""
    atoms = argon_liquid(3)
    fluctuation = {}
    for timestep, n_steps in ((8 * FS, 300), (4 * FS, 600)):
        integrator = barostat(name, atoms, 95, 0.05 * GPA, timestep, box)
        run = simulate(atoms, smooth_argon(), integrator, n_steps, watch=n_steps // 150)
        conserved = np.array([t.conserved_eV for t in run.thermo]) / len(atoms)
        total = np.array([t.total_eV for t in run.thermo]) / len(atoms)
        fluctuation[timestep] = conserved.std()
        assert np.abs(conserved - conserved[0]).max() < 0.01 * np.ptp(total)
        lattice = run.sim.state.cell.numpy() - atoms.cell.array
        assert np.abs(lattice).max() > 0.005
        shear = np.abs(lattice - np.diag(np.diag(lattice))).max()
        assert (shear > 1e-3) == (box == "triclinic")
    assert fluctuation[4 * FS] < 0.5 * fluctuation[8 * FS]


# What is sampled


@pytest.mark.parametrize(
    "name", ["mtk", "stochastic", *(pytest.param(n, marks=pytest.mark.slow) for n in SAMPLING if " and " in n)]
)
def test_the_volume_of_an_ideal_gas_is_distributed_as_it_must_be(name, monkeypatch):
    """p(V) ~ V^n exp(-P V / k T), n atoms less the one whose motion is that of the whole: a Kolmogorov-Smirnov test."""
    atoms = warmed(far_in_a_box(12, 40.0), 300)
    kt, p = KB * 300, 12 * KB * 300 / 40.0**3
    is_kicked = "langevin" in name
    monkeypatch.setattr(cell_motion, "FASTEST", 0.1)  # free atoms don't mind
    integrator = barostat(
        name, atoms, 300, p, 20 * FS, period=3000 * FS, compressibility=1 / p,
        n_dof=3 * len(atoms) - (0 if is_kicked else 3),
    )  # fmt: skip
    volumes = volumes_of_a_gas(atoms, integrator, 12000, every=150)[10:]
    n = len(atoms) - (not is_kicked)
    assert stats.kstest(volumes, stats.gamma(n + 1, scale=kt / p).cdf).pvalue > RARE


@pytest.mark.parametrize("name", ["mtk", "stochastic"])
def test_an_ideal_gas_at_a_hundred_bar_has_its_volume_and_at_a_thousand_a_tenth(name):
    """64 atoms, 300 K, from L = 25 Å: P V = N k T; half of it is what a missing factor of two gives."""
    mean = {}
    for bar in (100, 1000):
        atoms = warmed(far_in_a_box(64, 25.0), 300)
        p = bar * 1e-4 * GPA
        integrator = barostat(name, atoms, 300, p, 10 * FS, period=2000 * FS, compressibility=1 / p)
        mean[bar] = volumes_of_a_gas(atoms, integrator, 6000, every=20)[80:].mean()
    assert mean[100] == pytest.approx(26300, rel=0.1)
    assert mean[100] / mean[1000] == pytest.approx(10, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLING)
@pytest.mark.parametrize("box", ["iso", "xyz", "triclinic"])
def test_volumes_at_two_pressures_are_as_likely_as_they_must_be(name, box):
    """ln p₁(V) / p₂(V) is a line of slope (P₂ - P₁) / k T: M. R. Shirts, J. Chem. Theory Comput. 9 (2013) 909.

    Maximum likelihood by logistic regression; samples are taken as independent two correlation times apart. Five
    standard errors: false alarms 6e-7.
    """
    atoms, kelvin, pressures = warmed(pfcc(3, 3, 3, a=5.35), 50), 50, (0.0, 0.05 * GPA)
    volumes = []
    for p in pressures:
        integrator = barostat(name, atoms, kelvin, p, 4 * FS, box, period=500 * FS, compressibility=140.0)
        _, cells = cells_of(atoms, smooth_argon(), integrator, 30000, every=50)
        v = np.abs(np.linalg.det(cells[60:]))
        volumes.append(v[:: max(1, math.ceil(2 * correlation_time(v)))])
    slope, error = logistic_slope(*volumes)
    assert slope == pytest.approx((pressures[1] - pressures[0]) / (KB * kelvin), abs=5 * error)
    assert error < 0.25 * slope  # otherwise nothing was learned


def correlation_time(series: np.ndarray) -> float:
    """Integrated, in samples."""
    x = series - series.mean()
    rho = np.array([(x[: len(x) - k] * x[k:]).mean() for k in range(len(x) // 10)]) / x.var()
    stop = int(np.argmax(rho < 0.05)) or len(rho)
    return 0.5 + float(rho[1:stop].sum())


def logistic_slope(low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """Of the log odds that a volume was seen at the low pressure, with its standard error."""
    x = np.concatenate([low, high])
    y = np.concatenate([np.ones(len(low)), np.zeros(len(high))])
    design = np.stack([np.ones_like(x), (x - x.mean()) / x.std()], axis=1)
    coefficients = np.zeros(2)
    for _ in range(50):
        p = 1 / (1 + np.exp(-design @ coefficients))
        fisher = design.T @ (design * (p * (1 - p))[:, None])
        coefficients += np.linalg.solve(fisher, design.T @ (y - p))
    return coefficients[1] / x.std(), np.sqrt(np.linalg.inv(fisher)[1, 1]) / x.std()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mtk", "stochastic"])
def test_a_crystal_under_pressure_stays_one(name):  # ASE's a = 5.369 Å
    atoms = warmed(bulk("Ar", "fcc", a=5.30, cubic=True).repeat(4), 80)
    integrator = barostat(name, atoms, 40, 1e-4 * GPA, 4 * FS, period=1000 * FS, compressibility=10.0)
    _, cells = cells_of(atoms, argon(), integrator, 6000, every=10)
    assert np.cbrt(np.abs(np.linalg.det(cells[200:]))).mean() / 4 == pytest.approx(5.369, abs=0.02)


@pytest.mark.parametrize("name", ["mtk", "stochastic"])
def test_each_component_of_the_pressure_is_held(name):
    """A crystal under unlike pressures from its three sides and shear takes on just that stress, at low temperature."""
    wanted = np.array([[0.10, 0.01, 0.0], [0.01, 0.05, -0.02], [0.0, -0.02, 0.0]]) * GPA
    kelvin = 2 if name == "mtk" else 0.1
    atoms = warmed(bulk("Ar", "fcc", a=5.30, cubic=True).repeat(3), 2 * kelvin)
    integrator = barostat(name, atoms, kelvin, wanted, 5 * FS, "triclinic", period=500 * FS, compressibility=50.0)
    run = simulate(atoms, smooth_argon(), integrator, 3000, watch=20)
    kinetic = 2 / 3 * run.thermo[-1].kinetic_eV / run.thermo[-1].volume_A3 * np.eye(3)
    found = np.mean([-t.stress.numpy() + kinetic for t in run.thermo[75:]], axis=0)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=0.004 * GPA)


# What stays


@every_barostat
def test_momentum_stays_zero_and_fixed_components_where_they_are(name):
    atoms = warmed(pfcc(3, 3, 3), 60)
    run = simulate(atoms, argon(), barostat(name, atoms, 60, 0.1 * GPA), 60)
    if "langevin" not in name:
        assert np.abs(run.momenta[-1].sum(axis=0)).max() < 1e-11
    mobile = np.ones((len(atoms), 3), bool)
    mobile[:10] = False
    mobile[10, 2] = False
    atoms.set_momenta(atoms.get_momenta() * mobile)
    for box in ("iso", "triclinic"):
        integrator = barostat(name, atoms, 60, 0.1 * GPA, box=box, n_dof=int(mobile.sum()))
        run = simulate(atoms, argon(), integrator, 60, mobile=mobile)
        assert (run.positions[-1] == run.positions[0])[~mobile].all()
        assert (run.positions[-1] != run.positions[0])[mobile].all()
        assert (run.momenta[-1] == 0)[~mobile].all()
        assert np.abs(run.sim.state.cell.numpy() - atoms.cell.array).max() > 1e-3


@pytest.mark.parametrize("name", ["nph", "mtk", "stochastic", "berendsen"])
def test_what_is_conserved_is_so_beside_fixed_atoms_too(name):
    """They do not follow the cell, and the work of the forces on them is none of the barostat's: second order again."""
    atoms = argon_liquid(3)
    mobile = np.ones((len(atoms), 3), bool)
    mobile[:20] = False
    mobile[20:30, 1] = False
    atoms.set_momenta(atoms.get_momenta() * mobile)
    fluctuation = {}
    for timestep, n_steps in ((8 * FS, 150), (4 * FS, 300)):
        integrator = barostat(name, atoms, 95, 0.05 * GPA, timestep, "triclinic", n_dof=int(mobile.sum()))
        run = simulate(atoms, smooth_argon(), integrator, n_steps, watch=n_steps // 75, mobile=mobile)
        conserved = np.array([t.conserved_eV for t in run.thermo]) / len(atoms)
        total = np.array([t.total_eV for t in run.thermo]) / len(atoms)
        fluctuation[timestep] = conserved.std()
        assert np.abs(conserved - conserved[0]).max() < 0.02 * np.ptp(total)
    assert fluctuation[4 * FS] < 0.6 * fluctuation[8 * FS]


@every_barostat
def test_axes_that_are_not_named_do_not_move(name):
    atoms = warmed(pfcc(3, 3, 3), 60)
    for box, couple in (("z", None), ("xy", None), ("xyz", "xy"), ("xy", "xy")):
        integrator = barostat(name, atoms, 60, 0.1 * GPA, box=box, couple=couple)
        cell = simulate(atoms, argon(), integrator, 30).sim.state.cell.numpy()
        ratio = cell.diagonal() / atoms.cell.lengths()
        assert (cell - np.diag(cell.diagonal()) == 0).all()
        for axis, value in zip("xyz", ratio, strict=True):
            assert (abs(value - 1) > 1e-5) == (axis in box)
        assert (abs(ratio[0] / ratio[1] - 1) < 1e-12) == (couple == "xy" or box == "z")


def test_open_axes_are_never_scaled():
    """A slab whose vacuum is open, turned so that no Cartesian axis is its normal: only its plane stretches."""
    atoms = warmed(pfcc(3, 3, 2), 30)
    atoms.pbc = (True, True, False)
    atoms.rotate(30, "y", rotate_cell=True)
    normal = np.cross(*atoms.cell.array[:2])
    normal /= np.linalg.norm(normal)
    run = simulate(atoms, smooth_argon(), barostat("nph", atoms, 0, 0.0, FS, period=200 * FS), 400, watch=8)
    before, after = atoms.cell.array, run.sim.state.cell.numpy()
    np.testing.assert_allclose(after[:2] @ normal, 0, atol=1e-10)
    stretch = np.linalg.norm(after, axis=1) / np.linalg.norm(before, axis=1)
    assert abs(stretch[0] - 1) > 1e-3
    assert stretch[0] == pytest.approx(stretch[1], rel=1e-12)
    assert (after[2] == before[2]).all()
    conserved = np.array([t.conserved_eV for t in run.thermo]) / len(atoms)
    total = np.array([t.total_eV for t in run.thermo]) / len(atoms)
    assert np.ptp(conserved) < 0.01 * np.ptp(total)


@pytest.mark.parametrize(
    ("pbc", "box", "words"),
    [
        ((False, False, False), "iso", "periodic axis"),
        ((True, True, False), "triclinic", "three periodic"),
        ((True, True, False), "xyz", "not periodic along z"),
    ],
)
def test_a_cell_that_cannot_move_so_is_refused(pbc, box, words):
    atoms = pfcc(2, 2, 2)
    atoms.pbc = pbc
    with pytest.raises(InputError, match=words):
        motion_of(atoms, box)


def test_a_model_without_stress_is_refused():
    atoms = warmed(pfcc(2, 2, 2), 30)
    with pytest.raises(InputError, match="no virial"):
        simulate(atoms, WithoutVirial(), barostat("mtk", atoms, 30, 0.0), 1)


def test_a_barostat_that_has_lost_hold_stops_the_run():
    atoms = warmed(pfcc(2, 2, 2), 30)
    with pytest.raises(SimulationError, match="--barostat-time"):
        simulate(atoms, argon(), barostat("mtk", atoms, 30, 100 * GPA, period=1 * FS), 50)


def test_a_box_that_flies_apart_stops_the_run():
    atoms = warmed(far_in_a_box(4, 5000.0), 300)
    integrator = barostat("berendsen", atoms, 300, -1 * GPA, FS, period=1000 * FS)
    with pytest.raises(SimulationError, match="--pressure"):
        volumes_of_a_gas(atoms, integrator, 5000, every=100)


# Cells that change


def test_a_cell_that_tilts_far_is_described_by_shorter_vectors_of_its_lattice():
    atoms = pfcc(3, 3, 3)
    shear = np.zeros((3, 3))
    shear[0, 1] = shear[1, 0] = 0.012
    run = simulate(atoms, argon(), Deforming(FS, lambda step: shear), 50, watch=10)
    state = run.sim.state
    assert state.n_lattice_changes > 0
    end = atoms.copy()
    end.positions, end.cell = run.positions[-1], state.cell.numpy()
    assert evaluate(end, argon()).energy == pytest.approx(run.thermo[-1].potential_eV, rel=1e-11)
    plain = atoms.copy()  # never described anew
    total, _ = exponential(50 * shear)
    plain.positions, plain.cell = run.positions[-1], atoms.cell.array @ total
    assert evaluate(plain, argon()).energy == pytest.approx(run.thermo[-1].potential_eV, rel=1e-11)
    assert not geometry.is_tilted(state.cell, state.pbc)
    assert np.linalg.norm(state.cell.numpy(), axis=1).prod() < 0.8 * plain.cell.lengths().prod()
    assert volume(state.cell, state.pbc) == pytest.approx(plain.get_volume(), rel=1e-12)


@every_barostat
def test_the_panel_names_it_and_its_parameters(name):
    text = barostat(name, pfcc(2, 2, 2), 90, 0.1 * GPA).describe()
    for word in ("2 fs", "0.1 GPa", "500 fs", "iso", *(["90 K"] if name != "nph" else [])):
        assert word in text
    assert text.startswith("NPH" if name == "nph" else "NPT")


# Long runs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mtk", "nph"])
def test_what_is_conserved_does_not_drift_in_ten_thousand_steps(name):
    """By less than 1e-6 of the kinetic energy per ps, within four errors of the slope; 2 fs."""
    atoms = argon_liquid(3)
    integrator = barostat(name, atoms, 95, 0.01 * GPA, 2 * FS, period=1000 * FS)
    run = simulate(atoms, smooth_argon(), integrator, 10000, watch=10)
    conserved = np.array([t.conserved_eV for t in run.thermo]) / run.kinetic_energies.mean()
    time = np.array([t.time_ps for t in run.thermo])
    parts = conserved[1:].reshape(10, -1).mean(axis=1)
    fit = stats.linregress(time[1:].reshape(10, -1).mean(axis=1), parts)
    assert abs(fit.slope) < max(1e-6, 4 * fit.stderr)
    assert abs(fit.slope) < 5e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mtk", "stochastic"])
@pytest.mark.parametrize("system", ["argon", "copper"])
def test_the_box_does_not_drift_in_fifty_thousand_steps(name, system):
    """The slope of the volume over blocks is zero within five of its errors, and small beside the fluctuation.

    Argon under 0.05 GPa: at no pressure the liquid of a short cutoff is near to boiling, and its volume wanders far.
    """
    if system == "argon":
        atoms, model, kelvin, softness, pressure = argon_liquid(3), smooth_argon(), 95, 10.0, 0.05
    else:
        atoms, kelvin, softness, pressure = warmed(bulk("Cu", a=3.615, cubic=True) * 3, 600), 300, 1.0, 0.0
        model = EAM.from_file(DATA / "potentials" / "Cu_mishin1.eam.alloy", (29,))
    integrator = barostat(name, atoms, kelvin, pressure * GPA, 2 * FS, period=1000 * FS, compressibility=softness)
    _, cells = cells_of(atoms, model, integrator, 50000, every=50)
    volumes = np.abs(np.linalg.det(cells[200:]))
    blocks = volumes[: len(volumes) // 20 * 20].reshape(20, -1).mean(axis=1)
    fit = stats.linregress(np.arange(20), blocks)
    assert abs(fit.slope) < 5 * fit.stderr
    assert abs(fit.slope) * 20 < 3 * volumes.std()
    assert volumes.std() < 0.05 * volumes.mean()
