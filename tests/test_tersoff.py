"""Tersoff against LAMMPS, published crystals, and the sum over triplets as it stands in the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk

from mdrun.errors import InputError, SimulationError
from mdrun.potentials.registry import load_model
from mdrun.potentials.tersoff import Tersoff
from mdrun.potentials.tersoff_parameters import COLUMNS
from mdrun.potentials.three_body_files import read_three_body
from tests.many_body import SYMBOLS, SYSTEMS, by_centre, check_invariance, check_reference, reference_atoms, references
from tests.systems import DATA, evaluate, species_of

POTENTIALS = DATA / "potentials"


@pytest.mark.parametrize("case", references("tersoff"), ids=lambda case: case["file"])
def test_reference_files_are_met(case):
    atoms = reference_atoms(case)
    check_reference(case, Tersoff.load(POTENTIALS / case["model"]["file"], species_of(atoms)), atoms)


@pytest.mark.parametrize(
    ("crystal", "numbers", "a", "per_atom"),
    [
        # J. Tersoff, Phys. Rev. B 38 (1988) 9902 and B 39 (1989) 5566: lattice constant and energy an atom.
        ("diamond", (14,), 5.432, -4.63),
        ("diamond", (6,), 3.566, -7.37),
        ("zincblende", (14, 6), 4.321, -6.165),
    ],
)
def test_crystals_are_those_of_the_papers(crystal, numbers, a, per_atom):
    model = load_model("tersoff", tuple(sorted(numbers)))

    def energy(length: float) -> float:
        atoms = bulk("Si", "diamond", a=length)
        atoms.numbers[:] = numbers
        return evaluate(atoms, model).energy / 2

    lengths = a + np.linspace(-0.02, 0.02, 9)
    energies = [energy(length) for length in lengths]
    curve = np.polynomial.Polynomial.fit(lengths, energies, 3)
    least = min((root.real for root in curve.deriv().roots()), key=lambda root: abs(root - a))
    assert least == pytest.approx(a, abs=0.003)
    assert curve(least) == pytest.approx(per_atom, abs=0.01)


def test_silicon_carbide_from_a_file_is_what_is_built_in_within_the_files_rounding():
    atoms = reference_atoms(references("tersoff")[-1])
    built_in = evaluate(atoms, load_model("tersoff", (6, 14)))
    from_file = evaluate(atoms, load_model(f"tersoff:{POTENTIALS / 'SiC.tersoff'}", (6, 14)))
    assert built_in.energy == pytest.approx(from_file.energy, rel=1e-3)
    np.testing.assert_allclose(built_in.forces, from_file.forces, rtol=0, atol=0.03)
    with pytest.raises(InputError, match="no parameters for Ge"):
        load_model("tersoff", (14, 32))


def taper(r: float, middle: float, half: float) -> float:
    if r < middle - half:
        return 1.0
    return 0.0 if r > middle + half else 0.5 - 0.5 * math.sin(math.pi / 2 * (r - middle) / half)


def plain_energy(atoms: Atoms, file: str, cutoff: float) -> float:
    """The formula, one bond and one third atom at a time."""
    entries = read_three_body(POTENTIALS / file, COLUMNS, "tersoff").entries

    def values(i: int, j: int, k: int) -> dict[str, float]:
        found = entries[SYMBOLS[i], SYMBOLS[j], SYMBOLS[k]].values
        return dict(zip((column.name for column in COLUMNS), found, strict=True))

    def energy_of(i: int, ends: np.ndarray, vectors: np.ndarray) -> float:
        energy = 0.0
        for j, to_j in enumerate(vectors):
            p, r = values(i, ends[j], ends[j]), float(np.linalg.norm(to_j))
            zeta = 0.0
            for k, to_k in enumerate(vectors):
                if k == j:
                    continue
                t, distance = values(i, ends[j], ends[k]), float(np.linalg.norm(to_k))
                cosine = to_j @ to_k / (r * distance)
                g = t["gamma"] * (
                    1 + t["c"] ** 2 / t["d"] ** 2 - t["c"] ** 2 / (t["d"] ** 2 + (t["costheta0"] - cosine) ** 2)
                )
                stretch = min(max((t["lambda3"] * (r - distance)) ** t["m"], -69.0776), 69.0776)
                zeta += taper(distance, t["R"], t["D"]) * g * math.exp(stretch)
            order = (1 + (p["beta"] * zeta) ** p["n"]) ** (-0.5 / p["n"])
            repulsion, attraction = p["A"] * math.exp(-p["lambda1"] * r), p["B"] * math.exp(-p["lambda2"] * r)
            energy += 0.5 * taper(r, p["R"], p["D"]) * (repulsion - order * attraction)
        return energy

    return by_centre(atoms, cutoff, energy_of)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_energy_is_that_of_the_sum_over_bonds_and_third_atoms(name):
    atoms = SYSTEMS[name]()
    model = Tersoff.load(POTENTIALS / "mixed.tersoff", species_of(atoms))
    expected = plain_energy(atoms, "mixed.tersoff", model.cutoff)
    assert evaluate(atoms, model).energy == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("precision", "rounding"), [("double", 1e-12), ("mixed", 3e-6), ("single", 3e-6)])
@pytest.mark.parametrize("file", ["Si.tersoff", "SiC.tersoff"])
def test_the_energy_is_right_where_a_crowd_breaks_a_bond(file, precision, rounding):
    """(βζ)^n reaches 1e170 for the long bond of Si.tersoff, whose third atoms are much nearer: n is 22.956. Single
    precision ends at 1e38."""
    crowd = [[0.9 * math.cos(x), 0.9 * math.sin(x), 0.3] for x in range(6)]
    atoms = Atoms("Si8", positions=[[0, 0, 0], [0, 0, 2.95], *crowd])
    model = load_model(f"tersoff:{POTENTIALS / file}", (14,), precision)
    result = evaluate(atoms, model)
    assert result.energy == pytest.approx(plain_energy(atoms, file, model.cutoff), rel=rounding)
    np.testing.assert_allclose(result.forces.sum(axis=0), 0, atol=10 * rounding * np.abs(result.forces).max())


@pytest.mark.parametrize("name", SYSTEMS)
def test_threads_skin_and_totals_do_not_change_the_forces(name):
    check_invariance(SYSTEMS[name](), lambda numbers: Tersoff.load(POTENTIALS / "mixed.tersoff", numbers))


def test_atoms_in_one_place_stop_the_run():
    with pytest.raises(SimulationError, match="not finite"):
        evaluate(Atoms("Si3", positions=[[0, 0, 0], [0, 0, 0], [0, 0, 2.4]]), load_model("tersoff", (14,)))
