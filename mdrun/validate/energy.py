"""Conservation of the energy, and how its fluctuation falls with the time step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from mdrun.run.ensemble_options import barostat_of, thermostat_of
from mdrun.run.settings import Settings
from mdrun.run.simulation import Observer, Simulation, run
from mdrun.run.thermo import measure
from mdrun.validate.forces import sampled_ids
from mdrun.validate.series import drift
from mdrun.validate.subject import CONSTANT_ENERGY, Evaluator, Subject
from mdrun.validate.verdict import FAIL, PASS, WARN, Check, skipped

NAME = "energy"
LEAST_ORDER, MOST_ORDER = 1.5, 2.6  # velocity Verlet's is 2
MOST_FLUCTUATION = 0.2  # of the kinetic energy's: beyond it the time step is too long for whatever one does
WORST_DRIFT, POOR_DRIFT = 1e-3, 1e-4  # of the kinetic energy per ps: all of it in 1 ns, or a tenth
SMALL, LONGEST = 0.01, 4  # where the total energy's fluctuation is so small, of the kinetic's, longer steps are tried
SIGNIFICANT = 5.0  # standard errors
ROUNDING = {"double": 1e-10, "mixed": 1e-6, "single": 1e-5}  # of the kinetic energy
SCAN_ATOMS, SCAN_POINTS, SCAN_WIDTH = 8, 200, 0.2  # Å
STEP_IS = 30.0  # times the usual mismatch of energy and work between two points
LEAST_STEP = 1e-9  # eV


@dataclass(frozen=True)
class Conservation:
    """Total energy along an NVE run.

    Attributes:
        fluctuation: standard deviation of the total energy beside its drift, eV.
        drift, drift_error: eV/ps.
        kinetic, kinetic_fluctuation: eV.
    """

    fluctuation: float
    drift: float
    drift_error: float
    kinetic: float
    kinetic_fluctuation: float

    @property
    def relative(self) -> float:
        """The total energy's fluctuation, of the kinetic energy's."""
        return self.fluctuation / max(self.kinetic_fluctuation, 1e-300)


def check_energy(subject: Subject, n_steps: int) -> Check:
    """NVE from the start at the time step and at half of it, over the same time.

    At a short step the fluctuation may be that of rounding, or of forces that jump at the cutoff, which fall slower:
    where it is small, longer steps are tried before the order is called wrong.
    """
    timestep = subject.settings.timestep
    whole = conservation(subject, timestep, n_steps, 1)
    if whole is None:
        return skipped(NAME, "the model tells no energy: nothing is known of its conservation.")
    if whole.kinetic <= 0:
        return skipped(NAME, "nothing moves: give --init-temperature.")
    half = conservation(subject, timestep / 2, 2 * n_steps, 2)
    assert half is not None
    order, longest = order_of(whole, half), whole
    at = timestep
    while order < LEAST_ORDER and at < LONGEST * timestep and longest.relative < SMALL:
        longer = conservation(subject, 2 * at, round(n_steps * timestep / (2 * at)), 1)
        assert longer is not None
        order, longest, at = order_of(longer, longest), longer, 2 * at
    is_smooth = order >= LEAST_ORDER and abs(whole.drift) <= WORST_DRIFT * whole.kinetic
    jump = 0.0 if is_smooth else largest_jump(subject.in_double())
    return judge(whole, half, order, at, jump, timestep, ROUNDING[subject.precision])


def conservation(subject: Subject, timestep: float, n_steps: int, every: int) -> Conservation | None:
    """Of a run at so many fs: in the ensemble asked for where that conserves something to second order in the step,
    else NVE. None where the model tells no energy."""
    seen: list[tuple[float, float]] = []

    def look(sim: Simulation) -> None:
        if sim.forces.energy is None:
            seen.append((math.nan, math.nan))
            return
        thermo = measure(sim, subject.comm)
        seen.append((thermo.kinetic_eV, thermo.conserved_eV))

    ensemble = {} if is_extended(subject.settings) else CONSTANT_ENERGY
    with subject.simulation(Observer(every, look), **ensemble | {"timestep": timestep}) as sim:
        run(sim, n_steps)
    kinetic, total = np.array(seen).T
    if not np.isfinite(total).all():
        return None
    times = np.arange(len(total)) * every * timestep / 1000
    rate, error, rest = drift(times, total)
    return Conservation(float(rest.std()), rate, error, float(kinetic.mean()), float(kinetic.std()))


def is_extended(settings: Settings) -> bool:
    """Whether the ensemble is that of an extended system without noise, which conserves the energy of all of it."""
    is_quiet = thermostat_of(settings) in (None, "nose-hoover") and barostat_of(settings) in (None, "mtk")
    return is_quiet and settings.ensemble != "nve"


def order_of(whole: Conservation, half: Conservation) -> float:
    """log2 of how much the fluctuation fell when the time step was halved; 2 for velocity Verlet."""
    return math.log2(max(whole.fluctuation, 1e-300) / max(half.fluctuation, 1e-300))


def judge(
    whole: Conservation, half: Conservation, order: float, at: float, jump: float, timestep: float, rounding: float
) -> Check:
    """The verdict.

    Args:
        order: how the fluctuation falls when a step of ``at`` fs is halved.
        jump: the largest step of the energy that was found, eV; 0 for none.
        timestep: fs.
        rounding: fluctuation, of the kinetic energy, that the precision alone explains.
    """
    relative = whole.relative
    per_ps, error = abs(whole.drift) / whole.kinetic, whole.drift_error / whole.kinetic
    drifts = per_ps > SIGNIFICANT * error
    numbers = {
        "order": order,
        "order_at_fs": at,
        "fluctuation_eV": whole.fluctuation,
        "fluctuation_at_half_the_step_eV": half.fluctuation,
        "fluctuation_of_kinetic": relative,
        "drift_of_kinetic_per_ps": per_ps,
        "drift_error_of_kinetic_per_ps": error,
        "largest_jump_eV": jump,
    }
    rate = f"drift {per_ps:.0e} ± {error:.0e} of the kinetic energy per ps"
    step = "the step" if at == timestep else f"a step of {at:g} fs"
    fall = f"halving {step} divides the fluctuation by {2**order:.2g} (order {order:.2f})"
    if whole.fluctuation < rounding * whole.kinetic:
        verdict, meaning = PASS, f"the energy is conserved to rounding; {rate}."
    elif relative > MOST_FLUCTUATION and not (jump and order < LEAST_ORDER):
        verdict, meaning = FAIL, (
            f"at {timestep:g} fs the total energy fluctuates {relative:.2g} times as much as the kinetic energy does: "
            "lower --timestep, or check the forces."
        )  # fmt: skip
    elif jump:
        verdict, meaning = WARN, (
            f"the energy steps by up to {jump:.1e} eV where pairs cross the cutoff, which hides the "
            f"order ({order:.2f}) and makes the {rate}. A potential that ends "
            "smoothly conserves; lj:...,shift=true moves as this one does."
        )  # fmt: skip
    elif not LEAST_ORDER <= order <= MOST_ORDER:
        why = "too long a step, or forces that are not the energy's slope" if order < LEAST_ORDER else "too long a step"
        verdict, meaning = FAIL, f"{fall}, not by 4: {why}. Lower --timestep, see the check of the forces."
    elif drifts and per_ps > WORST_DRIFT:
        verdict, meaning = FAIL, f"{rate}: lower --timestep, raise --skin or check the forces."
    elif drifts and per_ps > POOR_DRIFT:
        verdict, meaning = WARN, f"{fall}; {rate}: a run of nanoseconds will feel it. Lower --timestep."
    else:
        told = "" if drifts else ", no more than so short a run can tell"
        verdict, meaning = PASS, f"{fall}; {rate}{told}."
    return Check(NAME, verdict, meaning, order, None, f"order, of {LEAST_ORDER} to {MOST_ORDER}", numbers)


def largest_jump(subject: Subject) -> float:
    """The largest step of the energy on the way of one atom after another, until there is one, eV; 0 where none is.

    Where the energy has a slope, it changes from point to point by the work of the force. A wrong force is wrong
    everywhere alike; a step is a rare mismatch.
    """
    with subject.evaluator() as evaluate:
        for atom in sampled_ids(subject.state.n_total, SCAN_ATOMS, subject.seed):
            axis = int(atom) % 3
            seen = [_move_on(evaluate, atom[None], axis) for _ in range(SCAN_POINTS)]
            energies, forces = np.array(seen).T
            spacing = SCAN_WIDTH / SCAN_POINTS
            mismatch = np.abs(np.diff(energies) + (forces[1:] + forces[:-1]) / 2 * spacing)
            jumps = mismatch - np.abs(np.diff(forces)) * spacing  # a force that jumps explains half of this
            if jumps.max() > max(STEP_IS * float(np.median(mismatch)), LEAST_STEP):
                return float(mismatch[jumps.argmax()])
    return 0.0


def _move_on(evaluate: Evaluator, atom: torch.Tensor, axis: int) -> tuple[float, float]:
    """Energy and force along the axis; then the atom goes to the next point."""
    found = evaluate()
    row = int(evaluate.rows_of(atom))
    force = torch.zeros(1, dtype=torch.float64)
    if row >= 0:
        force[0] = found.forces[row, axis]
        evaluate.state.positions[row, axis] += SCAN_WIDTH / SCAN_POINTS
    return found.energy, float(evaluate.domain.comm.all_sum(force))
