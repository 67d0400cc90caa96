"""Charges travel with their atoms: rock salt by damped shifted force, still and in motion."""

from __future__ import annotations

import numpy as np
import torch
from ase import Atoms
from ase.build import bulk

from mdrun import units
from mdrun.comm import Comm
from mdrun.integrate.velocities import draw_momenta
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.base import ForceModel
from mdrun.potentials.registry import load_model
from tests.systems import by_id, evaluate, simulate, species_of

SPEC = "dsf:alpha=0.2,cutoff=7 + zbl:inner=2,outer=4"  # a core, so that ions stay apart


def hot_salt() -> Atoms:
    """Unlike charges within a species, so that an exchange of two of them shows."""
    atoms = bulk("NaCl", "rocksalt", a=5.64, cubic=True).repeat((3, 2, 2))
    signs = np.where(atoms.numbers == 11, 1.0, -1.0)
    atoms.set_initial_charges(signs * (0.5 + 0.01 * np.arange(len(atoms))))
    atoms.rattle(0.1, seed=2)
    masses, mobile = torch.from_numpy(atoms.get_masses()), torch.ones((len(atoms), 3), dtype=torch.bool)
    atoms.set_momenta(draw_momenta(masses, mobile, 1500.0, seed=3, conserves_momentum=True).numpy())
    return atoms


def model_of(atoms: Atoms) -> ForceModel:
    return load_model(SPEC, species_of(atoms))


def compute(comm: Comm) -> dict[str, np.ndarray]:
    atoms = hot_salt()
    model = model_of(atoms)
    still = evaluate(atoms, model, comm, skin=0.5)
    run = simulate(atoms, model, VelocityVerlet(units.FS), 100, comm=comm, skin=0.2)
    state = run.sim.state
    charges = by_id(state, state.charges[:, None].expand(-1, 3).contiguous(), comm)
    return {
        "energy": np.array(still.energy),
        "forces": still.forces,
        "stress": still.stress,
        "positions": run.positions,
        "energies": run.total_energies,
        "charges": np.empty(0) if charges is None else charges[:, 0],
        "migrations": comm.all_sum(torch.tensor([run.sim.domain.counts.migrations])).numpy(),
    }
