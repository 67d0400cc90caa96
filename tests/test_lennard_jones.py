"""Lennard-Jones: the formula, ASE's calculator, the reference files, and the casebook's argon with its numbers.

Casebook energies are sums over every periodic image in float64; E is truncated, Es shifted to zero at the cutoff.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.lj import LennardJones as AseLennardJones
from ase.io import read
from ase.neighborlist import neighbor_list

from mdrun import units
from mdrun.potentials.lennard_jones import lennard_jones
from mdrun.potentials.registry import load_model
from tests.systems import DATA, argon, evaluate, pfcc, species_of

REFERENCE = DATA / "reference"
PRIMITIVE = np.array([[0, 2.63, 2.63], [2.63, 0, 2.63], [2.63, 2.63, 0]])
PAIR_4 = -0.009772162753
PAIR_38 = -0.010392899719
BULK = -0.084227784


def energies(atoms: Atoms, cutoff: float = 8.5) -> tuple[float, float]:
    return evaluate(atoms, argon(cutoff)).energy, evaluate(atoms, argon(cutoff, shift=True)).energy


# The formula


@pytest.mark.parametrize("r", [0.8, 1.0, 2 ** (1 / 6), 1.3, 2.4])
def test_force_is_the_derivative_of_the_energy(r):
    p = np.array([6.25, 4 * 1.7, 1.0, 0.01])
    step = 1e-20  # a complex step: no cancellation
    slope = lennard_jones((r + 1j * step) ** 2, p)[0].imag / step
    assert -lennard_jones(r * r, p)[1] * r == pytest.approx(slope, rel=1e-13, abs=1e-13)


def test_the_well_is_epsilon_deep_where_the_textbook_has_it():
    p = np.array([100.0, 4 * 0.3, 3.4**2, 0.0])
    assert lennard_jones(3.4**2, p)[0] == pytest.approx(0, abs=1e-16)
    energy, force = lennard_jones(3.4**2 * 2 ** (1 / 3), p)
    assert energy == pytest.approx(-0.3)
    assert force == pytest.approx(0, abs=1e-15)


# Against ASE


def skewed() -> Atoms:
    rng = np.random.default_rng(2)
    cell = [[7.0, 0, 0], [-3.0, 6.5, 0], [2.5, -2.0, 6.0]]
    grid = np.array(list(itertools.product([0, 0.5], repeat=3))) + rng.normal(scale=0.02, size=(8, 3))
    return Atoms("Ar8", scaled_positions=grid, cell=cell, pbc=True)


def open_along(*axes: int) -> Atoms:
    atoms = pfcc(2, 2, 3)
    atoms.pbc = [axis not in axes for axis in range(3)]
    return atoms


SYSTEMS = {
    "bulk": lambda: pfcc(3, 3, 3),
    "cell_below_the_cutoff": lambda: pfcc(1, 1, 1),
    "skewed_small_cell": skewed,
    "left_handed": lambda: Atoms("Ar", cell=PRIMITIVE[::-1], pbc=True),
    "slab": lambda: open_along(2),
    "wire": lambda: open_along(0, 2),
    "cluster": lambda: open_along(0, 1, 2),
    "one_atom": lambda: Atoms("Ar", positions=[[3, 2, 1]]),
}


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("skin", [0.0, 1.3])
def test_energy_forces_and_stress_are_those_of_ase(name, skin):
    atoms = SYSTEMS[name]()
    result = evaluate(atoms, argon(shift=True), skin=skin)
    atoms.calc = AseLennardJones(sigma=3.4, epsilon=0.0104, rc=8.5)
    assert result.energy == pytest.approx(atoms.get_potential_energy(), rel=1e-12, abs=1e-15)
    np.testing.assert_allclose(result.forces, atoms.get_forces(), rtol=0, atol=1e-13)
    if all(atoms.pbc):
        np.testing.assert_allclose(result.stress, atoms.get_stress(voigt=False), rtol=0, atol=1e-15)


MIXTURE = """
cutoff = 8.0
shift = true
mixing = "geometric"
[species.Ne]
epsilon = 0.0031
sigma = 2.74
[species.Ar]
epsilon = 0.0104
sigma = 3.40
[species.Kr]
epsilon = 0.0140
sigma = 3.65
[pairs.Kr-Ne]
epsilon = 0.005
sigma = 3.3
"""


def test_mixtures_are_the_sum_over_pairs_by_the_table(tmp_path):
    (tmp_path / "mixture.toml").write_text(MIXTURE)
    atoms = pfcc(2, 2, 2, a=5.6)
    atoms.numbers = np.random.default_rng(4).choice([10, 18, 36], 32)
    result = evaluate(atoms, load_model(f"lj:{tmp_path / 'mixture.toml'}", species_of(atoms)))

    own = {10: (0.0031, 2.74), 18: (0.0104, 3.40), 36: (0.0140, 3.65)}
    i, j, d, vectors = neighbor_list("ijdD", atoms, 8.0)
    table = {}
    for a, b in itertools.product(own, own):
        table[a, b] = np.sqrt(np.multiply(own[a], own[b]))
    table[10, 36] = table[36, 10] = (0.005, 3.3)
    epsilon, sigma = np.array([table[atoms.numbers[a], atoms.numbers[b]] for a, b in zip(i, j, strict=True)]).T
    u = 4 * epsilon * ((sigma / d) ** 12 - (sigma / d) ** 6 - (sigma / 8.0) ** 12 + (sigma / 8.0) ** 6)
    slope = 4 * epsilon * (-12 * sigma**12 / d**13 + 6 * sigma**6 / d**7)
    pulls = slope[:, None] * vectors / d[:, None]
    forces = np.stack([np.bincount(i, pulls[:, k], 32) for k in range(3)], axis=1)
    assert result.energy == pytest.approx(u.sum() / 2, rel=1e-12)
    np.testing.assert_allclose(result.forces, forces, rtol=0, atol=1e-13)
    stress = np.einsum("na,nb->ab", pulls, vectors) / 2 / atoms.get_volume()
    np.testing.assert_allclose(result.stress, stress, rtol=0, atol=1e-15)


def cases() -> list[dict]:
    index = REFERENCE / "index.json"
    return [case for case in json.loads(index.read_text()) if case["model"]["kind"] == "lj"] if index.exists() else []


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["file"])
def test_reference_files_are_met(case, tmp_path):
    """LAMMPS's numbers, to 1e-9 or to what the positions' eight decimals allow (1.2e-9 for the triclinic file)."""
    atoms = read(REFERENCE / case["file"])
    model, species = case["model"], case["model"].get("species", {"Ar": (None, None)})
    text = f"cutoff = {model['cutoff_A']}\nshift = {str(model['shift']).lower()}\n"
    for symbol, (epsilon, sigma) in species.items():
        epsilon, sigma = epsilon or model["epsilon_eV"], sigma or model["sigma_A"]
        text += f"[species.{symbol}]\nepsilon = {epsilon}\nsigma = {sigma}\n"
    (tmp_path / "table.toml").write_text(text)
    result = evaluate(atoms, load_model(f"lj:{tmp_path / 'table.toml'}", species_of(atoms)))
    rounding = 1e-8 / 12**0.5 * np.linalg.norm(result.forces)  # eV, rms
    assert result.energy == pytest.approx(case["energy_eV"], rel=1e-9, abs=4 * rounding)
    np.testing.assert_allclose(result.forces, atoms.get_forces(), rtol=0, atol=1e-7)
    np.testing.assert_allclose(result.stress, atoms.get_stress(voigt=False), rtol=0, atol=1e-8)


# The casebook


@pytest.mark.parametrize(
    ("shape", "truncated", "shifted", "strongest", "pressure"),
    [
        ((4, 4, 4), -19.933636461407, -18.309479224755, 0.162637455, 0.158325114),
        ((8, 2, 2), -9.953635110781, -9.142150427292, 0.161218954, 0.161782415),
        ((2, 2, 2), -2.516339933395, -2.312026349346, 0.126363147, 0.142511538),
    ],
)
def test_perturbed_crystals(shape, truncated, shifted, strongest, pressure):
    result = evaluate(pfcc(*shape), argon())
    assert result.energy == pytest.approx(truncated, abs=1e-12)
    assert evaluate(pfcc(*shape), argon(shift=True)).energy == pytest.approx(shifted, abs=1e-12)
    assert np.linalg.norm(result.forces, axis=1).max() == pytest.approx(strongest, abs=1e-9)
    assert -np.trace(result.stress) / 3 / units.GPA == pytest.approx(pressure, abs=1e-9)


def test_details_of_the_perturbed_crystal():
    result = evaluate(pfcc(4, 4, 4), argon())
    np.testing.assert_allclose(result.forces[0], [1.99257689e-3, -2.33093324e-3, -1.40555588e-5], atol=1e-11)
    assert np.linalg.norm(result.forces, axis=1).argmax() == 12
    np.testing.assert_allclose(np.diag(result.stress), [-8.9653e-4, -1.04367e-3, -1.02436e-3], atol=5e-9)


@pytest.mark.parametrize(
    ("distance", "truncated", "shifted", "force"),
    [(4.0, PAIR_4, -0.009602467085, 0.005782358), (3.8, PAIR_38, -0.010223204052, 0.000880550)],
)
def test_pairs(distance, truncated, shifted, force):
    atoms = Atoms("Ar2", positions=[[0, 0, 0], [0, distance, 0]])
    assert energies(atoms) == pytest.approx((truncated, shifted), abs=1e-12)
    forces = evaluate(atoms, argon()).forces
    # both distances are beyond the minimum at 3.816 Å or within it
    sign = 1 if distance > 3.4 * 2 ** (1 / 6) else -1
    np.testing.assert_allclose(forces, [[0, sign * force, 0], [0, -sign * force, 0]], atol=1e-9)


@pytest.mark.parametrize("axes", list(itertools.product([False, True], repeat=3)))
def test_each_periodic_axis_makes_its_pair(axes):
    atoms = Atoms("Ar4", positions=[[1, 1, 1], [9, 1, 1], [1, 9, 1], [1, 1, 9]], cell=[12] * 3, pbc=axes)
    assert energies(atoms, 5.5)[0] == pytest.approx(sum(axes) * PAIR_4, abs=1e-9)


@pytest.mark.parametrize("cell", [None, 1.0, 5.0, 500.0])
def test_the_cell_of_an_open_molecule_does_not_matter(cell):
    atoms = Atoms("Ar4", positions=[[0, 0, 0], [3.8, 0, 0], [0, 3.9, 0], [0, 0, 4.0]], cell=cell and [cell] * 3)
    assert energies(atoms) == pytest.approx((-0.036889809, -0.035871635), abs=1e-9)


def test_a_left_handed_cell_has_the_energy_and_pressure_of_the_right_handed_one():
    result = evaluate(Atoms("Ar", cell=PRIMITIVE[[1, 0, 2]], pbc=True), argon())
    assert result.energy == pytest.approx(BULK, abs=1e-9)
    assert -np.trace(result.stress) / 3 / units.GPA == pytest.approx(0.0148492, abs=1e-7)


@pytest.mark.parametrize(
    ("atoms", "truncated", "shifted"),
    [
        (bulk("Ar", a=5.26), BULK, -0.077609653),
        (bulk("Ar", a=5.26, cubic=True), 4 * BULK, 4 * -0.077609653),
        (bulk("Ar", "sc", a=4.0), -0.043551809, -0.040836678),
        (bulk("Ar", "sc", a=4.0) * (6, 6, 6), 216 * -0.043551809, 216 * -0.040836678),
    ],
    ids=["primitive", "cubic", "small_cube", "its_supercell"],
)
def test_the_energy_of_an_atom_does_not_depend_on_the_choice_of_cell(atoms, truncated, shifted):
    assert energies(atoms) == pytest.approx((truncated, shifted), abs=1e-9 * len(atoms))


def test_two_atoms_in_a_narrow_skewed_cell():
    positions, cell = [[0.2, 1.0, 0.3], [4.0, 1.5, 3.3]], [[5, 0, 0], [0, 20, 0], [1, 0, 6]]
    assert energies(Atoms("Ar2", positions=positions, cell=cell, pbc=True))[0] == pytest.approx(-0.021700352, abs=1e-9)


@pytest.mark.parametrize("who", ["all", "odd"])
def test_atoms_outside_of_the_cell_have_the_energy_of_those_inside(who):
    atoms = pfcc(4, 4, 4)
    atoms.positions[slice(None) if who == "all" else slice(1, None, 2)] += np.array([100, -57, 3]) * 21.04
    assert energies(atoms) == pytest.approx((-19.933636461407, -18.309479224755), abs=1e-9)


@pytest.mark.parametrize("x", [-5e-17, -1e-9, 20.0, 19.9999999, 40.0])
def test_a_coordinate_at_the_face_keeps_its_neighbor(x):
    atoms = Atoms("Ar2", positions=[[x, 1, 1], [3.8, 1, 1]], cell=[20] * 3, pbc=True)
    assert energies(atoms)[0] == pytest.approx(PAIR_38, abs=1e-9)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_tiny_negative_coordinates_keep_their_neighbors_on_every_axis(axis):
    atoms = Atoms("Ar2", positions=np.zeros((2, 3)), cell=[20] * 3, pbc=True)
    atoms.positions[0, axis] = -4e-52
    atoms.positions[1, axis] = 16.2
    assert energies(atoms)[0] == pytest.approx(PAIR_38, abs=1e-9)


@pytest.mark.parametrize(
    ("positions", "energy"),
    [
        ([[0, 0, 0], [10, 0, 0]], 0.0),
        ([[0, 0, 0], [3.8, 0, 0], [15, 15, 15]], PAIR_38),
        ([[5, 5, 5]], 0.0),
    ],
)
def test_atoms_without_neighbors_count(positions, energy):
    result = evaluate(Atoms(f"Ar{len(positions)}", positions=positions, cell=[30] * 3, pbc=True), argon())
    assert result.energy == pytest.approx(energy, abs=1e-12)
    assert result.forces.shape == (len(positions), 3)
    assert not result.forces[-1].any()
    if energy == 0:
        assert not result.forces.any()
        assert not result.stress.any()


VACUUM = """
import resource
import numpy as np
from ase import Atoms
from tests.systems import argon, evaluate

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

pair = np.array([[0, 0, 0], [3.8, 0, 0]])
evaluate(Atoms("Ar2", positions=pair), argon())
usual = peak()
far = np.concatenate([pair, pair + [1e6, 0, 0]])
for atoms in (
    Atoms("Ar2", positions=pair + 237),
    Atoms("Ar2", positions=pair, cell=[5000, 5000, 40], pbc=True),
    Atoms("Ar4", positions=far),
    Atoms("Ar4", positions=far, cell=[3e6, 3e6, 3e6], pbc=True),
):
    print(repr(evaluate(atoms, argon()).energy))
print(peak() - usual)
"""


def test_memory_follows_the_atoms_and_not_the_vacuum():
    run = subprocess.run([sys.executable, "-c", VACUUM], capture_output=True, text=True, timeout=120, check=True)
    *energies, grown_MB = (float(line) for line in run.stdout.split())
    assert energies == pytest.approx([PAIR_38, PAIR_38, 2 * PAIR_38, 2 * PAIR_38], abs=1e-9)
    assert grown_MB < 20  # 200 are allowed


@pytest.mark.parametrize(("c", "shift"), [(5, 0), (60, 0), (200, 0), (5, -4), (0, 0)])
def test_the_cell_along_the_open_axis_of_a_slab_does_not_matter(c, shift):
    atoms = pfcc(4, 4, 2)
    atoms.cell[2] = [0, 0, c]
    atoms.pbc = (True, True, False)
    atoms.positions[:, 2] += shift
    assert energies(atoms) == pytest.approx((-7.952137831, -7.378736169), abs=1e-9)
    assert evaluate(atoms, argon()).stress is None


def test_another_basis_of_the_same_lattice_has_the_same_energy():
    atoms = pfcc(4, 4, 4)
    a, b, c = atoms.cell.array
    atoms.cell[:] = [a, b + a, c - a + b]
    result, straight = evaluate(atoms, argon()), evaluate(pfcc(4, 4, 4), argon())
    assert result.energy == pytest.approx(-19.933636461, abs=1e-9)
    np.testing.assert_allclose(result.forces, straight.forces, rtol=0, atol=1e-13)
    np.testing.assert_allclose(result.stress, straight.stress, rtol=0, atol=1e-15)


def test_an_icosahedron_in_a_wide_box():
    phi = (1 + 5**0.5) / 2
    shell = np.array([np.roll([0, i, j * phi], k) for i in (1, -1) for j in (1, -1) for k in range(3)])
    positions = np.concatenate([[[5.0, 5, 5]], 5 + 3.65 * shell / np.linalg.norm(shell[0])])
    atoms = Atoms("Ar13", positions=positions, cell=[60] * 3, pbc=True)
    assert energies(atoms) == pytest.approx((-0.459965316, -0.446729054), abs=1e-9)


@pytest.mark.parametrize(("z", "other"), [(27.0, 11.0), (7.0, -9.0)])
def test_an_unwrapped_coordinate_is_the_atom_in_the_cell(z, other):
    result = evaluate(Atoms("Ar2", positions=[[5, 5, z], [5, 5, other]], cell=[20] * 3, pbc=True), argon())
    assert result.energy == pytest.approx(PAIR_4, abs=1e-12)
    np.testing.assert_allclose(np.abs(result.forces[:, 2]), 0.005782358, atol=1e-9)


@pytest.mark.parametrize(
    ("a", "pressure", "stress_xx"), [(5.0, 0.872415, -0.00544519), (5.26, 0.0148492, None), (5.6, -0.249739, None)]
)
def test_compressed_crystals_push_and_stretched_ones_pull(a, pressure, stress_xx):
    result = evaluate(bulk("Ar", a=a), argon())
    assert -np.trace(result.stress) / 3 / units.GPA == pytest.approx(pressure, abs=1e-6)
    if stress_xx is not None:
        assert result.stress[0, 0] == pytest.approx(stress_xx, abs=1e-8)
    h = 1e-5
    volume = a**3 / 4
    larger, smaller = (evaluate(bulk("Ar", a=a * s), argon(shift=True)).energy for s in (1 + h, 1 - h))
    by_differences = -(larger - smaller) / (volume * ((1 + h) ** 3 - (1 - h) ** 3)) / units.GPA
    assert by_differences == pytest.approx(pressure, abs=1e-6)
