"""Whether the neighbour list, kept from step to step, ever misses a pair."""

from __future__ import annotations

import numpy as np
import torch

from mdrun.run.setup import make_domain
from mdrun.run.simulation import Simulation, run
from mdrun.validate.forces import root_mean_square
from mdrun.validate.subject import Subject, copy_of
from mdrun.validate.verdict import FAIL, PASS, WARN, Check

NAME = "list"
MOMENTS = 40  # at which forces are compared
TOLERANCE = {"double": 1e-10, "mixed": 1e-4, "single": 1e-3}  # of the root mean square force
OFTEN = 3.0  # steps from rebuild to rebuild, below which more skin is faster


def check_list(subject: Subject, n_steps: int) -> Check:
    """Forces on the way of a run with the skin asked for, against those with a list that is made for the moment."""
    worst, scale = 0.0, 0.0
    with subject.simulation() as sim:
        before = sim.domain.counts.rebuilds
        for k in range(MOMENTS):
            run(sim, n_steps * (k + 1) // MOMENTS - n_steps * k // MOMENTS)
            worst = max(worst, difference(sim, subject))
            scale = max(scale, root_mean_square(sim.forces.forces, subject.comm))
        counts = sim.domain.counts
    return judge(
        worst,
        TOLERANCE[subject.precision] * max(scale, 1e-300),
        counts.dangerous_builds,
        n_steps / max(counts.rebuilds - before, 1),
        subject.settings.skin,
        subject.settings.check_every,
    )


def difference(sim: Simulation, subject: Subject) -> float:
    """The largest difference of a force component, eV/Å; the same on every rank.

    The other list, halo and owners are those of a domain that starts from these positions.
    """
    state = copy_of(sim.state)
    fresh = make_domain(subject.settings, subject.model.cutoff, subject.comm, subject.backend)
    fresh.ghost_reach = sim.domain.ghost_reach
    fresh.follow(state)
    other = sim.model(fresh, totals=False)
    if fresh.backend.looks_late:
        sim.model.look_back()
    kept = _by_id(sim.state.ids, sim.forces.forces, subject)
    made = _by_id(state.ids, other.forces, subject)
    return float(np.abs(kept - made).max(initial=0.0))


def _by_id(ids: torch.Tensor, forces: torch.Tensor, subject: Subject) -> np.ndarray:
    """(n_total, 3) on every rank, so that all of them agree."""
    local = torch.zeros((subject.state.n_total, 3), dtype=torch.float64)
    local[ids.cpu()] = forces.to("cpu", torch.float64)
    return subject.comm.all_sum(local).numpy()


def judge(worst: float, tolerance: float, dangerous: int, between: float, skin: float, check_every: int) -> Check:
    """The verdict; ``between`` are steps from rebuild to rebuild."""
    numbers = {"dangerous_builds": dangerous, "steps_between_rebuilds": between, "skin_A": skin}
    seldom = f" or lower --check-every (now {check_every})" if check_every > 1 else ""
    advice = f"Raise --skin (now {skin:g} Å){seldom}."
    pace = f"a list lasts {between:.0f} steps"
    if worst > tolerance:
        verdict, meaning = FAIL, f"the list misses pairs within the cutoff: forces differ from a fresh list's. {advice}"
    elif dangerous:
        verdict, meaning = WARN, (
            f"{dangerous} lists were kept longer than is safe, though no force was wrong where it was "
            f"looked at. {advice}"
        )  # fmt: skip
    elif between < OFTEN:
        verdict, meaning = PASS, f"no pair is missed, but {pace}: a larger --skin would be faster."
    else:
        verdict, meaning = PASS, f"no pair is missed; {pace}."
    return Check(NAME, verdict, meaning, worst, tolerance, "eV/Å", numbers)
