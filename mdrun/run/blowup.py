"""What a run that became unphysical leaves behind: the atoms concerned with all around them, and the last good frame.

No rank waits for another here but by the store, for a few seconds: where the others are, nobody knows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from mdrun.comm import Comm
from mdrun.errors import MdrunError, PeerError, SimulationError
from mdrun.neighborhood import Neighborhood
from mdrun.run.directory import LAST_GOOD, SHARE
from mdrun.run.simulation import Simulation
from mdrun.run.thermo import Thermometer
from mdrun.run.trajectories.text import write_frame
from mdrun.run.trajectory import move_mask
from mdrun.state import State
from mdrun.units import KB

if TYPE_CHECKING:
    from ase import Atoms


class Limit:
    """An observer that stops the run where it has become hotter than the user allows; nobody's sum is taken twice."""

    def __init__(self, most: float, thermometer: Thermometer, comm: Comm) -> None:
        self._most, self._thermometer, self._comm = most, thermometer, comm

    def __call__(self, sim: Simulation) -> None:
        """Look; a collective where it is too hot.

        Raises:
            SimulationError: on the rank that owns the atom with the most kinetic energy.
            PeerError: on the others.
        """
        found = self._thermometer(sim).temperature_K
        if found <= self._most:  # false for NaN too
            return
        kinetic = kinetic_energies(sim.state)
        row = int(kinetic.argmax()) if len(kinetic) else 0
        mine = [float(kinetic[row]), float(sim.state.ids[row])] if len(kinetic) else [-1.0, -1.0]
        everyone = self._comm.all_gather(torch.tensor(mine, dtype=torch.float64)).numpy()
        rank = int(everyone[:, 0].argmax())
        words = (
            f"the temperature, {found:.5g} K, is beyond --max-temperature {self._most:g}. The fastest atom, with the "
            f"kinetic energy of {everyone[rank, 0] / (1.5 * KB):.4g} K, is {everyone[rank, 1]:.0f}, on rank {rank}. "
            "Lower --timestep, relax the structure first, or check the model."
        )
        trouble: MdrunError = PeerError(words)
        if rank == self._comm.rank:
            hot = kinetic.argsort(descending=True)[:1]
            trouble = SimulationError(words, sim.domain.around(hot, sim.forces.forces))
        trouble.state_is_whole = True
        raise trouble


def kinetic_energies(state: State) -> torch.Tensor:
    """(n_owned,) eV, the kinetic energy of each atom; of one whose momentum is not finite more than any other."""
    kinetic = state.momenta.square().sum(dim=1) / state.masses / 2
    return torch.nan_to_num(kinetic, nan=1e300, posinf=1e300).cpu()


def write_neighborhood(around: Neighborhood, sim: Simulation, reason: str, path: Path) -> bool:
    """Write ``blowup.extxyz``: by the first rank that has something to show; whether this one was it.

    Raises:
        OSError: it can't be written.
    """
    from ase import Atoms

    # Images stand where they are seen: no axis is periodic here, although the cell is shown.
    header = Atoms(cell=sim.state.cell.numpy(), pbc=False)
    header.info = {
        "step": sim.step,
        "forces_of_step": sim.step - around.forces_are_old,
        "rank": around.rank,
        "reach": around.reach,
        "reason": reason.replace('"', "'"),
    }
    columns = {
        "positions": around.positions,
        "id": around.ids,
        "offends": around.offends,
        "owned": around.is_owned,
        "distance": around.distances,
        "forces": around.forces,
    }
    try:
        with path.open("x", encoding="utf-8") as file:
            write_frame(file, header, np.array(sim.state.numbers, np.uint8)[around.types], columns)
    except FileExistsError:
        return False
    return True


def share_of(sim: Simulation, state_is_whole: bool) -> dict[str, np.ndarray] | None:
    """This rank's atoms when all were last good: now, or else at the last rebuild, which all ranks made together.

    The latter costs a run that goes well nothing: the domain keeps these positions to see how far atoms move.
    """
    state = sim.state
    if state_is_whole:
        now = {name: getattr(state, name).cpu().numpy() for name in ("ids", "positions", "momenta")}
        return now | {"cell": state.cell.numpy(), "step": np.array(sim.step), "build": np.array(-1)}
    build = sim.domain.last_build()
    if build is None:
        return None
    atoms, cell, n_steps = build
    then = {name: atoms[name].cpu().numpy() for name in ("ids", "positions")}
    vectors = torch.where(torch.tensor(state.pbc)[:, None], cell, state.cell).numpy()
    build_number = np.array(sim.domain.counts.rebuilds)
    return then | {"cell": vectors, "step": np.array(sim.step - n_steps), "build": build_number}


class LastGood:
    """The way of all ranks' shares into ``last_good.extxyz``: through files, since ranks can't be waited for."""

    def __init__(self, directory: Path, run: str) -> None:
        self._directory, self._run = directory, run

    def _share(self, rank: int) -> Path:
        return self._directory / f"{SHARE}.{self._run}.{rank}.npz"

    def keep(self, share: dict[str, np.ndarray], rank: int) -> None:
        """Write one rank's share.

        Raises:
            OSError: it can't be.
        """
        with self._share(rank).open("wb") as file:
            np.savez(file, allow_pickle=False, **share)

    def join(self, n_ranks: int, template: Atoms, mobile: np.ndarray, last_good_step: int) -> str:
        """Make one file of the shares of ``n_ranks`` (0: they are not all there) and remove them; what to tell of it.

        Args:
            template: what the structure's file said of the atoms that does not change.
            mobile: (n_atoms, 3) components that may move.

        Raises:
            OSError: it can't be written.
        """
        shares = []
        for rank in range(n_ranks):
            with np.load(self._share(rank), allow_pickle=False) as file:
                shares.append(dict(file))
        for path in self._directory.glob(f"{SHARE}.{self._run}.*"):
            path.unlink()
        whole = _joined(shares, len(template))
        if whole is None:
            return ""
        step, is_good = int(shares[0]["step"]), int(shares[0]["step"]) <= last_good_step
        constants = {n: v for n, v in template.arrays.items() if n not in ("numbers", "positions", "momenta")}
        header = template[:0]
        header.info = dict(template.info) | {"step": step, "forces_are_good": is_good}
        header.set_cell(shares[0]["cell"])
        path = self._directory / LAST_GOOD
        with path.open("w", encoding="utf-8") as file:
            write_frame(file, header, template.numbers.astype(np.uint8), whole | move_mask(mobile) | constants)
        what = "all atoms" if "momenta" in whole else "the positions of all atoms"
        return f" {path} has {what} at step {step}{'' if is_good else ', which is the bad one'}."


def _joined(shares: list[dict[str, np.ndarray]], n_atoms: int) -> dict[str, np.ndarray] | None:
    """Positions, and momenta where they are known, by id; None where the shares are not those of one moment."""
    if len({int(share["build"]) for share in shares}) != 1:
        return None
    ids = np.concatenate([share["ids"] for share in shares])
    if not np.array_equal(np.sort(ids), np.arange(n_atoms)):
        return None
    order = np.argsort(ids)
    whole: dict[str, np.ndarray] = {}
    for name in ("positions", "momenta"):
        if name in shares[0]:
            whole[name] = np.concatenate([share[name] for share in shares])[order]
    return whole if all(np.isfinite(values).all() for values in whole.values()) else None
