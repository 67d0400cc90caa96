"""An ASE calculator on several ranks: with a reach that is declared here, or there, and without."""

from __future__ import annotations

import numpy as np
import torch
from ase import Atoms
from ase.calculators.lj import LennardJones

from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.errors import InputError
from mdrun.potentials.base import ForceModel
from mdrun.potentials.registry import load_model
from mdrun.scope import Scope
from tests.ranks.builders import argon_liquid, icosahedron
from tests.systems import by_id, species_of, state_of

REACH = 6.0
OWN = "ase:tests.ranks.jobs.calculators:Declared"
SPEC = f"ase:ase.calculators.lj:LennardJones,sigma=3.4,epsilon=0.0104,rc={REACH},smooth=true"
SYSTEMS = {"liquid": argon_liquid, "cluster and ranks without atoms": lambda: icosahedron(60.0)}


class Declared(LennardJones):
    """A calculator that says how far an atom's energy reaches."""

    receptive_field = REACH

    def __init__(self) -> None:
        super().__init__(sigma=3.4, epsilon=0.0104, rc=REACH, smooth=True)


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    for name, build in SYSTEMS.items():
        atoms = build()
        species = species_of(atoms)
        reach = evaluate_without_virial(atoms, load_model(f"{SPEC},reach={REACH}", species), comm)
        short = evaluate_without_virial(atoms, load_model(f"{SPEC},reach={REACH / 4}", species), comm)
        itself = evaluate_without_virial(atoms, load_model(OWN, species), comm)
        for kind, (energy, forces) in (("reach", reach), ("itself", itself), ("short", short)):
            found[f"{name}/{kind}/energy"], found[f"{name}/{kind}/forces"] = energy, forces
    try:
        evaluate_without_virial(atoms, load_model(SPEC, species), comm)
    except InputError as error:  # on every rank, at the same place
        found["refusal"] = np.array(str(error))
    return found


def evaluate_without_virial(atoms: Atoms, model: ForceModel, comm: Comm) -> tuple[np.ndarray, np.ndarray]:
    """Energy and, on rank 0, forces in input order. The virial is not known of what calculators see on several."""
    state, domain = state_of(atoms, comm), Domain(comm, model.cutoff, 0.5)
    with Scope(model, domain, len(atoms)) as scope:
        domain.follow(state)
        forces = scope(domain, totals=True)
        gathered = by_id(state, forces.forces, comm)
        energy = comm.all_sum(torch.tensor([forces.energy], dtype=torch.float64))
    return np.array(float(energy)), np.empty((0, 3)) if gathered is None else gathered
