"""Limited-memory BFGS in which ranks exchange inner products only."""

from __future__ import annotations

import numpy as np
import torch

from mdrun.optimize.landscape import Landscape, Point, Vector, Vectors
from mdrun.state import State

HISTORY = "lbfgs_history"
STIFFNESS = 70.0  # eV/Å², of everything, before anything is known; ASE's
DECREASE = 1e-4  # of what the slope promises, at least
NOISE = 1e-10  # of the enthalpy, below which a rise is none
MOST_TRIES = 10  # shorter steps along one direction
NO_CHANGE = 1e-8  # of the gradient, over a step that was too short to learn from
LEAST_RISE = 1e-6  # of the slope along a step, as the cosine of s and y, for a pair that is remembered


class LBFGS:
    """L-BFGS: J. Nocedal, Math. Comput. 35 (1980) 773, doi 10.1090/S0025-5718-1980-0572855-7.

    The two loops run over inner products of the vectors in memory, not over the vectors: W. Chen, Z. Wang, J. Zhou,
    *Large-scale L-BFGS using MapReduce*, NIPS (2014). One sum over ranks gives them for a step. A step that does not
    lower the enthalpy enough is shortened. Where rounding or an energy that steps at a cutoff hides the decrease, the
    slope at its end decides: W. W. Hager, H. Zhang, SIAM J. Optim. 16 (2005) 170, doi 10.1137/030601880.

    Slots of the history: m steps s, m changes of the gradient y, the gradient g where the present direction began, and
    that direction d.
    """

    def __init__(self, landscape: Landscape, memory: int = 10, longest_step: float = 0.2) -> None:
        """``longest_step`` Å, of the atom that moves farthest."""
        self._landscape = landscape
        self._memory = memory
        self._longest_step = longest_step
        self._g, self._d = 2 * memory, 2 * memory + 1
        self._cell = torch.zeros(0, dtype=torch.float64)  # the slots' part for the cell
        self._products = np.zeros((2 * memory + 1,) * 2)  # of the slots but d
        self._pairs: list[int] = []  # slots of the pairs in memory, oldest first
        self._softness = 1 / STIFFNESS
        self._enthalpy = self._slope = self._share = 0.0  # where d began; dH along d there; how much of d was tried
        self._n_tries = 0

    def step(self, state: State, point: Point) -> Vector:
        if HISTORY not in state.carried:
            state.carried[HISTORY] = state.positions.new_zeros((state.n_owned, self._d + 1, 3))
            self._cell = torch.zeros((self._d + 1, self._landscape.n_strains), dtype=torch.float64)
            new = Vectors.of(point.gradient)
            slots = self._slots(state)
            products = self._landscape.inner_products(new, slots.first(self._d), new)
            self._keep(slots, new, [(self._g, 0)], products)
            return self._turn(state, point.enthalpy)
        slots = self._slots(state)
        s, g = slots[self._d].scaled(self._share), slots[self._g]
        y = Vector(point.gradient.rows - g.rows, point.gradient.cell - g.cell)
        new = Vectors.of(s, y, point.gradient)
        products = self._landscape.inner_products(new, slots.first(self._d), new)
        share = self._shorter_share(point.enthalpy, slope=products[-1, 0] / self._share)
        if share < self._share:
            change, self._share = share - self._share, share
            return slots[self._d].scaled(change)
        self._remember(slots, new, products)
        return self._turn(state, point.enthalpy)

    def describe(self) -> str:
        return f"L-BFGS, {self._memory} steps in memory"

    def _slots(self, state: State) -> Vectors:
        return Vectors(state.carried[HISTORY], self._cell)

    def _shorter_share(self, enthalpy: float, slope: float) -> float:
        """How much of d to try instead; as much as was tried where that will do."""
        tried, self._n_tries = self._share, self._n_tries + 1
        rise = enthalpy - self._enthalpy
        if rise <= DECREASE * tried * self._slope:
            return tried
        # An energy that rises where the slope at the end of a short step still falls has a step there, and no hill.
        is_hidden = rise <= NOISE * abs(self._enthalpy) or self._n_tries > 3
        if is_hidden and slope <= (2 * DECREASE - 1) * self._slope:
            return tried
        if self._n_tries > MOST_TRIES:
            self._pairs.clear()
            return tried
        level = tried * self._slope / (self._slope - slope) if slope > 0 else tried / 2  # where the slope may vanish
        return min(max(level, 0.1 * tried), 0.5 * tried)

    def _remember(self, slots: Vectors, new: Vectors, products: np.ndarray) -> None:
        """Put g into its slot, and s and y where the slope rises along the way, as it does near a minimum."""
        (ss, sy, _), (_, yy, _), (_, _, gg) = products[-3:]
        places = [(self._g, 2)]
        if sy > LEAST_RISE * (ss * yy) ** 0.5:
            slot = self._pairs.pop(0) if len(self._pairs) == self._memory else len(self._pairs)
            self._pairs.append(slot)
            places += [(slot, 0), (slot + self._memory, 1)]
        elif not self._pairs:  # the slope falls along the way: go farther
            self._softness *= 2
        elif yy < NO_CHANGE**2 * gg:  # what is remembered is far stiffer than it is here, as where atoms overlapped
            self._pairs.clear()
        self._keep(slots, new, places, products)

    def _keep(self, slots: Vectors, new: Vectors, places: list[tuple[int, int]], products: np.ndarray) -> None:
        """Write new vectors into slots, given as (slot, number), and their inner products into the table."""
        for slot, number in places:
            slots.put(slot, new[number])
            self._products[:, slot] = self._products[slot] = products[: self._d, number]
        for slot, number in places:  # those with each other, in place of those with what was there before
            for other, second in places:
                self._products[slot, other] = products[self._d + number, second]

    def _turn(self, state: State, enthalpy: float) -> Vector:
        """A new direction from here, no longer than allowed."""
        coefficients = self._two_loops()
        if not coefficients @ self._products[:, self._g] < 0:
            self._pairs.clear()
            coefficients = self._two_loops()
        slots = self._slots(state)
        whole = slots.first(self._d).combined(coefficients)
        d, scale = self._landscape.shortened(whole, self._longest_step)
        slots.put(self._d, d)
        self._slope = float(coefficients @ self._products[:, self._g]) * scale
        self._enthalpy, self._share, self._n_tries = enthalpy, 1.0, 0
        return d

    def _two_loops(self) -> np.ndarray:
        """The direction -H g as coefficients of the slots but d."""
        k, m = self._products, self._memory
        found = np.zeros(self._d)
        found[self._g] = -1.0
        shares = {}
        for s in reversed(self._pairs):
            shares[s] = float(found @ k[:, s]) / k[s, s + m]
            found[s + m] -= shares[s]
        last = self._pairs[-1] if self._pairs else None
        found *= self._softness if last is None else k[last, last + m] / k[last + m, last + m]
        for s in self._pairs:
            found[s] += shares[s] - float(found @ k[:, s + m]) / k[s, s + m]
        return found
