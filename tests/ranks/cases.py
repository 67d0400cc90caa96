"""Systems with their models, by name: the ones to compute once, and the ones to move."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import ase.io
from ase import Atoms
from ase.build import bulk

from mdrun.potentials.base import ForceModel
from mdrun.potentials.eam import EAM
from mdrun.potentials.emt import EMT
from mdrun.potentials.lennard_jones import load, make_lennard_jones
from mdrun.potentials.registry import load_model
from tests.ranks.builders import (
    CORNERS,
    FCC,
    FLAT,
    TETRAHEDRON,
    argon_liquid,
    argon_wire,
    ball,
    copper_slab,
    copper_small_cell,
    far_away,
    gold_copper,
    icosahedron,
    in_box,
    moving,
    skewed,
    slab,
    warmed,
)
from tests.systems import DATA, REFERENCE_PAIRS, pfcc, species_of

RANKS = (1, 2, 3, 4, 5)
EPSILON, SIGMA, CUTOFF = 0.0104, 3.40, 8.5  # the casebook's argon


def argon(atoms: Atoms, cutoff: float = CUTOFF, shift: bool = False) -> ForceModel:
    """The casebook's Lennard-Jones argon."""
    options = {"epsilon": f"{EPSILON}", "sigma": f"{SIGMA}", "cutoff": f"{cutoff}", "shift": f"{shift}"}
    return load(None, options, species_of(atoms))


def emt(atoms: Atoms) -> ForceModel:
    return EMT.for_species(species_of(atoms))


# The reference set: LAMMPS, 22 Jul 2025.

REFERENCE = {
    entry["file"]: entry
    for index in ("index", "index_pairs", "index_many_body")
    for entry in json.loads((DATA / "reference" / f"{index}.json").read_text())
}


def reference_atoms(file: str) -> Atoms:
    return ase.io.read(DATA / "reference" / file)


def reference_model(file: str, atoms: Atoms) -> ForceModel:
    model = REFERENCE[file]["model"]
    if model["kind"] in REFERENCE_PAIRS:
        return load_model(REFERENCE_PAIRS[model["kind"]].format(**model), species_of(atoms))
    if model["kind"] in ("sw", "tersoff"):
        return load_model(f"{model['kind']}:{DATA / 'potentials' / model['file']}", species_of(atoms))
    if model["kind"] != "lj":
        return EAM.from_file(DATA / "potentials" / model["file"].split()[0], species_of(atoms))
    one = (model.get("epsilon_eV"), model.get("sigma_A"))
    own = [model.get("species", {}).get(s, one) for s in (Atoms([z]).get_chemical_formula() for z in species_of(atoms))]
    n = len(own)
    pairs = {
        (a, b): ((own[a][0] * own[b][0]) ** 0.5, (own[a][1] + own[b][1]) / 2) for a in range(n) for b in range(a, n)
    }
    return make_lennard_jones(pairs, n, model["cutoff_A"], model["shift"], "Lennard-Jones")


@dataclass(frozen=True)
class Case:
    """One configuration to evaluate.

    Attributes:
        energy: eV, where an independent number is known, and how far its printed digits reach.
    """

    atoms: Callable[[], Atoms]
    model: Callable[[Atoms], ForceModel] = argon
    energy: float | None = None
    tolerance: float = 1e-9


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
    "A-14 cubic": Case(lambda: bulk("Ar", "fcc", a=5.26, cubic=True), argon, -0.084227784 * 4, 4e-9),
    "A-14 4 Å cube": Case(lambda: in_box([(0, 0, 0)], [4.0] * 3), argon, -0.043551809),
    "A-14 216 of them": Case(lambda: in_box([(0, 0, 0)], [4.0] * 3).repeat(6), argon, -0.043551809 * 216, 2e-7),
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
        lambda: in_box([(0, 0, 0), (3.8, 0, 0), (1e6, 0, 0), (1e6 + 3.8, 0, 0)], [0] * 3, False),
        argon,
        -0.010392900 * 2,
    ),
    **{
        f"A-19 c {c} z {dz}": Case(lambda c=c, dz=dz: slab(c, dz), argon, -7.952137831)
        for c, dz in ((5, 0), (60, 0), (200, 0), (5, -4))
    },
    "A-20 ball": Case(ball),
    "A-21 lattice": Case(lambda: skewed(pfcc(4, 4, 4)), argon, -19.933636461407),
    "A-21 flat": Case(lambda: Atoms("Ar2", [(8.029, 5.236, 5.067), (13.771, 5.666, 14.13)], cell=FLAT, pbc=True)),
    "A-22 4 4 4": Case(lambda: pfcc(4, 4, 4), argon, -19.933636461407),
    "A-22 8 2 2": Case(lambda: pfcc(8, 2, 2), argon, -9.953635110781),
    "A-22 4 4 4, shifted": Case(lambda: pfcc(4, 4, 4), _shifted, -18.309479224755),
    "A-23": Case(lambda: icosahedron(60.0), argon, -0.459965316),
    "A-23 open": Case(icosahedron, argon, -0.459965316),
    "A-25": Case(lambda: in_box([(5, 5, 27), (5, 5, 11)], [20] * 3), argon, -0.009772163),
    **{f"A-56 {a}": Case(lambda a=a: in_box([(0, 0, 0)], a * FCC[[1, 0, 2]])) for a in (5.0, 5.26, 5.6)},
    **{
        f"A-56 {a}, shifted": Case(lambda a=a: in_box([(0, 0, 0)], a * FCC[[1, 0, 2]]), _shifted)
        for a in (5.2599, 5.26, 5.2601)
    },
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
    """A system to follow for a hundred steps.

    Attributes:
        has_noise: also with a Langevin thermostat.
        has_baths: also with all other thermostats.
    """

    atoms: Callable[[], Atoms]
    model: Callable[[Atoms], ForceModel] = argon
    timestep_fs: float = 2.0
    temperature_K: float = 60.0
    has_noise: bool = True
    has_baths: bool = False

    @property
    def ensembles(self) -> tuple[str, ...]:
        baths = ("nose-hoover", "bussi", "andersen", "berendsen") if self.has_baths else ()
        return ("nve", *(["langevin"] if self.has_noise else []), *baths)


def _of_reference(file: str, temperature_K: float, has_noise: bool = True) -> Moving:
    return Moving(
        lambda: warmed(reference_atoms(file), temperature_K),
        lambda atoms: reference_model(file, atoms),
        temperature_K=temperature_K,
        has_noise=has_noise,
    )


MOVING: dict[str, Moving] = {
    "argon crystal": Moving(lambda: warmed(pfcc(4, 4, 4), 60.0)),
    "argon liquid": Moving(argon_liquid, timestep_fs=5.0, temperature_K=150.0, has_baths=True),
    "copper slab": Moving(copper_slab, emt, temperature_K=600.0),
    "small triclinic cell": _of_reference("lj_ar27_triclinic_small.extxyz", 60.0),
    "icosahedron in a box": Moving(lambda: warmed(icosahedron(60.0), 20.0)),
    "three atoms in the open": Moving(lambda: warmed(in_box(TETRAHEDRON[:3], [0] * 3, False), 20.0)),
    "copper and nickel": _of_reference("eam_cuni108.extxyz", 600.0, has_noise=False),
    "silicon": Moving(
        lambda: warmed(reference_atoms("sw_si216.extxyz"), 600.0),
        lambda atoms: load_model("sw", species_of(atoms)),
        timestep_fs=1.0,
        temperature_K=600.0,
        has_noise=False,
    ),
    "silicon carbide": _of_reference("tersoff_sic64_rounded.extxyz", 600.0, has_noise=False),
    "argon wire": Moving(lambda: warmed(argon_wire(), 60.0), has_noise=False),
    "atoms many cells away": Moving(lambda: warmed(far_away(pfcc(2, 2, 2), 2), 60.0), has_noise=False),
    "one atom and its images": Moving(
        lambda: moving(reference_atoms("lj_ar1.extxyz"), (0.01, -0.02, 0.005)),
        lambda atoms: reference_model("lj_ar1.extxyz", atoms),
        has_noise=False,
    ),
    "icosahedron drifting through a box": Moving(
        lambda: icosahedron(30.0, velocity=(0.1, 0.05, -0.08)), has_noise=False
    ),
}

# Five ranks and fewer atoms, so that some own none; dense; sparse; thin.
PROBED: dict[str, Callable[[], Atoms]] = {
    "cell smaller than the cutoff": lambda: pfcc(2, 2, 2),
    "argon wire": argon_wire,
    "one atom and its images": lambda: in_box([(1, 2, 3)], 5.26 * FCC),
    "three atoms in the open": lambda: in_box(TETRAHEDRON[:3], [0] * 3, False),
    "icosahedron in a box": lambda: icosahedron(60.0),
}
