"""FIRE: motion downhill with inertia, which stops wherever it would climb."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mdrun.optimize.landscape import Landscape, Point, Vector, Vectors
from mdrun.state import State

VELOCITIES = "fire_velocities"
FIRST, LONGEST, SHORTEST = 0.1, 1.0, 0.002  # time steps, in ASE's unit for a mass of 1
MIXING, MIXING_DECAY = 0.25, 0.99
PATIENCE, GROWTH, CUT = 20, 1.1, 0.5


class Fire:
    """FIRE 2.0: J. Guénolé et al., Comput. Mater. Sci. 175 (2020) 109584, doi 10.1016/j.commatsci.2020.109584.

    After E. Bitzek et al., Phys. Rev. Lett. 97 (2006) 170201, doi 10.1103/PhysRevLett.97.170201; semi-implicit Euler
    steps, mixing before the step, half a step back where the motion turned uphill; the paper's parameters, and unit
    masses, so that light and heavy atoms relax alike.
    """

    def __init__(self, landscape: Landscape, longest_step: float = 0.2) -> None:
        """``longest_step`` Å, of the atom that moves farthest."""
        self._landscape = landscape
        self._longest_step = longest_step
        self._time, self._mixing, self._n_downhill = FIRST, MIXING, 0
        self._cell_velocity: Tensor | None = None

    def step(self, state: State, point: Point) -> Vector:
        force = point.gradient.scaled(-1.0)
        if self._cell_velocity is None:
            state.carried[VELOCITIES] = torch.zeros_like(state.positions)
            self._cell_velocity = torch.zeros_like(point.gradient.cell)
        both = Vectors.of(force, Vector(state.carried[VELOCITIES], self._cell_velocity))
        (ff, fv), (_, vv) = self._landscape.inner_products(both, both)
        back, goes_down = 0.0, bool(fv > 0)
        if goes_down:
            self._n_downhill += 1
            if self._n_downhill > PATIENCE:
                self._time = min(self._time * GROWTH, LONGEST)
                self._mixing *= MIXING_DECAY
        elif vv > 0:  # not at rest, as at the start
            self._n_downhill, self._mixing = 0, MIXING
            self._time = max(self._time * CUT, SHORTEST)
            back = self._time / 2
        # v ← v + t F, or t F after a turn; then v ← (1 - α) v + α F |v|/|F|: a combination of F and the old v.
        t, mixing, kept = (self._time, self._mixing, 1.0) if goes_down else (self._time, 0.0, 0.0)
        speed = (kept * (vv + 2 * t * fv) + t * t * ff) ** 0.5
        along_force = (1 - mixing) * t + (mixing * speed / ff**0.5 if mixing else 0.0)
        along_velocity = (1 - mixing) * kept
        state.carried[VELOCITIES], self._cell_velocity = both.combined(np.array([along_force, along_velocity]))
        move = both.combined(np.array([t * along_force, t * along_velocity - back]))
        return self._landscape.shortened(move, self._longest_step)[0]

    def describe(self) -> str:
        return "FIRE"
