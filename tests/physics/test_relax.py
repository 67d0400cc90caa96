"""Minima that others know: published energies and lattice constants, ASE's minima of the same potential."""

from __future__ import annotations

import ase.calculators.emt
import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import add_adsorbate, bulk, fcc111
from ase.constraints import FixAtoms
from ase.filters import FrechetCellFilter
from ase.optimize import BFGS

from mdrun import units
from mdrun.backends.on_torch import TorchBackend
from mdrun.potentials.registry import load_model
from tests.ranks.cases import emt
from tests.relaxing import LENNARD_JONES_MINIMA, cluster, disturbed, lennard_jones_units, relaxed
from tests.systems import DATA, evaluate, species_of

OPTIMIZERS = ("lbfgs", "fire")
# Lattice constant (Å) and energy (eV/atom), and how far they are told. Y. Mishin et al., Phys. Rev. B 63 (2001) 224106;
# Stillinger-Weber: 2 ε an atom at a bond of 2^(1/6) σ, by its construction; J. Tersoff, Phys. Rev. B 38 (1988) 9902.
CRYSTALS = {
    "copper, EAM": (f"eam:{DATA}/potentials/Cu_mishin1.eam.alloy", "Cu", "fcc", 3.615, -3.54, 2e-4, 3e-4),
    "silicon, Stillinger-Weber": ("sw", "Si", "diamond", 5.4309497, -4.3366, 2e-6, 1e-6),
    "silicon, Tersoff": ("tersoff", "Si", "diamond", 5.432, -4.6297, 1e-3, 1e-4),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("n", LENNARD_JONES_MINIMA)
def test_clusters_reach_their_published_minima(n, optimizer):
    found = relaxed(cluster(n, rattle=0.05), lennard_jones_units(), optimizer, fmax=1e-5)
    assert found.is_converged
    assert found.enthalpy == pytest.approx(LENNARD_JONES_MINIMA[n], abs=1e-6)


def test_a_cluster_far_from_its_minimum_goes_downhill_only():
    """Steps along a direction may be tried and shortened; where directions begin, the energy falls."""
    atoms = cluster(38, rattle=0.25, seed=5)
    found = relaxed(atoms, lennard_jones_units(), fmax=1e-4)
    assert found.is_converged
    assert found.enthalpies[0] > 0  # atoms overlap
    steps = np.linalg.norm(np.diff(found.positions, axis=0), axis=2)
    assert steps.max() <= 0.2 + 1e-12
    lowest = np.minimum.accumulate(found.enthalpies)
    assert (found.enthalpies[1:] <= lowest[:-1]).mean() > 0.9
    assert found.enthalpy == lowest[-1]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", CRYSTALS)
def test_a_disturbed_crystal_finds_its_lattice(name, optimizer):
    """Sheared and stretched by up to 13 %: the cell is cubic again, though turned, and no atom is left displaced."""
    spec, symbol, lattice, a, energy, a_tolerance, energy_tolerance = CRYSTALS[name]
    atoms = disturbed(symbol, lattice, a, 3 if lattice == "fcc" else 2)
    n = round((len(atoms) / (4 if lattice == "fcc" else 8)) ** (1 / 3))
    found = relaxed(atoms, load_model(spec, species_of(atoms)), optimizer, cell="full")
    assert found.is_converged
    metric = found.cell @ found.cell.T
    assert metric == pytest.approx((n * a) ** 2 * np.eye(3), abs=(n * a) ** 2 * max(2 * a_tolerance / a, 1e-5))
    assert found.enthalpy / len(atoms) == pytest.approx(energy, abs=energy_tolerance)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_matter_relaxes_to_the_pressure_it_is_under(optimizer):
    atoms = disturbed("Cu", "fcc", 3.615, 3)
    model = load_model(CRYSTALS["copper, EAM"][0], (29,))
    found = relaxed(atoms, model, optimizer, cell="full", pressure_GPa=20.0)
    assert found.is_converged
    end = Atoms("Cu108", positions=found.positions[-1], cell=found.cell, pbc=True)
    assert evaluate(end, model).stress / units.GPA == pytest.approx(-20.0 * np.eye(3), abs=1e-3)
    # The same from energies alone: P = -dE/dV of the perfect crystal.
    energies = []
    for scale in (1 - 1e-4, 1 + 1e-4):
        cubic = bulk("Cu", "fcc", a=(found.volume / 27) ** (1 / 3) * scale, cubic=True)
        energies.append(evaluate(cubic, model).energy * 27)
    slope = -(energies[1] - energies[0]) / (6e-4 * found.volume)
    assert slope / units.GPA == pytest.approx(20.0, abs=0.01)


def slab_with_adatom() -> Atoms:
    atoms = fcc111("Cu", (3, 3, 4), a=3.7, vacuum=8.0)
    add_adsorbate(atoms, "Cu", 2.2, "fcc", offset=(1, 1))
    atoms.pbc = (True, True, False)
    atoms.rattle(0.03, seed=6)
    return atoms


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_slab_relaxes_as_ase_relaxes_it(optimizer):
    """The lowest layer is held: it keeps its bits."""
    atoms = slab_with_adatom()
    held = atoms.positions[:, 2] < atoms.positions[:, 2].min() + 1.0
    found = relaxed(atoms, emt(atoms), optimizer, fmax=1e-3, mobile=np.repeat(~held[:, None], 3, axis=1))
    theirs = atoms.copy()
    theirs.set_constraint(FixAtoms(mask=held))
    theirs.calc = ase.calculators.emt.EMT()
    BFGS(theirs, logfile=None).run(fmax=1e-3, steps=500)
    assert found.is_converged
    assert held.sum() == 9
    assert np.array_equal(found.positions[-1][held], atoms.positions[held])
    assert found.enthalpy == pytest.approx(theirs.get_potential_energy(), abs=1e-6)
    assert found.positions[-1] == pytest.approx(theirs.positions, abs=2e-3)


def test_a_slab_strains_along_its_periodic_axes_alone_as_in_ase():
    atoms = slab_with_adatom()
    found = relaxed(atoms, emt(atoms), fmax=3e-3, cell="full", stress_max_GPa=1e-3)
    theirs = atoms.copy()
    theirs.calc = ase.calculators.emt.EMT()
    BFGS(FrechetCellFilter(theirs, mask=[1, 1, 0, 0, 0, 1]), logfile=None).run(fmax=3e-3, steps=300)
    assert found.is_converged
    assert np.array_equal(found.cell[2], atoms.cell.array[2])
    assert found.enthalpy == pytest.approx(theirs.get_potential_energy(), abs=1e-5)
    assert np.linalg.norm(found.cell[:2], axis=1) == pytest.approx(theirs.cell.lengths()[:2], abs=2e-3)
    assert np.linalg.norm(found.cell[0]) < np.linalg.norm(atoms.cell.array[0]) - 0.1


def test_a_mask_holds_the_strains_that_it_does_not_name():
    atoms = disturbed("Cu", "fcc", 3.615, 3, shear=0.0)
    model = load_model(CRYSTALS["copper, EAM"][0], (29,))
    found = relaxed(atoms, model, cell="full", mask=("xx", "yy"))
    assert found.is_converged
    assert found.cell[2] == pytest.approx(atoms.cell.array[2], abs=1e-12)
    assert found.cell - np.diag(np.diag(found.cell)) == pytest.approx(np.zeros((3, 3)), abs=1e-12)
    end = Atoms("Cu108", positions=found.positions[-1], cell=found.cell, pbc=True)
    stress = evaluate(end, model).stress / units.GPA
    assert np.diag(stress)[:2] == pytest.approx([0, 0], abs=2e-4)
    assert stress[2, 2] > 3  # stretched still


def test_a_change_of_shape_keeps_the_volume():
    atoms = disturbed("Cu", "fcc", 3.615, 3)
    model = load_model(CRYSTALS["copper, EAM"][0], (29,))
    found = relaxed(atoms, model, cell="shape")
    assert found.is_converged
    assert found.volume == pytest.approx(atoms.get_volume(), rel=1e-12)
    end = Atoms("Cu108", positions=found.positions[-1], cell=found.cell, pbc=True)
    stress = evaluate(end, model).stress / units.GPA
    assert stress - np.eye(3) * np.trace(stress) / 3 == pytest.approx(np.zeros((3, 3)), abs=3e-4)
    assert np.trace(stress) / 3 > 5


def test_an_isotropic_cell_keeps_its_shape():
    atoms = disturbed("Si", "diamond", 5.431, 2)
    found = relaxed(atoms, load_model("sw", (14,)), cell="isotropic", fmax=1e-3)
    assert found.is_converged
    ratio = found.cell @ np.linalg.inv(atoms.cell.array)
    assert ratio == pytest.approx(ratio[0, 0] * np.eye(3), abs=1e-12)
    assert ratio[0, 0] < 0.99
    end = Atoms("Si64", positions=found.positions[-1], cell=found.cell, pbc=True)
    assert np.trace(evaluate(end, load_model("sw", (14,))).stress) / units.GPA == pytest.approx(0, abs=1e-3)


def test_an_energy_that_steps_at_the_cutoff_hinders_nobody():
    """Lennard-Jones cut off and no more: pairs that come and go change the energy, and no force."""
    atoms = disturbed("Ar", "fcc", 5.26, 3, rattle=0.2)
    model = load_model("lj:epsilon=0.0104,sigma=3.4,cutoff=8.5", (18,))
    for optimizer in OPTIMIZERS:
        found = relaxed(atoms, model, optimizer, fmax=1e-5, cell="full", most=300)
        assert found.is_converged
        metric = found.cell @ found.cell.T
        assert metric == pytest.approx(metric[0, 0] * np.eye(3), abs=0.05)
        assert metric[0, 0] ** 0.5 / 3 == pytest.approx(5.27, abs=0.01)


def test_torch_finds_the_same_minimum():
    """One operation at a time: compiled ones take a minute to make."""
    atoms = disturbed("Si", "diamond", 5.431, 2)
    model = load_model("sw", (14,), "double", "torch")
    with torch.compiler.set_stance("force_eager"):
        for optimizer in OPTIMIZERS:
            found = relaxed(
                atoms, model, optimizer, fmax=1e-3, cell="full", stress_max_GPa=1e-3, backend=TorchBackend("cpu")
            )
            assert found.is_converged
            assert found.enthalpy / len(atoms) == pytest.approx(-4.3366, abs=1e-6)
