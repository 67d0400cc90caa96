"""A hundred steps of every moving system; the casebook's trajectories; the thermostat's noise."""

from __future__ import annotations

import numpy as np
import torch
from ase import Atoms

from mdrun import units
from mdrun.comm import Comm
from mdrun.integrate.base import Integrator
from mdrun.integrate.nvt import Andersen, Langevin, ScaledVerlet
from mdrun.integrate.thermostats import Berendsen, Bussi, NoseHooverChain, Thermostat
from mdrun.integrate.verlet import VelocityVerlet
from tests.ranks.builders import in_box
from tests.ranks.cases import MOVING, Moving, argon
from tests.systems import by_id, pfcc, simulate

N_STEPS = 100
SKIN = 0.3  # small, so that lists are rebuilt and atoms migrate within a hundred steps
SEEDS = (1, 1, 2)


def make(ensemble: str, system: Moving, n_dof: int, comm: Comm) -> Integrator:
    timestep, kelvin, period = system.timestep_fs * units.FS, system.temperature_K, 100 * units.FS
    if ensemble == "nve":
        return VelocityVerlet(timestep)
    if ensemble == "langevin":
        return Langevin(timestep, kelvin, friction=5.0 / units.PS, seed=11)
    if ensemble == "andersen":
        return Andersen(timestep, kelvin, rate=2.0 / units.PS, seed=11)
    thermostats: dict[str, Thermostat] = {
        "nose-hoover": NoseHooverChain(kelvin, period),
        "bussi": Bussi(kelvin, period, seed=11),
        "berendsen": Berendsen(kelvin, period),
    }
    return ScaledVerlet(timestep, thermostats[ensemble], n_dof, comm)


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    for name, system in MOVING.items():
        for ensemble in system.ensembles:
            atoms = system.atoms()
            integrator = make(ensemble, system, 3 * len(atoms) - 3, comm)
            run = simulate(atoms, system.model(atoms), integrator, N_STEPS, comm=comm, skin=SKIN)
            counts = run.sim.domain.counts
            found[f"{name}/{ensemble}/positions"] = run.positions
            found[f"{name}/{ensemble}/energies"] = run.total_energies
            tally = comm.all_sum(torch.tensor([counts.rebuilds, counts.migrations, counts.owned_least == 0]))
            found[f"{name}/{ensemble}/tally"] = tally.numpy()
    return found


def border_crossing() -> np.ndarray:
    """A-24: an atom passes x = 20, where two ranks meet, at 0.1 Å/fs."""
    atoms = in_box([(19.9, 10, 10), (24.5, 10, 10)], [40, 20, 20])
    atoms.set_momenta([[atoms.get_masses()[0] * 0.1 / units.FS, 0, 0], [0, 0, 0]])
    return atoms


def half_warm() -> Atoms:
    """A-27: one end of a bar at 100 K, the other at rest."""
    atoms = pfcc(8, 2, 2)
    warm = atoms.positions[:, 0] < 21
    rng = np.random.default_rng(1)
    atoms.set_momenta(rng.standard_normal((len(atoms), 3)) * np.sqrt(units.KB * 100 * atoms.get_masses())[:, None])
    atoms.set_momenta(atoms.get_momenta() * warm[:, None])
    return atoms


def compute_casebook(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    fs = VelocityVerlet(units.FS)
    for name, atoms, n_steps, watch in (("A-22", pfcc(4, 4, 4), 100, 10), ("A-24", border_crossing(), 20, 1)):
        run = simulate(atoms, argon(atoms, shift=name == "A-22"), fs, n_steps, watch, comm, skin=1.0)
        found[f"{name}/potential"] = np.array([t.potential_eV for t in run.thermo])
        found[f"{name}/kinetic"] = run.kinetic_energies
        found[f"{name}/positions"] = run.positions
    bar = half_warm()
    integrator = make("nose-hoover", Moving(half_warm, temperature_K=50.0), 3 * len(bar), comm)
    run = simulate(bar, argon(bar, shift=True), integrator, 100, 10, comm, skin=1.0)
    found["A-27/kinetic"], found["A-27/positions"] = run.kinetic_energies, run.positions
    found["A-27/conserved"] = np.array([t.conserved_eV for t in run.thermo])
    return found


def compute_noise(comm: Comm) -> dict[str, np.ndarray]:
    """A-31: two atoms that never meet, at rest at first."""
    found = {}
    for number, seed in enumerate(SEEDS):
        atoms = in_box([(5, 10, 10), (25, 10, 10)], [40, 20, 20])
        run = simulate(atoms, argon(atoms), Langevin(units.FS, 300.0, 10.0 / units.PS, seed), 30, comm=comm)
        state = run.sim.state
        owners = by_id(state, torch.full((state.n_owned, 3), comm.rank, dtype=torch.float64), comm)
        found[f"{number}/positions"] = run.positions
        found[f"{number}/owners"] = np.empty(0) if owners is None else owners[:, 0]
    return found
