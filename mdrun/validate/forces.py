"""Forces against differences of the total energy."""

from __future__ import annotations

import math

import numpy as np
import torch

from mdrun.comm import Comm
from mdrun.validate.slopes import Slope, is_trusted, slope
from mdrun.validate.subject import Evaluator, Subject
from mdrun.validate.verdict import FAIL, PASS, WARN, Check, skipped

NAME = "forces"
WIDTHS = (1e-3, 1e-4, 1e-5, 1e-6)  # Å
TOLERANCE = {"double": 1e-5, "mixed": 1e-4, "single": 1e-3}  # of the root mean square force
LEAST_SCALE = 1e-4  # eV/Å; forces of atoms that hardly feel each other are compared with this
MOST_DOUBTFUL = 0.5  # share of components that may be left out


def check_forces(subject: Subject, n_samples: int) -> Check:
    """Every component of the forces on some atoms, chosen by the seed, whatever ranks own them.

    The differences are those of the model in double precision, the forces those of the precision asked for.
    """
    ids = sampled_ids(subject.state.n_total, n_samples, subject.seed)
    with subject.evaluator() as evaluate:
        found = evaluate()
        if math.isnan(found.energy):
            return skipped(NAME, "the model tells no energy, so its forces can't be compared with differences of it.")
        forces = _of_sample(evaluate, found.forces, ids)
        scale = max(root_mean_square(found.forces, subject.comm), LEAST_SCALE)
    tolerance = TOLERANCE[subject.precision] * scale
    reference = subject.in_double()
    with reference.evaluator() as evaluate:
        slopes = [
            [_slope(evaluate, int(i), axis, tolerance, -float(force[axis])) for axis in range(3)]
            for i, force in zip(ids, forces, strict=True)
        ]
    errors = np.array([[-s.value for s in row] for row in slopes]) - forces
    trusted = np.array([[is_trusted(s, tolerance) for s in row] for row in slopes])
    return _judge(errors, trusted, ids.numpy(), scale, tolerance, reference.precision != subject.precision)


def sampled_ids(n_total: int, n_samples: int, seed: int) -> torch.Tensor:
    """Ids, ascending; the same on every rank and for any number of them."""
    chosen = np.random.default_rng([seed, 1]).choice(n_total, min(n_samples, n_total), replace=False)
    return torch.from_numpy(np.sort(chosen))


def root_mean_square(forces: torch.Tensor, comm: Comm) -> float:
    """eV/Å, over all components of all ranks' atoms."""
    local = torch.tensor([float(forces.square().sum()), float(forces.numel())], dtype=torch.float64)
    squares, count = comm.all_sum(local).tolist()
    return math.sqrt(squares / max(count, 1))


def _of_sample(evaluate: Evaluator, forces: torch.Tensor, ids: torch.Tensor) -> np.ndarray:
    rows = evaluate.rows_of(ids)
    mine = torch.zeros((len(ids), 3), dtype=torch.float64)
    here = (rows >= 0).cpu()
    mine[here] = forces[rows[rows >= 0]].to("cpu", torch.float64)
    return evaluate.domain.comm.all_sum(mine).numpy()


def _slope(evaluate: Evaluator, atom: int, axis: int, tolerance: float, expected: float) -> Slope:
    """dE/dx of one coordinate, eV/Å. A rebuild may give the atom to another rank in between."""
    ids = torch.tensor([atom])
    row = int(evaluate.rows_of(ids))
    here = evaluate.state.positions[row, axis].to("cpu") if row >= 0 else torch.zeros((), dtype=torch.float64)
    place = float(evaluate.domain.comm.all_sum(here))

    def put(coordinate: float) -> None:
        row = int(evaluate.rows_of(ids))
        if row >= 0:
            evaluate.state.positions[row, axis] = coordinate

    def energy(shift: float) -> float:
        put(place + shift)
        return evaluate().energy

    found = slope(energy, WIDTHS, tolerance, expected)
    put(place)
    return found


def _judge(
    errors: np.ndarray, trusted: np.ndarray, ids: np.ndarray, scale: float, tolerance: float, is_of_double: bool
) -> Check:
    n_doubtful = int((~trusted).sum())
    sizes = np.where(trusted, np.abs(errors), 0.0)
    worst = float(sizes.max())
    numbers = {
        "root_mean_square_force_eV_per_A": scale,
        "components": trusted.size,
        "left_out": n_doubtful,
        "root_mean_square_error_eV_per_A": float(np.sqrt((sizes**2).sum() / max(trusted.sum(), 1))),
        "atoms": [int(i) for i in ids],
    }
    left_out = f"; {n_doubtful} of {trusted.size} left out, the energy steps or is too coarse there" * (n_doubtful > 0)
    of_double = ", taken in double" if is_of_double else ""
    if worst > tolerance:
        atom, axis = np.unravel_index(int(sizes.argmax()), sizes.shape)
        verdict, meaning = FAIL, (
            f"the force on atom {ids[atom]} along {'xyz'[axis]} is {worst / scale:.1e} of the typical force away from "
            f"the slope of the energy{left_out}: the model's forces are not its energy's. No energy will be conserved; "
            "correct the model."
        )  # fmt: skip
    elif n_doubtful > MOST_DOUBTFUL * trusted.size:
        verdict, meaning = WARN, (
            f"the energy is too rough to judge by{left_out}. A model that computes in single precision looks so; let "
            "it compute in double for this check where it can."
        )  # fmt: skip
    else:
        verdict, meaning = PASS, f"forces are the slope of the energy{of_double}{left_out}."
    return Check(NAME, verdict, meaning, worst, tolerance, "eV/Å", numbers)
