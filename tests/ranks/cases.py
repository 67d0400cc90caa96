"""Systems with their models, by name: the ones to compute once, and the ones to move."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import ase.io
import numpy as np
import torch
from ase import Atoms
from ase.build import bulk, fcc100

from mdrun.integrate.velocities import draw_momenta
from mdrun.potentials.base import ForceModel
try:
    from mdrun.potentials.eam import EAM
except ImportError:
    EAM = None
from mdrun.potentials.emt import EMT
from mdrun.potentials.lennard_jones import load, make_lennard_jones
from tests.systems import DATA, pfcc, species_of

RANKS = (1, 2, 3, 4, 5)
EPSILON, SIGMA, CUTOFF = 0.0104, 3.40, 8.5  # the casebook's argon


def argon(atoms: Atoms, cutoff: float = CUTOFF, shift: bool = False) -> ForceModel:
    """The casebook's Lennard-Jones argon."""
    options = {"epsilon": f"{EPSILON}", "sigma": f"{SIGMA}", "cutoff": f"{cutoff}", "shift": f"{shift}"}
    return load(None, options, species_of(atoms))


def emt(atoms: Atoms) -> ForceModel:
    return EMT.for_species(species_of(atoms))


# The reference set: LAMMPS, 22 Jul 2025.

REFERENCE = {entry["file"]: entry for entry in json.loads((DATA / "reference" / "index.json").read_text()) if EAM or entry['model']['kind']=='lj'}


def reference_atoms(file: str) -> Atoms:
    return ase.io.read(DATA / "reference" / file)


def reference_model(file: str, atoms: Atoms) -> ForceModel:
    model = REFERENCE[file]["model"]
    if model["kind"] != "lj":
        return EAM.from_file(DATA / "potentials" / model["file"].split()[0], species_of(atoms))
    one = (model.get("epsilon_eV"), model.get("sigma_A"))
    own = [model.get("species", {}).get(s, one) for s in (Atoms([z]).get_chemical_formula() for z in species_of(atoms))]
    n = len(own)
    pairs = {
        (a, b): ((own[a][0] * own[b][0]) ** 0.5, (own[a][1] + own[b][1]) / 2) for a in range(n) for b in range(a, n)
    }
    return make_lennard_jones(pairs, n, model["cutoff_A"], model["shift"], "Lennard-Jones")


# Systems of our own.


def icosahedron(cell: float | None = None, velocity: tuple[float, float, float] = (0, 0, 0)) -> Atoms:
    """A-23: 13 atoms, the centre at (5, 5, 5), the others 3.65 Å away; velocity in Å/fs."""
    golden = (1 + 5**0.5) / 2
    corners = [np.roll([0, a, b], k) for k in range(3) for a in (-1, 1) for b in (-golden, golden)]
    shell = np.array(corners) * 3.65 / np.hypot(1, golden)
    atoms = Atoms("Ar13", positions=np.vstack([np.zeros(3), shell]) + 5.0)
    if cell is not None:
        atoms.set_cell([cell] * 3)
        atoms.pbc = True
    return moving(atoms, velocity)


def moving(atoms: Atoms, velocity: tuple[float, float, float]) -> Atoms:
    """Add a common velocity, Å/fs."""
    per_fs = 1 / 0.09822694788464063
    atoms.set_momenta(atoms.get_momenta() + atoms.get_masses()[:, None] * np.array(velocity) * per_fs)
    return atoms


def warmed(atoms: Atoms, temperature_K: float, seed: int = 7) -> Atoms:
    masses = torch.from_numpy(atoms.get_masses())
    mobile = torch.ones((len(atoms), 3), dtype=torch.bool)
    atoms.set_momenta(draw_momenta(masses, mobile, temperature_K, seed, conserves_momentum=True).numpy())
    return atoms


def argon_liquid() -> Atoms:
    return warmed(pfcc(4, 4, 4, a=5.9), 150.0)


def argon_wire() -> Atoms:
    """Periodic along z alone; the other vectors are dummies."""
    atoms = pfcc(2, 2, 4)
    atoms.pbc = (False, False, True)
    atoms.set_cell([[1, 0, 0], [0, 1, 0], [0, 0, 4 * 5.26]])
    return atoms


def copper_slab() -> Atoms:
    atoms = fcc100("Cu", (4, 4, 4), vacuum=6.0)
    atoms.pbc = (True, True, False)
    atoms.rattle(0.1, seed=3)
    return warmed(atoms, 600.0)


def gold_copper() -> Atoms:
    atoms = bulk("Au", "fcc", a=3.95, cubic=True).repeat((3, 3, 2))
    atoms.numbers[::3] = 29
    atoms.rattle(0.1, seed=4)
    return atoms


def copper_small_cell() -> Atoms:
    """One skewed, left-handed cell of two atoms, thinner than the cutoff."""
    atoms = bulk("Cu", "fcc", a=3.7).repeat((2, 1, 1))
    atoms.set_cell(atoms.cell.array[[1, 0, 2]])
    atoms.rattle(0.1, seed=5)
    return atoms


def far_away(atoms: Atoms, every: int) -> Atoms:
    """A-15: whole cells added to every ``every``-th atom from the last of the first group on."""
    atoms.positions[every - 1 :: every] += np.array([100, -57, 3]) @ atoms.cell.array
    return atoms


def skewed(atoms: Atoms) -> Atoms:
    """A-21: the same lattice by other vectors, b + a and c - a + b."""
    a, b, c = atoms.cell.array
    atoms.set_cell([a, b + a, c - a + b])
    return atoms


def in_box(positions, cell, pbc=True) -> Atoms:
    return Atoms(f"Ar{len(positions)}", positions=positions, cell=cell, pbc=pbc)


def slab(c: float, dz: float = 0.0) -> Atoms:
    """A-19: 128 atoms, open along z, whatever length the cell has there."""
    atoms = pfcc(4, 4, 2)
    atoms.positions[:, 2] += dz
    atoms.set_cell([21.04, 21.04, c])
    atoms.pbc = (True, True, False)
    return atoms


def ball() -> Atoms:
    """A-20: a dense ball in a wide box, so that rows and ranks are uneven."""
    atoms = pfcc(5, 5, 5)
    near = np.linalg.norm(atoms.positions - 13.0, axis=1) < 12.0
    atoms = atoms[near]
    atoms.set_cell([60.0] * 3)
    return atoms


FCC = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]]) / 2
TETRAHEDRON = [(0, 0, 0), (3.8, 0, 0), (0, 3.9, 0), (0, 0, 4.0)]
CORNERS = [(1, 1, 1), (9, 1, 1), (1, 9, 1), (1, 1, 9)]
FLAT_ANGLES = [20, 20, 20, 41.55, 56.39, 17.52]


@dataclass(frozen=True)
class Case:
    """One configuration to evaluate.

    Attributes:
        energy: eV, where an independent number is known.
    """

    atoms: Callable[[], Atoms]
    model: Callable[[Atoms], ForceModel] = argon
    energy: float | None = None


def _five_and_a_half(atoms: Atoms) -> ForceModel:
    return argon(atoms, 5.5)


def _shifted(atoms: Atoms) -> ForceModel:
    return argon(atoms, shift=True)


CASEBOOK: dict[str, Case] = {
    **{
        f"A-01 {pbc}": Case(lambda pbc=pbc: in_box(CORNERS, [12] * 3, pbc), _five_and_a_half, energy)
        for pbc, energy in (
            ((0, 0, 0), 0.0),
            ((1, 0, 0), -0.009772163),
            ((1, 0, 1), -0.019544326),
            ((1, 1, 1), -0.029316488),
        )
    },
    **{
        f"A-10 cell {side}": Case(lambda side=side: in_box(TETRAHEDRON, [side] * 3, False), argon, -0.036889809)
        for side in (0, 1, 5, 500)
    },
    "A-11": Case(lambda: in_box([(0, 0, 0)], 5.26 * FCC[[0, 1, 2]]), argon, -0.084227784),
    "A-14 primitive": Case(lambda: in_box([(0, 0, 0)], 5.26 * FCC[[1, 0, 2]]), argon, -0.084227784),
    "A-14 primitive, shifted": Case(lambda: in_box([(0, 0, 0)], 5.26 * FCC), _shifted, -0.077609653),
    "A-14 cubic": Case(lambda: bulk("Ar", "fcc", a=5.26, cubic=True), argon, -0.084227784 * 4),
    "A-14 4 Å cube": Case(lambda: in_box([(0, 0, 0)], [4.0] * 3), argon, -0.043551809),
    "A-14 216 of them": Case(
        lambda: in_box([(0, 0, 0)], [4.0] * 3).repeat(6), argon, -0.043551809 * 216
    ),
    "A-14 thin": Case(
        lambda: in_box([(0.2, 1, 0.3), (4.0, 1.5, 3.3)], [[5, 0, 0], [0, 20, 0], [1, 0, 6]]), argon, -0.021700352
    ),
    "A-15 all": Case(lambda: far_away(pfcc(4, 4, 4), 1), argon, -19.933636461407),
    "A-15 odd atoms": Case(lambda: far_away(pfcc(4, 4, 4), 2), argon, -19.933636461407),
    **{
        f"A-16 {x}": Case(lambda x=x: in_box([(x, 1, 1), (3.8, 1, 1)], [20] * 3), argon, -0.010392900)
        for x in (-5e-17, -1e-9, 20.0, 19.9999999, 40.0)
    },
    "A-17 alone": Case(lambda: in_box([(0, 0, 0), (10, 0, 0)], [30] * 3), argon, 0.0),
    "A-17 last": Case(lambda: in_box([(1, 1, 1), (4.8, 1, 1), (15, 15, 15)], [30] * 3), argon, -0.010392900),
    "A-17 single": Case(lambda: in_box([(1, 1, 1)], [30] * 3), argon, 0.0),
    "A-18 i": Case(lambda: in_box([(237, 237, 237), (240.8, 237, 237)], [0] * 3, False), argon, -0.010392900),
    "A-18 ii": Case(lambda: in_box([(237, 237, 20), (240.8, 237, 20)], [5000, 5000, 40]), argon, -0.010392900),
    "A-18 iii": Case(
        lambda: in_box([(0, 0, 0), (3.8, 0, 0), (1e6, 0, 0), (1e6 + 3.8, 0, 0)], [0] * 3, False), argon, -0.010392900 * 2
    ),
    **{
        f"A-19 c {c} z {dz}": Case(lambda c=c, dz=dz: slab(c, dz), argon, -7.952137831)
        for c, dz in ((5, 0), (60, 0), (200, 0), (5, -4))
    },
    "A-20 ball": Case(ball),
    "A-21 lattice": Case(lambda: skewed(pfcc(4, 4, 4)), argon, -19.933636461407),
    "A-21 flat": Case(lambda: Atoms("Ar2", [(8.029, 5.236, 5.067), (13.771, 5.666, 14.13)], cell=FLAT_ANGLES, pbc=True)),
    "A-22 4 4 4": Case(lambda: pfcc(4, 4, 4), argon, -19.933636461407),
    "A-22 8 2 2": Case(lambda: pfcc(8, 2, 2), argon, -9.953635110781),
    "A-22 4 4 4, shifted": Case(lambda: pfcc(4, 4, 4), _shifted, -18.309479224755),
    "A-23": Case(lambda: icosahedron(60.0), argon, -0.459965316),
    "A-23 open": Case(icosahedron, argon, -0.459965316),
    "A-25": Case(lambda: in_box([(5, 5, 27), (5, 5, 11)], [20] * 3), argon, -0.009772163),
    "A-29": Case(lambda: pfcc(2, 2, 2), argon, -2.516339933395),
}

WITH_EMT: dict[str, Case] = {
    "copper slab": Case(copper_slab, emt),
    "gold with copper": Case(gold_copper, emt),
    "copper, small left-handed cell": Case(copper_small_cell, emt),
}

STATIC: dict[str, Case] = {
    **{
        file: Case(lambda file=file: reference_atoms(file), lambda atoms, file=file: reference_model(file, atoms))
        for file in REFERENCE
    },
    **CASEBOOK,
    **WITH_EMT,
    "argon liquid": Case(argon_liquid),
    "argon wire": Case(argon_wire),
}


@dataclass(frozen=True)
class Moving:
    """A system to follow for a hundred steps."""

    atoms: Callable[[], Atoms]
    model: Callable[[Atoms], ForceModel] = argon
    timestep_fs: float = 2.0
    temperature_K: float = 60.0


def _of_reference(file: str, temperature_K: float) -> Moving:
    return Moving(
        lambda: warmed(reference_atoms(file), temperature_K),
        lambda atoms: reference_model(file, atoms),
        temperature_K=temperature_K,
    )


MOVING: dict[str, Moving] = {
    "argon crystal": Moving(lambda: warmed(pfcc(4, 4, 4), 60.0)),
    "argon liquid": Moving(argon_liquid, timestep_fs=5.0, temperature_K=150.0),
    "argon wire": Moving(lambda: warmed(argon_wire(), 60.0)),
    "argon, atoms many cells away": Moving(lambda: warmed(far_away(pfcc(2, 2, 2), 2), 60.0)),
    "copper slab": Moving(copper_slab, emt, temperature_K=600.0),
    **({} if EAM is None else {"copper and nickel": _of_reference("eam_cuni108.extxyz", 600.0)}),
    "small triclinic cell": _of_reference("lj_ar27_triclinic_small.extxyz", 60.0),
    "one atom and its images": Moving(
        lambda: moving(reference_atoms("lj_ar1.extxyz"), (0.01, -0.02, 0.005)),
        lambda atoms: reference_model("lj_ar1.extxyz", atoms),
    ),
    "three atoms in the open": Moving(lambda: warmed(in_box(TETRAHEDRON[:3], [0] * 3, False), 20.0)),
    "icosahedron in the open": Moving(lambda: warmed(icosahedron(), 20.0)),
    "icosahedron in a box": Moving(lambda: warmed(icosahedron(60.0), 20.0)),
    "icosahedron drifting through a box": Moving(lambda: icosahedron(30.0, velocity=(0.1, 0.05, -0.08))),
    "long box": Moving(lambda: warmed(pfcc(8, 2, 2), 60.0)),
    "cell smaller than the cutoff": Moving(lambda: warmed(pfcc(2, 2, 2), 60.0)),
}

# Five ranks and fewer atoms, so that some own none; dense; sparse; thin.
PROBED: dict[str, Callable[[], Atoms]] = {
    "cell smaller than the cutoff": lambda: pfcc(2, 2, 2),
    "argon wire": argon_wire,
    "one atom and its images": lambda: in_box([(1, 2, 3)], 5.26 * FCC),
    "three atoms in the open": lambda: in_box(TETRAHEDRON[:3], [0] * 3, False),
    "icosahedron in a box": lambda: icosahedron(60.0),
}
