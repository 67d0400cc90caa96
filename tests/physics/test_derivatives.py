"""Forces and stress against finite differences of the energy, for every model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from ase import Atoms

from mdrun.cell import completed
from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.potentials.base import ForceModel
from mdrun.potentials.eam import EAM
from mdrun.potentials.emt import EMT
from mdrun.potentials.lennard_jones import make_lennard_jones
from mdrun.potentials.stillinger_weber import StillingerWeber
from mdrun.potentials.tersoff import Tersoff
from mdrun.scope import Scope
from tests.physics.systems import smooth_argon
from tests.systems import DATA, argon, evaluate, pfcc, species_of, state_of

# So small that no pair crosses a cutoff in between, where the models have a kink or a step, and that the knots of
# EAM's splines do not matter; so large that rounding does not.
STEP = 1e-5
TOLERANCE = 5e-8  # of the largest component, or of 1 eV/Å or 1 eV


def alloy(numbers: list[int], a: float, seed: int = 1) -> Atoms:
    atoms = pfcc(2, 2, 2, a)
    atoms.numbers = np.random.default_rng(seed).choice(numbers, 32)
    return atoms


def small_and_skewed(numbers: list[int], length: float) -> Atoms:
    """Every height of the cell is well below the cutoff: atoms meet many images, their own among them."""
    cell = np.array([[1.0, 0, 0], [0.4, 0.95, 0], [-0.3, 0.35, 0.9]]) * length
    fractions = [[0, 0, 0], [0.52, 0.47, 0.03], [0.49, 0.02, 0.54], [-0.04, 0.51, 0.46]]
    return Atoms(numbers=np.resize(numbers, 4), scaled_positions=fractions, cell=cell, pbc=True)


def open_along(atoms: Atoms, *axes: int) -> Atoms:
    atoms.pbc = [axis not in axes for axis in range(3)]
    return atoms


def mixture(n_types: int) -> ForceModel:
    own = [(0.0104, 3.40), (0.0140, 3.65), (0.0031, 2.74)][:n_types]
    pairs = {(a, b): ((own[a][0] * own[b][0]) ** 0.5, (own[a][1] + own[b][1]) / 2 + 0.05 * (a != b))
             for a in range(n_types) for b in range(a, n_types)}  # fmt: skip
    return make_lennard_jones(pairs, n_types, 7.5, shift=True, name="mixture")


def eam(file: str):
    return lambda numbers: EAM.from_file(DATA / "potentials" / file, numbers)


def three_body(model, file: str):
    return lambda numbers: model.load(DATA / "potentials" / file, numbers)


CASES = {
    "lj_bulk": (lambda: pfcc(2, 2, 2), lambda _: argon(8.5, shift=True)),
    "lj_skewed": (lambda: small_and_skewed([18], 5.6), lambda _: argon(8.5, shift=True)),
    "lj_slab": (lambda: open_along(pfcc(2, 2, 2), 2), lambda _: argon(8.5, shift=True)),
    "lj_wire": (lambda: open_along(pfcc(2, 2, 2), 0, 2), lambda _: argon(8.5, shift=True)),
    "lj_cluster": (lambda: open_along(pfcc(2, 2, 2), 0, 1, 2), lambda _: argon(8.5, shift=True)),
    "lj_mixture": (lambda: alloy([10, 18, 36], 5.5), lambda n: mixture(len(n))),
    "lj_mixture_skewed": (lambda: small_and_skewed([18, 36], 5.9), lambda n: mixture(len(n))),
    "smooth": (lambda: pfcc(2, 2, 2), lambda _: smooth_argon()),
    "emt_copper": (lambda: alloy([29], 3.6), EMT.for_species),
    "emt_alloy": (lambda: alloy([29, 47, 79], 3.95), EMT.for_species),
    "emt_skewed": (lambda: small_and_skewed([13, 28], 3.8), EMT.for_species),
    "emt_slab": (lambda: open_along(alloy([29, 78], 3.8), 1), EMT.for_species),
    "eam_alloy": (lambda: alloy([28, 29], 3.6), eam("CuNi.eam.alloy")),
    "eam_alloy_skewed": (lambda: small_and_skewed([28, 29], 3.7), eam("CuNi.eam.alloy")),
    "eam_slab": (lambda: open_along(alloy([29], 3.6), 2), eam("Cu_mishin1.eam.alloy")),
    "eam_funcfl": (lambda: alloy([29], 3.6), eam("Cu_u3.eam")),
    "eam_funcfl_cluster": (lambda: open_along(alloy([29], 3.6), 0, 1, 2), eam("Cu_u3.eam")),
    "eam_finnis_sinclair": (lambda: alloy([26], 3.6), eam("Fe_mm.eam.fs")),
    "eam_finnis_sinclair_skewed": (lambda: small_and_skewed([26], 3.6), eam("Fe_mm.eam.fs")),
    "sw_mixture": (lambda: alloy([6, 14, 32], 4.3), three_body(StillingerWeber, "mixed.sw")),
    "sw_skewed": (lambda: small_and_skewed([6, 14, 32], 3.9), three_body(StillingerWeber, "mixed.sw")),
    "sw_slab": (lambda: open_along(alloy([14], 4.6), 1), three_body(StillingerWeber, "Si.sw")),
    "sw_cluster": (lambda: open_along(alloy([6, 14], 4.3), 0, 1, 2), three_body(StillingerWeber, "mixed.sw")),
    "tersoff_mixture": (lambda: alloy([6, 14, 32], 4.0), three_body(Tersoff, "mixed.tersoff")),
    "tersoff_skewed": (lambda: small_and_skewed([6, 14, 32], 3.4), three_body(Tersoff, "mixed.tersoff")),
    "tersoff_slab": (lambda: open_along(alloy([6, 14], 3.8), 1), three_body(Tersoff, "SiC.tersoff")),
    "tersoff_cluster": (lambda: open_along(alloy([14], 4.2), 0, 1, 2), three_body(Tersoff, "Si.tersoff")),
}


@pytest.fixture(params=CASES)
def case(request) -> tuple[Atoms, ForceModel]:
    make_atoms, make_model = CASES[request.param]
    atoms = make_atoms()
    return atoms, make_model(species_of(atoms))


def test_forces_are_minus_the_derivative_of_the_energy(case):
    atoms, model = case
    forces = evaluate(atoms, model).forces
    for atom, axis in itertools.product((0, len(atoms) // 2, len(atoms) - 1), range(3)):
        energies = []
        for sign in (1, -1):
            moved = atoms.copy()
            moved.positions[atom, axis] += sign * STEP
            energies.append(evaluate(moved, model).energy)
        slope = (energies[0] - energies[1]) / (2 * STEP)
        assert forces[atom, axis] == pytest.approx(-slope, abs=TOLERANCE * max(1, np.abs(forces).max()))


def virial_of(atoms: Atoms, model: ForceModel) -> np.ndarray:
    """Also where no volume turns it into a stress."""
    state, domain = state_of(atoms), Domain(Comm(), model.cutoff, 1.0)
    with Scope(model, domain, len(atoms)) as scope:
        domain.follow(state)
        virial = scope(domain, totals=True).virial
    assert virial is not None
    return virial.numpy()


def test_the_virial_is_minus_the_derivative_of_the_energy_by_strain(case):
    atoms, model = case
    virial = virial_of(atoms, model)
    np.testing.assert_allclose(virial, virial.T, rtol=0, atol=1e-12 * np.abs(virial).max())
    cell = completed(torch.from_numpy(atoms.cell.array), tuple(atoms.pbc)).numpy()
    for a, b in itertools.product(range(3), range(3)):
        energies = []
        for sign in (1, -1):
            strain = np.eye(3)
            strain[a, b] += sign * STEP
            strained = Atoms(atoms.numbers, positions=atoms.positions @ strain, cell=cell @ strain, pbc=atoms.pbc)
            energies.append(evaluate(strained, model).energy)
        slope = (energies[0] - energies[1]) / (2 * STEP)
        assert virial[a, b] == pytest.approx(-slope, abs=TOLERANCE * max(1, np.abs(virial).max()))


def test_stress_is_the_virial_over_the_volume_with_ases_sign(case):
    atoms, model = case
    if not all(atoms.pbc):
        pytest.skip("no volume")
    np.testing.assert_allclose(
        evaluate(atoms, model).stress, -virial_of(atoms, model) / atoms.get_volume(), rtol=1e-12, atol=1e-18
    )


def test_forces_sum_to_zero(case):
    atoms, model = case
    forces = evaluate(atoms, model).forces
    np.testing.assert_allclose(forces.sum(axis=0), 0, atol=1e-12 * max(1, np.abs(forces).max()))


def test_a_rotation_turns_forces_and_stress_with_it(case):
    atoms, model = case
    rotation, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))
    cell = completed(torch.from_numpy(atoms.cell.array), tuple(atoms.pbc)).numpy()
    turned = Atoms(atoms.numbers, positions=atoms.positions @ rotation, cell=cell @ rotation, pbc=atoms.pbc)
    before, after = evaluate(atoms, model), evaluate(turned, model)
    scale = max(1, np.abs(before.forces).max())
    assert after.energy == pytest.approx(before.energy, rel=1e-12)
    np.testing.assert_allclose(after.forces, before.forces @ rotation, rtol=0, atol=1e-12 * scale)
    if before.stress is not None:
        expected = rotation.T @ before.stress @ rotation
        np.testing.assert_allclose(after.stress, expected, rtol=0, atol=1e-13 * scale)
