"""The same configuration, and a few steps from it, on several ranks and on one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from mdrun.comm import Comm
from mdrun.potentials.precision import DOUBLE
from mdrun.potentials.registry import without_precision
from mdrun.run.setup import make_model
from mdrun.run.simulation import run
from mdrun.run.trajectory import gather_by_id
from mdrun.state import FIELDS, Field
from mdrun.validate.others import RanksFailed, on_ranks_of_their_own
from mdrun.validate.subject import Subject, copy_of
from mdrun.validate.verdict import FAIL, PASS, WARN, Check, skipped

NAME = "ranks"
NUMBERS = (2, 3)  # of ranks that a single process starts
STEPS = 20
MOST_ATOMS = 1_000_000  # that one rank is asked to hold beside the others
FORCES = {"double": 1e-11, "mixed": 1e-4, "single": 1e-3}  # of the largest force, or eV/Å where that is below 1
POSITIONS = {"double": 1e-8, "mixed": 1e-4, "single": 1e-3}  # Å after the steps
SINGLE = 2e-6  # of the largest force, and eV an atom: what a model that computes in single precision may differ by
FORCE_FIELD = Field("forces", (3,), torch.float64)
POSITION_FIELD = next(f for f in FIELDS if f.name == "positions")


def check_ranks(subject: Subject) -> Check:
    """Started on several ranks, they against one of them alone; started on one, it against several on this host."""
    n_total = subject.state.n_total
    if n_total > MOST_ATOMS:
        return skipped(NAME, f"{n_total} atoms are more than one rank is asked to hold. Take a smaller structure.")
    mine = answers(subject)
    if subject.comm.size > 1:
        atoms = gather_by_id(subject.state.fields(), FIELDS, subject.comm)
        worst = compare(answers(alone(subject, atoms)), mine) if atoms is not None and mine is not None else None
        worst = subject.comm.broadcast(worst)
        return judge({subject.comm.size: worst}, subject)
    numbers = possible_numbers(subject)
    if not numbers:
        return skipped(NAME, "there is one GPU here, and a rank needs its own. Start mdrun validate under torchrun.")
    try:
        found = {n: compare(mine, on_ranks_of_their_own(n, subject)) for n in numbers}
    except RanksFailed as trouble:
        return Check(NAME, FAIL, f"{trouble} The run works on one rank only; start it under torchrun to see more.")
    return judge(found, subject)


def answers(subject: Subject) -> dict[str, np.ndarray] | None:
    """Forces and totals at the start, positions after a few steps in the ensemble; on rank 0."""
    with subject.evaluator() as evaluate:
        found = evaluate()
        arrays = {**evaluate.state.fields(), "forces": found.forces.to(torch.float64)}
        forces = gather_by_id(arrays, (FORCE_FIELD,), subject.comm)
    with subject.simulation() as sim:
        run(sim, STEPS)
        positions = gather_by_id(sim.state.fields(), (POSITION_FIELD,), subject.comm)
    if forces is None or positions is None:
        return None
    return {
        "energy": np.array(found.energy),
        "virial": found.virial.numpy(),
        "forces": forces["forces"].numpy(),
        "positions": positions["positions"].numpy(),
    }


def alone(subject: Subject, atoms: dict[str, torch.Tensor]) -> Subject:
    """The same on this rank by itself, from all atoms in the order of their ids."""
    state = copy_of(subject.state)
    state.replace_fields(atoms)
    state.move_to(subject.backend.device)
    model = make_model(subject.settings, state.numbers, subject.backend)
    return replace(subject, comm=Comm(), model=model, state=state)


def compare(one: dict[str, np.ndarray] | None, several: dict[str, np.ndarray] | None) -> dict[str, float]:
    """Largest differences; energy per atom."""
    assert one is not None
    assert several is not None
    n_atoms = len(one["forces"])
    scales = {"energy": n_atoms, "virial": n_atoms, "forces": 1, "positions": 1}
    worst = {name: float(np.abs(one[name] - several[name]).max(initial=0.0)) / scales[name] for name in scales}
    return {**worst, "largest_force": float(np.abs(one["forces"]).max(initial=0.0))}


def possible_numbers(subject: Subject) -> Sequence[int]:
    """Numbers of ranks that this machine can start."""
    if subject.backend.device.type == "cpu":
        return NUMBERS
    return [n for n in NUMBERS if n <= torch.cuda.device_count()]


def judge(found: dict[int, dict[str, float]], subject: Subject) -> Check:
    """The verdict, from what ``compare`` found for each number of ranks."""
    off = {name: max(worst[name] for worst in found.values()) for name in ("forces", "positions")}
    totals = [worst[name] for worst in found.values() for name in ("energy", "virial")]
    off_totals = max((value for value in totals if value == value), default=0.0)  # NaN: the model does not tell
    scale = max(1.0, *(worst["largest_force"] for worst in found.values()))
    limit, farthest = FORCES[subject.precision] * scale, POSITIONS[subject.precision]
    excuse = SINGLE * scale if subject.precision == DOUBLE.name and without_precision(subject.model) else 0.0
    listed = " and ".join(map(str, found))
    numbers = {f"{n}_ranks_{name}": value for n, worst in found.items() for name, value in worst.items()}
    later = f"{off['positions']:.1e} Å after {STEPS} steps"
    unlike = f"{listed} ranks and one differ by {off['forces']:.1e} eV/Å, and by {later}"
    if off["forces"] <= limit and off["positions"] <= farthest and off_totals <= limit:
        verdict, meaning = PASS, f"{unlike}: the trajectory does not depend on the number of ranks."
    elif off["forces"] <= excuse and off_totals <= excuse:
        verdict, meaning = WARN, f"{unlike}: as much as a model that computes in single precision may."
    elif off["forces"] <= limit and off["positions"] <= farthest:
        verdict, meaning = FAIL, (
            f"{listed} ranks and one agree on forces but not on energy or virial: the model must sum owned atoms only."
        )  # fmt: skip
    else:
        verdict, meaning = FAIL, (
            f"{unlike}: the model depends on how atoms are dealt out. Ghosts' values must come from refresh_neighbors, "
            "sums go over owned rows."
        )  # fmt: skip
    return Check(NAME, verdict, meaning, off["forces"], limit, "eV/Å", numbers)
