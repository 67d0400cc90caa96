"""What the tests of Stillinger-Weber and Tersoff share: systems, LAMMPS's references, a sum over centres."""

from __future__ import annotations

import json
from collections.abc import Callable

import ase.io
import numba
import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.neighborlist import neighbor_list

from mdrun.backends.base import Backend
from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.potentials.base import ForceModel
from mdrun.scope import Scope
from tests.systems import DATA, evaluate, species_of, state_of

AS_ROUNDED = 5e-9  # Å, half of the last digit of a file's positions
SYMBOLS = {6: "C", 14: "Si", 32: "Ge"}  # of the invented mixtures


def rattled(atoms: Atoms, seed: int = 1) -> Atoms:
    atoms.rattle(0.15, seed=seed)
    return atoms


def mixed(atoms: Atoms, seed: int = 1) -> Atoms:
    atoms.numbers = np.random.default_rng(seed).choice([6, 14, 32], len(atoms))
    return rattled(atoms, seed)


def open_in_all_directions(atoms: Atoms) -> Atoms:
    atoms.pbc = False
    return atoms


SYSTEMS = {
    "one_primitive_cell": lambda: rattled(bulk("Si", "diamond", a=5.2)),
    "three_species": lambda: mixed(bulk("Si", "diamond", a=5.0, cubic=True)),
    "three_species_in_a_thin_skewed_cell": lambda: mixed(
        Atoms("Si3", cell=[[2.6, 0, 0], [1.0, 2.7, 0], [-0.8, 0.7, 5.0]], pbc=True,
              scaled_positions=[[0, 0, 0], [0.5, 0.4, 0.3], [0.1, 0.9, 0.7]])
    ),
    "cluster": lambda: mixed(open_in_all_directions(bulk("Si", "diamond", a=4.9, cubic=True))),
    "pair": lambda: Atoms("Si2", positions=[[0, 0, 0], [0, 0, 2.4]]),
    "alone": lambda: Atoms("Si", positions=[[0, 0, 0]]),
}  # fmt: skip


def references(kind: str) -> list[dict]:
    index = json.loads((DATA / "reference" / "index_many_body.json").read_text())
    return [case for case in index if case["model"]["kind"] == kind]


def is_exact(case: dict) -> bool:
    """Whether LAMMPS had the very positions that are in the file."""
    return "before the positions were rounded" not in case["note"]


def check_reference(case: dict, model: ForceModel, atoms: Atoms, backend: Backend | None = None) -> None:
    """Energy, forces and stress are LAMMPS's; at the positions in the file, or at some that round to them."""
    result = evaluate(atoms, model, backend=backend)
    forces, stress = atoms.get_forces(), atoms.get_stress(voigt=False)
    blur = 0.0
    if not is_exact(case):
        others = (evaluate(blurred(atoms, seed), model, backend=backend) for seed in range(3))
        blur = max(abs(other.forces - result.forces).max() for other in others)
    energy_blur = AS_ROUNDED * np.abs(forces).sum() if blur else 0.0
    assert abs(result.energy - case["energy_eV"]) < 1e-12 * abs(case["energy_eV"]) + energy_blur
    np.testing.assert_allclose(result.forces, forces, rtol=0, atol=AS_ROUNDED * 1.001 + 3 * blur)
    # LAMMPS's constant for pressures is older than ours by 8e-8 of it.
    np.testing.assert_allclose(result.stress, stress, rtol=1e-7, atol=1e-9 + blur / 100)


def blurred(atoms: Atoms, seed: int) -> Atoms:
    moved = atoms.copy()
    moved.positions += np.random.default_rng(seed).uniform(-AS_ROUNDED, AS_ROUNDED, atoms.positions.shape)
    return moved


def reference_atoms(case: dict) -> Atoms:
    return ase.io.read(DATA / "reference" / case["file"])


def by_centre(atoms: Atoms, cutoff: float, energy_of: Callable[[int, np.ndarray, np.ndarray], float]) -> float:
    """Σ of ``energy_of(number, neighbour numbers, vectors to them)`` over centres; ASE finds the neighbours."""
    centres, ends, vectors = neighbor_list("ijD", atoms, cutoff)
    return sum(
        energy_of(atoms.numbers[i], atoms.numbers[ends[centres == i]], vectors[centres == i]) for i in range(len(atoms))
    )


def check_invariance(atoms: Atoms, make_model: Callable[[tuple[int, ...]], ForceModel]) -> None:
    """Threads, skin and whether totals are asked for change nothing beyond rounding."""
    model = make_model(species_of(atoms))
    most, before = numba.config.NUMBA_NUM_THREADS, numba.get_num_threads()
    found = []
    ways = ((1, 1.0, True), (most, 1.0, True), (1, 1.0, False), (most, 0.2, False), (1, 3.0, True))
    for n_threads, skin, totals in ways:
        state, domain = state_of(atoms), Domain(Comm(), model.cutoff, skin)
        numba.set_num_threads(n_threads)
        try:
            with Scope(model, domain, len(atoms)) as scope:
                domain.follow(state)
                result = scope(domain, totals)
        finally:
            numba.set_num_threads(before)
        found.append((result, result.forces.numpy()[np.argsort(state.ids.numpy())]))
    first, forces = found[0]
    scale = max(1.0, np.abs(forces).max())
    for result, others in found[1:]:
        np.testing.assert_allclose(others, forces, rtol=0, atol=1e-13 * scale)
        if result.energy is not None:
            assert abs(result.energy - first.energy) <= 1e-13 * abs(first.energy)
            np.testing.assert_allclose(result.virial, first.virial, rtol=0, atol=1e-13 * scale * len(atoms))
