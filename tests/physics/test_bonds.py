"""Bonds of fixed length: rigid bodies whose motion is known, what is conserved, what is sampled, ASE's trajectory.

Statistical tests have fixed seeds; ``SIGMAS`` = 5 is a false-alarm rate of 6e-7 for a comparison.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes
from ase.constraints import FixBondLengths
from ase.md.verlet import VelocityVerlet as VerletOfASE

from mdrun.comm import Comm
from mdrun.errors import InputError, SimulationError
from mdrun.integrate.bonds import Bonds, make_bonds
from mdrun.integrate.constraints import Constrained, independent_bonds
from mdrun.integrate.nvt import Andersen, Langevin, ScaledVerlet
from mdrun.integrate.thermostats import Bussi, NoseHooverChain
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.units import GPA
from tests.molecules import BetweenMolecules, bonds_between, dimers, lengths_of, triatomics, warmed
from tests.physics.systems import FS, KB, PS
from tests.physics.test_langevin import SIGMAS
from tests.systems import evaluate, free_particles, simulate, state_of


def held(bonds: Bonds) -> Constrained:
    return Constrained(bonds, Comm())


def rotor(rate: float) -> Atoms:
    """A dimer at the origin that turns about z at ``rate``."""
    atoms = Atoms("Ar2", positions=[[0.825, 0, 0], [-0.275, 0, 0]], masses=[20.0, 60.0])
    velocities = rate * np.cross([0, 0, 1.0], atoms.positions)
    atoms.set_momenta(velocities * atoms.get_masses()[:, None])
    return atoms


# Motions that are known


def test_a_free_dimer_turns_at_a_constant_rate():
    """Each step turns it by asin(ω t), since the impulse that ends the step at the length is along the bond: by ω t,
    but for a third order."""
    rate, timestep, n_steps = 2 * math.pi / (200 * FS), FS, 400
    atoms = rotor(rate)
    bonds = bonds_between(atoms, [(0, 1)])
    run = simulate(atoms, free_particles(), VelocityVerlet(timestep, held(bonds)), n_steps, watch=1)
    x, y = run.positions[:, 0, 0], run.positions[:, 0, 1]
    angle = np.unwrap(np.arctan2(y, x))
    np.testing.assert_allclose(np.diff(angle), angle[1], rtol=0, atol=1e-12)
    assert angle[1] == pytest.approx(math.asin(rate * timestep), rel=1e-12)
    np.testing.assert_allclose(run.kinetic_energies, run.kinetic_energies[0], rtol=1e-11)
    np.testing.assert_allclose(run.positions[..., 2], 0, atol=1e-15)


def test_motion_turns_back_when_momenta_do():
    atoms, bonds = triatomics(2)
    warmed(atoms, bonds, 200, 3 * 24 - 3 - 24)
    there = simulate(atoms, BetweenMolecules(3), VelocityVerlet(2 * FS, held(bonds)), 200)
    back = atoms.copy()
    back.positions = there.positions[-1]
    back.set_momenta(-there.momenta[-1])
    again = simulate(back, BetweenMolecules(3), VelocityVerlet(2 * FS, held(bonds)), 200)
    np.testing.assert_allclose(again.positions[-1], atoms.positions, rtol=0, atol=1e-9)
    np.testing.assert_allclose(again.momenta[-1], -atoms.get_momenta(), rtol=0, atol=1e-8)


class Calculated(Calculator):
    """Our model, for ASE."""

    implemented_properties = ("energy", "forces")

    def __init__(self, model) -> None:
        super().__init__()
        self.model = model

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        found = evaluate(atoms, self.model)
        self.results = {"energy": found.energy, "forces": found.forces}


def test_the_trajectory_is_that_of_ase():
    atoms, bonds = triatomics(2, apart=4.5)
    atoms, bonds = atoms[:9], bonds.chosen(np.arange(9))
    warmed(atoms, bonds, 300, 3 * 9 - 3 - 9)
    run = simulate(atoms, BetweenMolecules(3), VelocityVerlet(2 * FS, held(bonds)), 50)
    atoms.set_constraint(FixBondLengths(bonds.pairs, tolerance=1e-13))
    atoms.calc = Calculated(BetweenMolecules(3))
    VerletOfASE(atoms, 2 * FS).run(50)
    np.testing.assert_allclose(run.positions[-1], atoms.positions, rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.momenta[-1], atoms.get_momenta(), rtol=0, atol=1e-8)
    assert np.abs(run.positions[-1] - run.positions[0]).max() > 0.1


# What is conserved


@pytest.mark.parametrize("make", [dimers, triatomics])
def test_energy_errs_with_the_square_of_the_step(make):
    atoms, bonds = make(2, apart=4.5)
    n_dof = 3 * len(atoms) - 3 - len(bonds)
    warmed(atoms, bonds, 300, n_dof)
    worst = []
    for fs, n_steps in ((2.0, 200), (1.0, 400)):
        model = BetweenMolecules(len(atoms) // 8)
        run = simulate(atoms, model, VelocityVerlet(fs * FS, held(bonds)), n_steps, watch=n_steps // 200)
        worst.append(np.abs(run.total_energies - run.total_energies[0]).max())
        assert np.abs(run.momenta[-1].sum(axis=0)).max() < 1e-10
        assert np.ptp(run.kinetic_energies) > 100 * worst[-1]
    assert worst[0] / worst[1] == pytest.approx(4, abs=0.6)


@pytest.mark.parametrize(
    ("make", "name", "n_steps"),
    [
        (dimers, "nve", 5000),
        (triatomics, "langevin", 5000),
        (triatomics, "nose-hoover", 1000),
        (dimers, "andersen", 1000),
    ],
)
def test_lengths_hold_over_thousands_of_steps(make, name, n_steps):
    atoms, bonds = make(2, apart=4.5)
    atoms.positions += 1000.0  # far from the origin, where positions have fewer digits to spare
    n_dof, t = 3 * len(atoms) - 3 - len(bonds), 4 * FS
    integrator = {
        "nve": lambda m: VelocityVerlet(t, m),
        "langevin": lambda m: Langevin(t, 300, 5 / PS, 1, m),
        "nose-hoover": lambda m: ScaledVerlet(t, NoseHooverChain(300, 100 * FS), n_dof, Comm(), m),
        "andersen": lambda m: Andersen(t, 300, 5 / PS, 1, m),
    }[name](held(bonds))
    warmed(atoms, bonds, 300, n_dof)
    run = simulate(atoms, BetweenMolecules(len(atoms) // 8), integrator, n_steps, watch=500)
    assert np.abs(lengths_of(run.positions, bonds, atoms.cell.array) - bonds.lengths).max() < 1e-9
    a, b = bonds.pairs.T
    velocities = run.momenta / atoms.get_masses()[:, None]
    stretching = ((run.positions[:, a] - run.positions[:, b]) * (velocities[:, a] - velocities[:, b])).sum(axis=2)
    assert np.abs(stretching).max() < 1e-10


def test_a_bond_across_the_border_is_held_as_the_file_wraps_it():
    atoms, bonds = dimers(2, apart=4.5)
    warmed(atoms, bonds, 300, 3 * 16 - 3 - 8)
    whole = simulate(atoms, BetweenMolecules(2), VelocityVerlet(2 * FS, held(bonds)), 100)
    cells = np.array([[k % 3 - 1, k % 2, -(k % 5)] for k in range(16)])
    apart = cells[bonds.pairs[:, 0]] - cells[bonds.pairs[:, 1]]
    atoms.positions += cells @ atoms.cell.array
    torn = make_bonds(bonds.pairs, apart, bonds.lengths)
    run = simulate(atoms, BetweenMolecules(2), VelocityVerlet(2 * FS, held(torn)), 100)
    moved, expected = (r.positions[-1] - r.positions[0] for r in (run, whole))
    np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-10)


def test_a_dimer_with_a_fixed_end_is_a_pendulum():
    """Its bond holds one component less of the free atom; the fixed one keeps its bits."""
    atoms = Atoms("Ar2", positions=[[0.3, 0, 0], [1.4, 0, 0]])
    atoms.set_momenta([[0, 0, 0], [0, 1.0, 0]])
    mobile = np.array([[False] * 3, [True] * 3])
    bonds = bonds_between(atoms, [(0, 1)])
    run = simulate(atoms, free_particles(), VelocityVerlet(FS, held(bonds)), 500, watch=100, mobile=mobile)
    assert (run.positions[:, 0] == run.positions[0, 0]).all()
    np.testing.assert_allclose(np.linalg.norm(run.positions[:, 1] - run.positions[:, 0], axis=1), 1.1, atol=1e-12)
    np.testing.assert_allclose(run.kinetic_energies, run.kinetic_energies[0], rtol=1e-11)
    assert run.sim.n_dof == 2


# What is sampled


@pytest.mark.parametrize("name", ["langevin", "andersen"])
def test_every_degree_of_freedom_gets_its_share(name):
    """Free dimers: translation has 3 kT/2 and rotation 2 kT/2 each. Collisions and friction at 50/ps forget within a
    few of the 1000 steps between blocks' ends; blocks give the error, SIGMAS of it are allowed."""
    atoms, bonds = dimers(4, apart=1000.0)
    n_dof = 3 * len(atoms) - len(bonds)
    warmed(atoms, bonds, 300, n_dof)
    t, motion = 10 * FS, held(bonds)
    bath = Langevin(t, 300, 50 / PS, 3, motion) if name == "langevin" else Andersen(t, 300, 50 / PS, 3, motion)
    run = simulate(atoms, free_particles(), bath, 1600, watch=5)
    assert run.sim.n_dof == n_dof
    m = atoms.get_masses().reshape(64, 2)
    p = run.momenta[21:].reshape(-1, 64, 2, 3)
    translation = (p.sum(axis=2) ** 2).sum(axis=2) / (2 * m.sum(axis=1))
    whole = ((p**2).sum(axis=3) / (2 * m)).sum(axis=2)
    for energy, n in ((translation, 3 * 64), (whole - translation, 2 * 64), (whole, n_dof)):
        blocks = energy.sum(axis=1).reshape(20, -1).mean(axis=1) / (n * KB * 300 / 2)
        assert blocks.mean() == pytest.approx(1, abs=SIGMAS * blocks.std(ddof=1) / math.sqrt(20))
        assert blocks.std() < 0.08


def test_bussi_gives_the_temperature_that_the_degrees_of_freedom_say():
    """Mean and variance of K by blocks; SIGMAS."""
    atoms, bonds = dimers(2, apart=1000.0)
    n_dof = 3 * 16 - 3 - 8
    warmed(atoms, bonds, 300, n_dof)
    run = simulate(
        atoms, free_particles(), ScaledVerlet(10 * FS, Bussi(300, 20 * FS, 3), n_dof, Comm(), held(bonds)), 2000, 2
    )
    kinetic = run.kinetic_energies[1:] / (n_dof * KB * 300 / 2)
    assert run.sim.n_dof == n_dof
    for values, expected in ((kinetic, 1.0), ((kinetic - 1) ** 2, 2 / n_dof)):
        blocks = values.reshape(20, -1).mean(axis=1)
        assert blocks.mean() == pytest.approx(expected, abs=SIGMAS * blocks.std(ddof=1) / math.sqrt(20))


@pytest.mark.parametrize("name", ["langevin", "andersen"])
def test_the_bath_accounts_for_its_heat(name):
    atoms, bonds = dimers(2, apart=4.5)
    warmed(atoms, bonds, 300, 3 * 16 - 8)
    motion = held(bonds)
    bath = Langevin(FS, 300, 5 / PS, 1, motion) if name == "langevin" else Andersen(FS, 300, 5 / PS, 1, motion)
    run = simulate(atoms, BetweenMolecules(2), bath, 1000, watch=10)
    conserved = np.array([t.conserved_eV for t in run.thermo])
    assert np.ptp(conserved) < 0.01 * np.ptp([t.heat_eV for t in run.thermo])


# Pressure


def test_rigid_dimers_have_the_pressure_of_an_ideal_gas_of_molecules():
    """The forces in the bonds take exactly the share of the rotation: P V = 2/3 of the translation's energy, always."""
    atoms, bonds = dimers(3, apart=6.0)
    warmed(atoms, bonds, 300, 3 * 54 - 3 - 27)
    run = simulate(atoms, free_particles(), VelocityVerlet(5 * FS, held(bonds)), 100, watch=10)
    for momenta, thermo in zip(run.momenta, run.thermo, strict=True):
        of_molecules = momenta.reshape(27, 2, 3).sum(axis=1)
        translation = (of_molecules**2).sum() / (2 * 80.0)
        assert thermo.pressure_GPa * GPA * atoms.get_volume() == pytest.approx(2 / 3 * translation, rel=1e-10)


@pytest.mark.parametrize("make", [dimers, triatomics])
def test_pressure_by_atoms_is_pressure_by_molecules(make):
    """Of rigid molecules at every moment: the molecular virial, Σ R_IJ · F_IJ between centres of mass, needs no forces
    of constraints."""
    atoms, bonds = make(2, apart=4.5)
    size = len(atoms) // 8
    warmed(atoms, bonds, 300, 3 * len(atoms) - 3 - len(bonds))
    model = BetweenMolecules(size)
    run = simulate(atoms, model, Langevin(4 * FS, 300, 1 / PS, 1, held(bonds)), 200, watch=20)
    masses = atoms.get_masses().reshape(8, size, 1)
    by_molecules = []
    for positions, momenta in zip(run.positions, run.momenta, strict=True):
        atoms.positions = positions
        total = evaluate(atoms, model)
        r = positions.reshape(8, size, 3)
        centres = (masses * r).sum(axis=1, keepdims=True) / masses.sum(axis=1, keepdims=True)
        virial = -np.trace(total.stress) * atoms.get_volume()
        virial -= (total.forces.reshape(8, size, 3) * (r - centres)).sum()  # what forces do along arms
        kinetic = (momenta.reshape(8, size, 3).sum(axis=1) ** 2 / masses.sum(axis=1)).sum()
        by_molecules.append((kinetic + virial) / (3 * atoms.get_volume()) / GPA)
    by_atoms = [t.pressure_GPa for t in run.thermo]
    np.testing.assert_allclose(by_atoms, by_molecules, rtol=1e-10)
    assert np.ptp(by_atoms) > 0.1 * np.mean(by_atoms)


# What is refused


def test_bonds_that_follow_from_others_are_refused():
    straight = Atoms("Ar3", positions=[[0, 0, 0], [1, 0, 0], [2, 0, 0]])
    with pytest.raises(InputError, match="atoms 0, 1, 2 follow from each other"):
        independent_bonds(bonds_between(straight, [(0, 1), (1, 2), (0, 2)]), state_of(straight))
    rng = np.random.default_rng(3)
    five = Atoms("Ar5", positions=rng.uniform(0, 3, (5, 3)))
    every = [(i, j) for i in range(5) for j in range(i)]
    with pytest.raises(InputError, match="more bonds than"):
        independent_bonds(bonds_between(five, every), state_of(five))
    four = five[:4]
    assert len(independent_bonds(bonds_between(four, [p for p in every if 4 not in p]), state_of(four))) == 6


def test_a_molecule_of_too_many_bonds_is_refused():
    n = 303
    chain = Atoms(f"Ar{n}", positions=np.column_stack([np.arange(n), np.arange(n) % 2, np.zeros(n)]))
    pairs = [(i, i + 1) for i in range(n - 1)]
    with pytest.raises(InputError, match="molecule of atom 0 has 302 bonds"):
        independent_bonds(bonds_between(chain, pairs), state_of(chain))
    assert len(independent_bonds(bonds_between(chain, pairs[:150] + pairs[151:]), state_of(chain))) == 301


def test_a_bond_of_two_fixed_atoms_holds_nothing():
    atoms = Atoms("Ar4", positions=[[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 0, 0]])
    state = state_of(atoms)
    state.mobile = torch.tensor([[False] * 3] * 2 + [[True] * 3] * 2)
    found = independent_bonds(bonds_between(atoms, [(0, 1), (1, 2), (2, 3)]), state)
    assert found.pairs.tolist() == [[1, 2], [2, 3]]


def test_a_step_too_long_for_the_bonds_ends_the_run():
    atoms = rotor(2 * math.pi / (4 * FS))
    with pytest.raises(SimulationError, match=r"atoms 0, 1; the bond of 0 and 1 is to be 1.1 Å.*--timestep"):
        simulate(atoms, free_particles(), VelocityVerlet(FS, held(bonds_between(atoms, [(0, 1)]))), 5)
