"""The virial against differences of the total energy of a strained cell."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mdrun import cell as geometry
from mdrun import units
from mdrun.validate.slopes import Slope, is_trusted, slope
from mdrun.validate.subject import Evaluator, Subject, Totals
from mdrun.validate.verdict import FAIL, PASS, WARN, Check, skipped

NAME = "stress"
WIDTHS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
TOLERANCE = {"double": 1e-5, "mixed": 1e-4, "single": 1e-3}  # of the sum of all forces' magnitudes times 1 Å
LEAST_SCALE = 1e-6  # eV


def check_stress(subject: Subject) -> Check:
    """dE/dη = -W for each component η of the strain between periodic axes; W = Σ r_ij ⊗ f_ij, the virial.

    Atoms and cell are strained alike, r → r (1 + η).
    """
    directions = strained_planes(subject.state.cell, subject.state.pbc)
    if not directions:
        return skipped(NAME, "no axis is periodic: there is no stress.")
    with subject.evaluator() as evaluate:
        found = evaluate()
        if math.isnan(found.energy) or bool(found.virial.isnan().any()):
            return skipped(NAME, "the model tells no virial, or no energy to compare it with: pressure is not known.")
        scale = max(_scale(found, subject), LEAST_SCALE)
    tolerance = TOLERANCE[subject.precision] * scale
    expected = {name: -float((found.virial * plane).sum()) for name, plane in directions.items()}
    with subject.in_double().evaluator() as evaluate:
        slopes = {name: _slope(evaluate, plane, tolerance, expected[name]) for name, plane in directions.items()}
    errors = {name: abs(s.value - expected[name]) for name, s in slopes.items() if is_trusted(s, tolerance)}
    return _judge(errors, slopes, found, subject, tolerance)


def strained_planes(cell: Tensor, pbc: Sequence[bool]) -> dict[str, Tensor]:
    """Symmetric (3, 3) strains by name, of unit size, that change no open axis.

    All six Cartesian ones where every axis is periodic; else those between the directions of the periodic axes.
    """
    full = geometry.completed(cell, pbc)
    periodic = [full[axis] for axis in range(3) if pbc[axis]]
    if len(periodic) == 3:
        axes = list(torch.eye(3, dtype=cell.dtype))
    else:  # an orthonormal basis of what the periodic axes span
        axes = list(torch.linalg.qr(torch.stack(periodic).T).Q.T) if periodic else []
    letters = "xyz" if len(periodic) == 3 else "uv"
    pairs = [(a, b) for a in range(len(axes)) for b in range(a, len(axes))]
    return {
        letters[a] + letters[b]: (torch.outer(axes[a], axes[b]) + torch.outer(axes[b], axes[a])) / 2 for a, b in pairs
    }


def _scale(found: Totals, subject: Subject) -> float:
    """eV: what the virial is made of, were every force's arm 1 Å."""
    magnitudes = found.forces.norm(dim=1).sum().to("cpu", torch.float64)
    return max(float(subject.comm.all_sum(magnitudes)), float(found.virial.abs().max()))


def _slope(evaluate: Evaluator, plane: Tensor, tolerance: float, expected: float) -> Slope:
    """dE/dη, eV."""
    state = evaluate.state
    cell = state.cell.clone()

    def energy(strain: float) -> float:
        positions, ids = state.positions.clone(), state.ids.clone()
        stretch = torch.eye(3, dtype=cell.dtype) + strain * plane
        state.cell = cell @ stretch
        state.positions = state.positions @ stretch.to(state.positions)
        found = evaluate().energy
        state.cell = cell.clone()
        if torch.equal(state.ids, ids):
            state.positions = positions
        else:  # a rebuild came in between, and may have moved atoms to other ranks
            state.positions = state.positions @ torch.linalg.inv(stretch).to(state.positions)
        return found

    return slope(energy, WIDTHS, tolerance, expected)


def _judge(
    errors: dict[str, float], slopes: dict[str, Slope], found: Totals, subject: Subject, tolerance: float
) -> Check:
    volume = geometry.volume(subject.state.cell, subject.state.pbc)
    to_unit, unit = (1 / volume / units.GPA, "GPa") if volume == volume else (1.0, "eV")
    left_out = [name for name in slopes if name not in errors]
    numbers = {
        "components": list(slopes),
        "left_out": left_out,
        "virial_eV": [[round(v, 9) for v in row] for row in found.virial.tolist()],
        "slopes_eV": {name: s.value for name, s in slopes.items()},
    }
    worst = max(errors, key=errors.__getitem__, default=None)
    value, limit = (errors[worst] * to_unit if worst else None), tolerance * to_unit
    if worst is None:
        verdict, meaning = WARN, (
            "the energy is too rough to judge by: its differences under strain depend on how far. A model that "
            "computes in single precision looks so; let it compute in double for this check where it can."
        )  # fmt: skip
    elif errors[worst] > tolerance:
        verdict, meaning = FAIL, (
            f"component {worst} of the stress is not the slope of the energy under strain: pressures, and volumes "
            "under a barostat, would be wrong. Correct the model's virial (its sign is that of Σ r_ij ⊗ f_ij)."
        )  # fmt: skip
    else:
        left = f", {', '.join(left_out)} left out: the energy steps there" if left_out else ""
        verdict, meaning = PASS, f"the virial is the slope of the energy under strain ({len(errors)} components{left})."
    return Check(NAME, verdict, meaning, value, limit, unit, numbers)
