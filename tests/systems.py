"""Systems by name, and one force evaluation through the program's own path, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from ase import Atoms

from mdrun.backends.base import Backend
from mdrun.backends.on_cpu import NumbaBackend
from mdrun.cell import volume
from mdrun.comm import Comm
from mdrun.decompose.migrate import pack_rows, unpack_rows
from mdrun.domain import NOWHERE, Domain
from mdrun.integrate.base import Integrator
from mdrun.integrate.velocities import DegreesOfFreedom, is_at_rest
from mdrun.integrate.verlet import FREE
from mdrun.lanes import LANES
from mdrun.potentials.base import ForceModel, Forces
from mdrun.potentials.lennard_jones import make_lennard_jones
from mdrun.run.simulation import Observer, Simulation, run, start
from mdrun.run.thermo import Thermo, measure
from mdrun.scope import Scope
from mdrun.state import FIELDS, Field, State
from mdrun.strategies.choice import choose_strategy

DATA = Path(__file__).parent / "data"
# The pair potentials of the reference set, from what index_pairs.json says of them.
REFERENCE_PAIRS = {
    "morse": "morse:D={D_eV},a={alpha_invA},r0={r0_A},cutoff={cutoff_A},shift={shift}",
    "zbl": "zbl:inner={inner_A},outer={outer_A}",
    "coulomb dsf": "dsf:alpha={alpha_invA},cutoff={cutoff_A}",
}


@dataclass
class Result:
    """Energy eV, forces (n, 3) eV/Å in input order, stress (3, 3) eV/Å³ tensile positive or None."""

    energy: float
    forces: np.ndarray
    stress: np.ndarray | None


def species_of(atoms: Atoms) -> tuple[int, ...]:
    return tuple(sorted({int(z) for z in atoms.numbers}))


def state_of(atoms: Atoms, comm: Comm | None = None) -> State:
    """All atoms on rank 0, none elsewhere, as a run starts."""
    rows = np.arange(len(atoms)) if comm is None or comm.rank == 0 else np.arange(0)
    numbers = species_of(atoms)
    return State(
        cell=torch.from_numpy(np.array(atoms.cell.array)),
        pbc=tuple(bool(p) for p in atoms.pbc),
        numbers=numbers,
        ids=torch.from_numpy(rows),
        types=torch.from_numpy(np.searchsorted(numbers, atoms.numbers[rows]).astype(np.int32)),
        charges=torch.from_numpy(atoms.get_initial_charges()[rows]),
        masses=torch.from_numpy(atoms.get_masses()[rows]),
        mobile=torch.ones((len(rows), 3), dtype=torch.bool),
        positions=torch.from_numpy(atoms.positions[rows].copy()),
        momenta=torch.from_numpy(atoms.get_momenta()[rows].copy()),
        n_total=len(atoms),
    )


def by_id(state: State, values: torch.Tensor, comm: Comm) -> np.ndarray | None:
    """(n, 3) rows of all ranks in input order, on rank 0."""
    fields = (FIELDS[0], Field("values", (3,), torch.float64))
    rows = comm.gather(pack_rows({"ids": state.ids, "values": values}, fields).cpu())
    if rows is None:
        return None
    table = unpack_rows(rows, fields)
    return table["values"][table["ids"].argsort()].numpy()


def result_of(state: State, forces: Forces, comm: Comm) -> Result:
    """Sums over ranks; forces on rank 0 only, empty elsewhere."""
    assert forces.energy is not None
    assert forces.virial is not None
    sums = comm.all_sum(torch.cat([torch.tensor([forces.energy], dtype=torch.float64), forces.virial.flatten()]))
    v = volume(state.cell, state.pbc)
    stress = None if v != v else (-sums[1:].reshape(3, 3) / v).numpy()
    gathered = by_id(state, forces.forces, comm)
    return Result(float(sums[0]), np.empty((0, 3)) if gathered is None else gathered, stress)


def evaluate(
    atoms: Atoms,
    model: ForceModel,
    comm: Comm | None = None,
    skin: float = 1.0,
    backend: Backend | None = None,
    strategy: str = "auto",
) -> Result:
    """Energy, forces and stress of one configuration on the ranks of ``comm``, a single process by default."""
    comm = comm or Comm()
    state = state_of(atoms, comm)
    domain = Domain(comm, model.cutoff, skin, backend=backend or NumbaBackend())
    state.move_to(domain.backend.device)
    with Scope(model, domain, len(atoms), choose_strategy(strategy, model)) as scope:
        domain.follow(state)
        return result_of(state, scope(domain, totals=True), comm)


def pfcc(nx: int, ny: int, nz: int, a: float = 5.26) -> Atoms:
    """The casebook's perturbed argon fcc: every atom displaced by 0.15 Å along sines of its index."""
    basis = np.array([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])
    corners = np.stack(np.meshgrid(range(nx), range(ny), range(nz), indexing="ij"), -1).reshape(-1, 1, 3)
    positions = ((corners + basis) * a).reshape(-1, 3)
    n = np.arange(len(positions))
    positions += 0.15 * np.stack([np.sin(n + 0.1), np.sin(2 * n + 0.2), np.sin(3 * n + 0.3)], axis=1)
    return Atoms(f"Ar{len(positions)}", positions=positions, cell=[nx * a, ny * a, nz * a], pbc=True)


@dataclass
class Run:
    """A simulation at its end, and what was seen on the way.

    Attributes:
        thermo: of every watched step, step 0 first.
        positions, momenta: (n_frames, n, 3) in input order, unwrapped, of the same steps; on rank 0.
    """

    sim: Simulation
    thermo: list[Thermo]
    positions: np.ndarray
    momenta: np.ndarray

    @property
    def total_energies(self) -> np.ndarray:
        return np.array([t.total_eV for t in self.thermo])

    @property
    def kinetic_energies(self) -> np.ndarray:
        return np.array([t.kinetic_eV for t in self.thermo])


def simulate(
    atoms: Atoms, model: ForceModel, integrator: Integrator, n_steps: int, watch: int = 0,
    comm: Comm | None = None, skin: float = 1.0, mobile: np.ndarray | None = None, observers: Sequence[Observer] = (),
    backend: Backend | None = None, check_every: int = 1, strategy: str = "auto",
) -> Run:  # fmt: skip
    """Run the program's own loop in this process; look at every ``watch``-th step, or at the first and last alone.

    Args:
        mobile: (n, 3) components that may move; all by default.
        observers: others that look on.
    """
    comm = comm or Comm()
    state = state_of(atoms, comm)
    mobile_of_all = torch.from_numpy(np.ones((len(atoms), 3), bool) if mobile is None else mobile)
    state.mobile = mobile_of_all[state.ids].clone()
    momenta = torch.from_numpy(atoms.get_momenta())
    is_at_zero = integrator.conserves_momentum and len(atoms) > 1 and is_at_rest(momenta)
    thermo: list[Thermo] = []
    frames: list[tuple[np.ndarray | None, np.ndarray | None]] = []

    def look(sim: Simulation) -> None:
        thermo.append(measure(sim, comm))
        frames.append((by_id(sim.state, sim.state.positions, comm), by_id(sim.state, sim.state.momenta, comm)))

    domain = Domain(comm, model.cutoff, skin, check_every, backend or NumbaBackend())
    state.move_to(domain.backend.device)
    with Scope(model, domain, len(atoms), choose_strategy(strategy, model)) as scope:
        motion = getattr(integrator, "motion", FREE)
        freedom = DegreesOfFreedom(mobile_of_all, is_at_zero, n_bonds=motion.n_constraints)
        sim = Simulation(state, domain, scope, integrator, freedom.count, motion)
        sim.observers = [Observer(watch or max(n_steps, 1), look), *observers]
        start(sim)
        run(sim, n_steps)
    positions, momenta_seen = (np.array(seen) if comm.rank == 0 else np.empty(0) for seen in zip(*frames, strict=True))
    return Run(sim, thermo, positions, momenta_seen)


def listed_pair(distance: float) -> SimpleNamespace:
    """A domain of two atoms of type 0 that list each other, whatever their distance (Å)."""
    return _domain(torch.tensor([[0.0, 0, 0, 0], [distance, 0, 0, 0]], dtype=torch.float64), [1, 0])


def empty_domain() -> SimpleNamespace:
    """The domain of a rank that owns nothing and sees nothing."""
    return _domain(torch.empty((0, 4), dtype=torch.float64), [])


def _domain(rows: torch.Tensor, neighbor_of: list[int]) -> SimpleNamespace:
    n = len(rows)
    packed = torch.cat([rows, torch.tensor([[NOWHERE, NOWHERE, NOWHERE, 0]], dtype=torch.float64)])
    neighbors = torch.full((n, 2 * LANES if n else 0), n, dtype=torch.int32)  # filled up with the row far away
    neighbors[:, :1] = torch.tensor(neighbor_of, dtype=torch.int32)[:, None]
    return SimpleNamespace(
        packed=packed,
        packed_in=lambda dtype: torch.from_numpy(packed.numpy().astype(dtype)),
        reach_in_single=lambda reach: reach * (1 + 1e-6),
        positions=packed[:-1, :3].T,
        types=torch.zeros(n, dtype=torch.int32),
        charges=torch.zeros(n, dtype=torch.float64),
        neighbors=neighbors,
        n_neighbors=torch.ones(n, dtype=torch.int32),
        n_owned=n,
        n_padded=n,
    )


def argon(cutoff: float = 8.5, shift: bool = False, n_types: int = 1) -> ForceModel:
    """The casebook's Lennard-Jones argon; all types alike where there are several."""
    pairs = {(a, b): (0.0104, 3.40) for a in range(n_types) for b in range(a, n_types)}
    return make_lennard_jones(pairs, n_types, cutoff, shift, "argon")


def free_particles(n_types: int = 1) -> ForceModel:
    """Atoms that do not feel each other."""
    return make_lennard_jones({(a, b): (0.0, 1.0) for a in range(n_types) for b in range(a, n_types)}, n_types, 1.0,
                              False, "free")  # fmt: skip
