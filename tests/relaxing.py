"""Relaxations by the program's own loop, in this process, and structures whose minima are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from ase import Atoms
from ase.build import bulk
from ase.cluster import Icosahedron, Octahedron

from mdrun import units
from mdrun.backends.base import Backend
from mdrun.backends.on_cpu import NumbaBackend
from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.optimize.landscape import Landscape
from mdrun.optimize.straining import make_straining
from mdrun.potentials.base import ForceModel
from mdrun.potentials.lennard_jones import make_lennard_jones
from mdrun.run.relaxation import SEARCHES, Relaxation, relax
from mdrun.run.simulation import Observer, Simulation, start
from mdrun.scope import Scope
from mdrun.units import VOIGT
from tests.systems import by_id, state_of

# Å and eV stand for σ and ε. Global minima: D. J. Wales, J. P. K. Doye, J. Phys. Chem. A 101 (1997) 5111.
LENNARD_JONES_MINIMA = {13: -44.326801, 38: -173.928427, 55: -279.248470}


@dataclass
class Relaxed:
    """A relaxation at its end, and what was seen on the way.

    Attributes:
        positions: (n_frames, n, 3) Å in input order, step 0 first; on rank 0.
        enthalpies: (n_steps + 1,) eV.
        cells: (n_frames, 3, 3) Å.
    """

    sim: Simulation
    relaxation: Relaxation
    is_converged: bool
    positions: np.ndarray
    enthalpies: np.ndarray
    cells: np.ndarray

    @property
    def enthalpy(self) -> float:
        return float(self.enthalpies[-1])

    @property
    def cell(self) -> np.ndarray:
        return self.cells[-1]

    @property
    def volume(self) -> float:
        return float(abs(np.linalg.det(self.cell)))


def relaxed(
    atoms: Atoms, model: ForceModel, optimizer: str = "lbfgs", fmax: float = 1e-4, cell: str | None = None,
    mask: Sequence[str] = tuple(VOIGT), pressure_GPa: float = 0.0, stress_max_GPa: float = 1e-4, most: int = 1000,
    mobile: np.ndarray | None = None, comm: Comm | None = None, skin: float = 1.0, backend: Backend | None = None,
) -> Relaxed:  # fmt: skip
    """Down to a minimum, or ``most`` steps towards it."""
    comm = comm or Comm()
    state = state_of(atoms, comm)
    if mobile is not None:
        state.mobile = torch.from_numpy(mobile)[state.ids].clone()
    straining = None
    if cell is not None and comm.rank == 0:
        straining = make_straining(state, cell, mask, pressure_GPa * units.GPA)
    landscape = Landscape(comm, comm.broadcast(straining))
    relaxation = Relaxation(landscape, SEARCHES[optimizer](landscape), fmax, stress_max_GPa * units.GPA)
    frames, enthalpies, cells = [], [], []

    def look(sim: Simulation) -> None:
        assert relaxation.point is not None
        frames.append(by_id(sim.state, sim.state.positions, comm))
        enthalpies.append(relaxation.point.enthalpy)
        cells.append(sim.state.cell.numpy().copy())

    domain = Domain(comm, model.cutoff, skin, backend=backend or NumbaBackend())
    state.move_to(domain.backend.device)
    with Scope(model, domain, len(atoms)) as scope:
        sim = Simulation(state, domain, scope, relaxation, n_dof=3 * len(atoms))
        sim.observers = [relaxation.observer, Observer(1, look)]
        start(sim)
        is_converged = relax(sim, relaxation, most)
    seen = np.array(frames) if comm.rank == 0 else np.empty(0)
    return Relaxed(sim, relaxation, is_converged, seen, np.array(enthalpies), np.array(cells))


def lennard_jones_units() -> ForceModel:
    """ε = σ = 1, cut off where nothing is left of it."""
    return make_lennard_jones({(0, 0): (1.0, 1.0)}, 1, 50.0, False, "Lennard-Jones")


def cluster(n: int, rattle: float = 0.0, seed: int = 1) -> Atoms:
    """Near a global minimum: two Mackay icosahedra, and the truncated octahedron of 38."""
    atoms = Octahedron("Ar", 4, 1) if n == 38 else Icosahedron("Ar", {13: 2, 55: 3}[n])
    distances = atoms.get_all_distances()
    scale = 2 ** (1 / 6) / distances[distances > 0].min()
    found = Atoms(f"Ar{n}", positions=atoms.positions * scale)
    found.rattle(rattle, seed=seed)
    return found


def disturbed(symbol: str, lattice: str, a: float, repeats: int, shear: float = 0.08, rattle: float = 0.05) -> Atoms:
    """A cubic crystal 5 % too large, sheared and stretched at random, every atom displaced."""
    atoms = bulk(symbol, lattice, a=1.05 * a, cubic=True).repeat(repeats)
    skew = np.eye(3) + shear * np.random.default_rng(3).uniform(-1, 1, (3, 3))
    atoms.set_cell(atoms.cell.array @ skew, scale_atoms=True)
    atoms.rattle(rattle, seed=2)
    return atoms
