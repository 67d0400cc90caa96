"""Motion of the system as a whole: what of it is conserved, how much there is, and taking it off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mdrun.clock import timed
from mdrun.comm import Comm
from mdrun.integrate.base import Integrator
from mdrun.integrate.kept import Remembers
from mdrun.potentials.base import Forces
from mdrun.state import State

STRAIGHT = 1e-10  # moments of inertia below this part of the largest are those of a line about itself


@dataclass(frozen=True)
class Flow:
    """Of all atoms, the same on every rank.

    Attributes:
        kinetic: eV, all of it.
        momentum: (3,) sqrt(amu·eV), on the host.
        mass: amu.
        centre: (3,) Å, of mass, by unwrapped positions.
    """

    kinetic: float
    momentum: Tensor
    mass: float
    centre: Tensor

    @property
    def velocity(self) -> Tensor:
        """(3,) of the centre of mass."""
        return self.momentum / self.mass

    @property
    def kinetic_of_drift(self) -> float:
        """eV, of the mass at the velocity of its centre."""
        return float(self.momentum.square().sum()) / (2 * self.mass)


def measure_flow(state: State, comm: Comm) -> Flow:
    """A collective."""
    moment = (state.masses[:, None] * state.positions).sum(dim=0)
    local = torch.cat(
        [state.kinetic_energy()[None], state.momenta.sum(dim=0), state.masses.sum()[None], moment]
    )  # fmt: skip
    total = comm.all_sum(local).cpu()
    return Flow(float(total[0]), total[1:4], float(total[4]), total[5:8] / total[4])


def rotation_axes(cell: Tensor, pbc: tuple[bool, bool, bool]) -> np.ndarray:
    """(k, 3) unit vectors about which the system may turn and look the same to the model: their angular momentum is
    conserved.

    Any of a cluster's; the periodic axis of a wire; none where two axes are periodic.
    """
    if not any(pbc):
        return np.eye(3)
    if sum(pbc) > 1:
        return np.empty((0, 3))
    axis = cell.numpy()[pbc.index(True)]
    return (axis / np.linalg.norm(axis))[None]


@dataclass(frozen=True)
class Rotation:
    """About axes through the centre of mass, the same on every rank.

    Attributes:
        axes: (k, 3).
        momentum: (k,) angular momentum, Å·sqrt(amu·eV).
        inertia: (k, k) amu·Å².
        centre: (3,) Å.
    """

    axes: np.ndarray
    momentum: np.ndarray
    inertia: np.ndarray
    centre: Tensor

    @property
    def n_free(self) -> int:
        """How many of the rotations move an atom: 3 of most clusters, 2 of a straight one, 0 of one atom."""
        return len(self._turning[0])

    @property
    def rate(self) -> np.ndarray:
        """(3,) angular velocity, of the motion with this momentum and the least energy."""
        moments, vectors = self._turning
        return (vectors / moments @ (vectors.T @ self.momentum)) @ self.axes

    @property
    def _turning(self) -> tuple[np.ndarray, np.ndarray]:
        moments, vectors = np.linalg.eigh(self.inertia)
        turns = moments > max(STRAIGHT * moments.max(initial=0.0), 1e-12)
        return moments[turns], vectors[:, turns]


def measure_rotation(state: State, axes: np.ndarray, flow: Flow, comm: Comm) -> Rotation:
    """A collective, where there are axes."""
    k = len(axes)
    if k == 0:
        return Rotation(axes, np.empty(0), np.empty((0, 0)), flow.centre)
    arms = _arms(state, axes, flow.centre)
    momenta = state.momenta - state.masses[:, None] * flow.velocity.to(state.momenta)
    angular = (arms * momenta).sum(dim=(1, 2))
    inertia = (arms[:, None] * arms[None] * state.masses[:, None]).sum(dim=(2, 3))
    total = comm.all_sum(torch.cat([angular, inertia.flatten()])).cpu().numpy()
    return Rotation(axes, total[:k], total[k:].reshape(k, k), flow.centre)


def _arms(state: State, axes: np.ndarray, centre: Tensor) -> Tensor:
    """(k, n, 3) Å, the velocity of each atom where all turn about each axis at rate 1."""
    r = state.positions - centre.to(state.positions)
    return torch.stack([torch.linalg.cross(torch.as_tensor(axis).to(r).expand_as(r), r) for axis in axes])


def stop(state: State, axes: np.ndarray, comm: Comm) -> float:
    """Take off the velocity of the centre of mass and the rotation about ``axes``, in place; a collective.

    Returns:
        eV, what this rank's atoms lost.
    """
    before = state.kinetic_energy()
    flow = measure_flow(state, comm)
    rotation = measure_rotation(state, axes, flow, comm)
    velocities = flow.velocity.to(state.momenta)
    if len(axes):
        r = state.positions - flow.centre.to(state.positions)
        velocities = velocities + torch.linalg.cross(torch.as_tensor(rotation.rate).to(r).expand_as(r), r)
    state.momenta.sub_(state.masses[:, None] * velocities)
    return float(before - state.kinetic_energy())


class Stopping(Remembers):
    """Any integrator, and every so many steps the system's motion as a whole is stopped.

    What that takes counts as heat, so that the conserved energy stays.
    """

    summed_over_ranks = ("_lost",)
    parts = ("_inner",)

    def __init__(self, inner: Integrator, every: int, axes: np.ndarray, comm: Comm) -> None:
        """``axes`` (k, 3) about which rotation is stopped too."""
        self._inner, self._every, self._axes, self._comm = inner, every, axes, comm
        self.timestep = inner.timestep
        self.conserves_momentum = inner.conserves_momentum
        self.needs_virial = inner.needs_virial
        self._lost = 0.0
        self._step = 0

    @property
    def ensemble(self) -> str:
        return self._inner.ensemble

    @property
    def pressure(self) -> float | None:
        return self._inner.pressure

    @property
    def heat(self) -> float:
        return self._inner.heat + self._lost

    def before_forces(self, state: State, forces: Forces, step: int) -> None:
        self._step = step
        self._inner.before_forces(state, forces, step)

    def after_forces(self, state: State, forces: Forces) -> None:
        self._inner.after_forces(state, forces)
        if (self._step + 1) % self._every == 0:
            self._stop(state)

    @timed("integration")
    def _stop(self, state: State) -> None:
        self._lost += stop(state, self._axes, self._comm)

    def describe(self) -> str:
        kinds = {0: "momentum", 1: "momentum and rotation about the periodic axis", 3: "momentum and angular momentum"}
        every = f"every {self._every} steps" if self._every > 1 else "every step"
        return f"{self._inner.describe()}, {kinds[len(self._axes)]} zeroed {every}"
