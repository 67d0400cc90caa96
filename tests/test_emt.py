"""Effective medium theory against ASE's own calculator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk, fcc111
from ase.calculators.emt import EMT as AseEMT
from ase.cluster import Icosahedron

from mdrun.errors import InputError
from mdrun.potentials.emt import EMT
from tests.systems import empty_domain, evaluate, listed_pair, species_of


def rattled(atoms: Atoms) -> Atoms:
    atoms.rattle(0.1, seed=3)
    return atoms


def alloy(numbers: list[int], a: float) -> Atoms:
    atoms = bulk("Cu", a=a, cubic=True) * (3, 3, 3)
    atoms.numbers = np.random.default_rng(5).choice(numbers, len(atoms))
    return atoms


def slab() -> Atoms:
    atoms = fcc111("Al", (4, 4, 4), vacuum=8.0)
    atoms.pbc = (True, True, False)
    return atoms


SYSTEMS = {
    "copper": lambda: bulk("Cu", a=3.6, cubic=True) * (4, 4, 4),
    "copper_gold": lambda: alloy([29, 79], 3.85),
    "aluminium_nickel_platinum": lambda: alloy([13, 28, 78], 3.9),
    "every_species": lambda: alloy([13, 29, 47, 79, 28, 46, 78, 1, 6, 7, 8], 4.0),
    "slab": slab,
    "cluster": lambda: Icosahedron("Pt", 2),
    "cell_smaller_than_the_cutoff": lambda: bulk("Ni"),
    "skewed_small_cell": lambda: Atoms("CuAg", scaled_positions=[[0, 0, 0], [0.5, 0.4, 0.5]], pbc=True,
                                       cell=[[2.6, 0, 0], [1.1, 2.7, 0], [-0.9, 0.8, 5.0]]),
    "pair_at_the_cutoffs_step": lambda: Atoms("CuAu", positions=[[0, 0, 0], [0, 0, 5.8]]),
}  # fmt: skip


@pytest.mark.parametrize("name", SYSTEMS)
def test_energy_forces_and_stress_are_those_of_ase(name):
    atoms = SYSTEMS[name]() if name.startswith("pair") else rattled(SYSTEMS[name]())
    result = evaluate(atoms, EMT.for_species(species_of(atoms)))
    atoms.calc = AseEMT()
    assert result.energy == pytest.approx(atoms.get_potential_energy(), rel=1e-10, abs=1e-12)
    np.testing.assert_allclose(result.forces, atoms.get_forces(), rtol=0, atol=1e-11)
    if all(atoms.pbc):
        np.testing.assert_allclose(result.stress, atoms.get_stress(voigt=False), rtol=0, atol=1e-13)
    else:
        assert result.stress is None


@pytest.mark.parametrize("positions", [[[0, 0, 0]], [[0, 0, 0], [0, 0, 8.0]]])
def test_atoms_without_neighbors_have_ases_energy_and_no_force(positions):
    atoms = Atoms("CuAu"[: 2 * len(positions)], positions=positions)
    result = evaluate(atoms, EMT.for_species(species_of(atoms)))
    atoms.calc = AseEMT()
    assert result.energy == atoms.get_potential_energy()
    assert not result.forces.any()


def test_cutoff_does_not_depend_on_the_species_present():
    assert EMT.for_species((29,)).cutoff == EMT.for_species((13, 47)).cutoff


@pytest.mark.parametrize("distance", [0.0, np.nan])
def test_impossible_positions_show_in_the_forces(distance):
    assert torch.isnan(EMT.for_species((29,))(listed_pair(distance), totals=True).forces[:, 0]).all()


def test_forces_without_totals_are_the_same_and_nothing_else_comes():
    model = EMT.for_species((29,))
    alone, full = (model(listed_pair(2.3), totals) for totals in (False, True))
    assert alone.energy is None
    assert alone.virial is None
    torch.testing.assert_close(alone.forces, full.forces, rtol=1e-13, atol=0)


def test_a_rank_that_owns_nothing_gets_empty_forces():
    for numbers in ((29,), (29, 79)):
        result = EMT.for_species(numbers)(empty_domain(), totals=True)
        assert result.forces.shape == (0, 3)
        assert result.energy == 0
        assert not result.virial.any()


def test_species_that_ase_does_not_know_are_named():
    with pytest.raises(InputError, match="Fe, Xe; it knows Al, Cu"):
        EMT.for_species((26, 29, 54))


def test_toy_species_are_told_in_the_name():
    assert "H, O are toy values" in EMT.for_species((1, 8, 78)).name
    assert "toy" not in EMT.for_species((29, 79)).name
