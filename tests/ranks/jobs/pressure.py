"""Cells that move: a hundred steps under every barostat, the casebook's, a box squeezed and released."""

from __future__ import annotations

import copy

import numpy as np
import torch

from mdrun import units
from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.run.simulation import Observer, Simulation
from mdrun.scope import Scope
from tests.physics.barostats import Deforming, barostat, squeezed_and_released
from tests.ranks.builders import argon_liquid, warmed
from tests.ranks.cases import argon
from tests.systems import by_id, pfcc, result_of, simulate

SKIN = 0.3  # small, so that lists are rebuilt and atoms migrate within a hundred steps
BOXES = {"iso": ("iso", None), "two coupled": ("xyz", "xy"), "triclinic": ("triclinic", None)}
RUNS = [
    ("mtk", "iso"),
    ("mtk", "triclinic"),
    ("nph", "two coupled"),
    ("stochastic", "triclinic"),
    ("stochastic and langevin", "iso"),
    ("berendsen", "two coupled"),
]
SQUEEZE_STEPS = 240
FS, GPA = units.FS, units.GPA


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    for name, box in RUNS:
        atoms = argon_liquid()
        integrator = barostat(
            name, atoms, 150.0, 0.05 * GPA, 4 * FS, *BOXES[box], period=400 * FS, compressibility=50.0, comm=comm
        )
        run = simulate(atoms, argon(atoms, shift=True), integrator, 100, comm=comm, skin=SKIN)
        found[f"{name}/{box}/positions"] = run.positions
        found[f"{name}/{box}/cell"] = run.sim.state.cell.numpy()
        found[f"{name}/{box}/conserved"] = np.array([t.conserved_eV for t in run.thermo])
        tally = [run.sim.domain.counts.rebuilds, run.sim.domain.counts.migrations]
        found[f"{name}/{box}/tally"] = comm.all_sum(torch.tensor(tally)).numpy()
    return found | _casebook(comm) | _squeezed(comm)


def _casebook(comm: Comm) -> dict[str, np.ndarray]:
    """A-26: 256 atoms at rest, 20 K, a barostat that soon moves the box; at 4 kbar, since 2 make 1.6 % of a side."""
    atoms = pfcc(4, 4, 4)
    integrator = barostat("mtk", atoms, 20.0, 0.4 * GPA, 2 * FS, period=200 * FS, comm=comm)
    run = simulate(atoms, argon(atoms, shift=True), integrator, 200, comm=comm, watch=20)
    return {
        "A-26/cell": run.sim.state.cell.numpy(),
        "A-26/energies": run.total_energies,
        "A-26/volumes": np.array([t.volume_A3 for t in run.thermo]),
    }


def _squeezed(comm: Comm) -> dict[str, np.ndarray]:
    """To 70 % of the volume and back; forces beside those of a halo and a list made anew, at many moments."""
    atoms = warmed(pfcc(4, 4, 4), 40.0)
    model = argon(atoms, shift=True)
    seen: dict[str, list] = {"wrong by": [], "volumes": [], "n atoms": []}

    def look(sim: Simulation) -> None:
        state = copy.copy(sim.state)
        state.replace_fields({name: values.clone() for name, values in state.fields().items()})
        domain = Domain(comm, model.cutoff, 1.0)
        with Scope(model, domain, len(atoms)) as scope:
            domain.follow(state)
            fresh = result_of(state, scope(domain, totals=True), comm)
        ours = by_id(sim.state, sim.forces.forces, comm)
        seen["wrong by"].append(0.0 if ours is None else np.abs(ours - fresh.forces).max() / np.abs(fresh.forces).max())
        seen["volumes"].append(abs(float(torch.linalg.det(sim.state.cell))))
        seen["n atoms"].append(int(domain.owned_by_rank.sum()))

    integrator = Deforming(2 * FS, squeezed_and_released(SQUEEZE_STEPS, 0.7))
    run = simulate(atoms, model, integrator, SQUEEZE_STEPS, comm=comm, skin=SKIN, observers=[Observer(24, look)])
    found = {f"squeezed/{name}": np.array(values) for name, values in seen.items()}
    found["squeezed/positions"] = run.positions
    found["squeezed/dangerous builds"] = np.array(run.sim.domain.counts.dangerous_builds)
    return found
