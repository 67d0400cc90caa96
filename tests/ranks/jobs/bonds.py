"""Molecules of fixed bonds, frozen atoms and a stopped cluster, for a hundred steps each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from ase import Atoms

from mdrun import units
from mdrun.comm import Comm
from mdrun.integrate.base import Integrator
from mdrun.integrate.bonds import Bonds, make_bonds
from mdrun.integrate.constraints import Constrained
from mdrun.integrate.momentum import Stopping
from mdrun.integrate.nvt import Andersen, Langevin, ScaledVerlet
from mdrun.integrate.thermostats import NoseHooverChain
from mdrun.integrate.verlet import FREE, Motion, VelocityVerlet
from tests.molecules import BetweenMolecules, bonds_between, triatomics, warmed
from tests.ranks.builders import in_box
from tests.ranks.builders import warmed as heated
from tests.ranks.cases import argon
from tests.systems import by_id, pfcc, simulate

N_STEPS = 100
SKIN = 0.3
ENSEMBLES = ("nve", "langevin", "nose-hoover", "andersen")
KELVIN = 900.0


def endless_chain() -> tuple[Atoms, Bonds]:
    """One molecule through all of the cell and into itself again; three atoms hang loose at each of its own."""
    n, apart = 16, 1.5
    x = apart * np.arange(n)
    backbone = np.column_stack([x, 5 + 0.3 * (-1.0) ** np.arange(n), np.full(n, 5.0)])
    loose = np.concatenate([backbone + np.array([0, dy, dz]) for dy, dz in ((3.0, 0.5), (-3.0, 0), (0, 3.5))])
    atoms = Atoms(f"Ar{4 * n}", positions=np.concatenate([backbone, loose]), cell=[n * apart, 10, 10], pbc=True)
    ring = np.column_stack([np.arange(n), (np.arange(n) + 1) % n])
    shifts = np.zeros((n, 3), int)
    shifts[-1, 0] = -1
    apart_ = atoms.positions[ring[:, 0]] - atoms.positions[ring[:, 1]] - shifts @ atoms.cell.array
    return atoms, make_bonds(ring, shifts, np.linalg.norm(apart_, axis=1))


def make(ensemble: str, n_dof: int, comm: Comm, motion: Motion) -> Integrator:
    timestep = 2 * units.FS
    if ensemble == "nve":
        return VelocityVerlet(timestep, motion)
    if ensemble == "langevin":
        return Langevin(timestep, KELVIN, 5 / units.PS, 11, motion)
    if ensemble == "andersen":
        return Andersen(timestep, KELVIN, 5 / units.PS, 11, motion)
    return ScaledVerlet(timestep, NoseHooverChain(KELVIN, 50 * units.FS), n_dof, comm, motion)


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    systems: dict[str, Callable[[], tuple[Atoms, Bonds]]] = {
        "triatomics": lambda: triatomics(3, apart=4.5),
        "endless chain": endless_chain,
    }
    for name, build in systems.items():
        for ensemble in ENSEMBLES if name == "triatomics" else ENSEMBLES[:2]:
            atoms, bonds = build()
            size = 3 if name == "triatomics" else 16
            n_dof = 3 * len(atoms) - 3 - len(bonds)
            warmed(atoms, bonds, KELVIN, n_dof)
            integrator = make(ensemble, n_dof, comm, Constrained(bonds, comm))
            run = simulate(atoms, BetweenMolecules(size), integrator, N_STEPS, 25, comm, SKIN)
            key = f"{name}/{ensemble}"
            found[f"{key}/positions"], found[f"{key}/momenta"] = run.positions, run.momenta
            found[f"{key}/thermo"] = np.array([[t.conserved_eV, t.pressure_GPa] for t in run.thermo])
            found[f"{key}/owners"] = owners(run.sim.state, comm)
            found[f"{key}/migrations"] = comm.all_sum(torch.tensor(run.sim.domain.counts.migrations)).numpy()
    return found | frozen(comm) | stopped(comm)


def owners(state, comm: Comm) -> np.ndarray:
    """(n,) rank of each atom."""
    values = by_id(state, torch.full((state.n_owned, 3), comm.rank, dtype=torch.float64), comm)
    return np.empty(0) if values is None else values[:, 0]


def frozen(comm: Comm) -> dict[str, np.ndarray]:
    """A-09: a fixed atom and one that moves on either side of a border; and a bond of a fixed one and a free one."""
    found = {}
    pair = in_box([(0.0, 0, 0), (3.6, 0, 0)], [0] * 3, False)
    mobile = np.array([[False] * 3, [True] * 3])
    bonds = bonds_between(pair, [(0, 1)])
    pair.set_momenta([[0, 0, 0], [0, 0.3, 0.1]])
    for name, held in (("free", None), ("tied", bonds)):
        for ensemble in ENSEMBLES:
            motion = FREE if held is None else Constrained(held, comm)
            n_dof = 3 - (0 if held is None else 1)
            run = simulate(pair, argon(pair), make(ensemble, n_dof, comm, motion), N_STEPS, 0, comm, SKIN, mobile)
            found[f"frozen/{name}/{ensemble}/positions"] = run.positions
            found[f"frozen/{name}/{ensemble}/owners"] = owners(run.sim.state, comm)
    return found


def stopped(comm: Comm) -> dict[str, np.ndarray]:
    cluster = heated(pfcc(2, 2, 2), 60.0)
    cluster.pbc = False
    integrator = Stopping(Langevin(2 * units.FS, 60, 5 / units.PS, 3), 10, np.eye(3), comm)
    run = simulate(cluster, argon(cluster), integrator, N_STEPS, 10, comm, SKIN)
    return {
        "stopped/positions": run.positions,
        "stopped/momenta": run.momenta,
        "stopped/conserved": np.array([t.conserved_eV for t in run.thermo]),
    }
