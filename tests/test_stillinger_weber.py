"""Stillinger-Weber against LAMMPS, the paper's crystal, and the sum over triplets as it stands in the paper."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk

from mdrun.errors import SimulationError
from mdrun.potentials.registry import default_model, load_model
from mdrun.potentials.stillinger_weber import COLUMNS, StillingerWeber
from mdrun.potentials.three_body_files import read_three_body
from tests.many_body import SYMBOLS, SYSTEMS, by_centre, check_invariance, check_reference, reference_atoms, references
from tests.systems import DATA, evaluate, species_of

POTENTIALS = DATA / "potentials"


@pytest.mark.parametrize("case", references("sw"), ids=lambda case: case["file"])
def test_reference_files_are_met(case):
    atoms = reference_atoms(case)
    check_reference(case, StillingerWeber.load(POTENTIALS / case["model"]["file"], species_of(atoms)), atoms)


def test_the_crystal_is_the_papers():
    """Two ε an atom at a nearest distance of 2^(1/6) σ, where the forces on the cell vanish."""
    sigma, epsilon = 2.0951, 2.1683
    crystal = bulk("Si", "diamond", a=2 ** (1 / 6) * sigma * 4 / math.sqrt(3), cubic=True)
    result = evaluate(crystal, load_model("sw", (14,)))
    assert result.energy == pytest.approx(-2 * epsilon * 8, rel=1e-8)
    np.testing.assert_allclose(result.stress, 0, atol=1e-8)
    np.testing.assert_allclose(result.forces, 0, atol=1e-12)


def test_silicon_runs_with_it_unasked_and_the_file_agrees_with_what_is_built_in():
    atoms = SYSTEMS["one_primitive_cell"]()
    built_in = evaluate(atoms, load_model(default_model((14,)), (14,)))
    from_file = evaluate(atoms, load_model(f"sw:{POTENTIALS / 'Si.sw'}", (14,)))
    assert built_in.energy == pytest.approx(from_file.energy, rel=1e-13)
    np.testing.assert_allclose(built_in.forces, from_file.forces, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_energy_is_that_of_the_sum_over_pairs_and_triplets(name):
    atoms = SYSTEMS[name]()
    entries = read_three_body(POTENTIALS / "mixed.sw", COLUMNS, "sw").entries

    def values(i: int, j: int, k: int) -> dict[str, float]:
        found = entries[SYMBOLS[i], SYMBOLS[j], SYMBOLS[k]].values
        return dict(zip((column.name for column in COLUMNS), found, strict=True))

    def reach(p: dict[str, float]) -> float:
        tol = min(p["tol"], 0.01)
        return p["a"] * p["sigma"] + (p["sigma"] * min(p["gamma"], 1) / math.log(tol) if tol else 0)

    def energy_of(i: int, ends: np.ndarray, vectors: np.ndarray) -> float:
        near = []
        energy = 0.0
        for j, vector in zip(ends, vectors, strict=True):
            p, r = values(i, j, j), float(np.linalg.norm(vector))
            if r >= reach(p):
                continue
            x, depth = p["sigma"] / r, p["sigma"] / (r - p["a"] * p["sigma"])
            energy += 0.5 * p["A"] * p["epsilon"] * (p["B"] * x ** p["p"] - x ** p["q"]) * math.exp(depth)
            near.append((j, vector / r, math.exp(p["gamma"] * depth)))
        for (j, u, g), (k, v, h) in itertools.combinations(near, 2):
            p = values(i, j, k)
            energy += p["lambda"] * p["epsilon"] * g * h * (u @ v - p["costheta0"]) ** 2
        return energy

    model = StillingerWeber.load(POTENTIALS / "mixed.sw", species_of(atoms))
    expected = by_centre(atoms, model.cutoff, energy_of)
    assert evaluate(atoms, model).energy == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", SYSTEMS)
def test_threads_skin_and_totals_do_not_change_the_forces(name):
    check_invariance(SYSTEMS[name](), lambda numbers: StillingerWeber.load(POTENTIALS / "mixed.sw", numbers))


def test_atoms_in_one_place_stop_the_run():
    with pytest.raises(SimulationError, match="not finite"):
        evaluate(Atoms("Si3", positions=[[0, 0, 0], [0, 0, 0], [0, 0, 2.4]]), load_model("sw", (14,)))


# In single precision r - aσ, of 0.27 Å in the last case, is rounded by 5e-7 Å, which its exponential, σ / (r - aσ) = 8,
# makes 1.5e-5; 2e-19 counts as zero.
@pytest.mark.parametrize(("precision", "rtol", "atol"), [("double", 1e-9, 1e-100), ("mixed", 3e-5, 1e-17)])
@pytest.mark.parametrize("distance", [3.77118, 3.7711799999, 3.771, 3.72, 3.5])
def test_nothing_jumps_and_nothing_is_lost_near_the_cutoff(distance, precision, rtol, atol):
    """aσ = 3.77118 Å, where the exponentials' arguments go to minus infinity."""
    result = evaluate(Atoms("Si2", positions=[[0, 0, 0], [0, 0, distance]]), load_model("sw", (14,), precision))
    x = 2.0951 / distance
    depth = 2.0951 / (distance - 3.77118) if distance < 3.77118 else -math.inf
    pair = 7.049556277 * 2.1683 * (0.6022245584 * x**4 - 1) * math.exp(max(depth, -700))
    assert result.energy == pytest.approx(pair, rel=rtol, abs=atol)
    assert np.isfinite(result.forces).all()
