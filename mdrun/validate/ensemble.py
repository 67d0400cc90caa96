"""The kinetic energy against its distribution in the ensemble; shared evenly where the energy is constant.

M. R. Shirts, J. Chem. Theory Comput. 9 (2013) 909, doi 10.1021/ct300688p; P. T. Merz and M. R. Shirts, PLoS ONE 13
(2018) e0202764, doi 10.1371/journal.pone.0202764.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import stats

from mdrun import units
from mdrun.run import ensemble_options as options
from mdrun.run.settings import Settings
from mdrun.run.simulation import Observer, Simulation, run
from mdrun.state import temperature
from mdrun.validate.outside import second_opinion
from mdrun.validate.series import careful_inefficiency
from mdrun.validate.subject import Subject
from mdrun.validate.verdict import FAIL, PASS, WARN, Check, skipped

NAME = "ensemble"
FALSE_ALARMS = 1e-4  # of a correct run, all tests of it together
FEWEST = 15.0  # independent samples, below which their number itself is not known
SETTLING = 5  # a fifth of the run is not looked at
LOOKS = 10_000  # at most so many samples are kept
DRAWN = 4.5  # standard deviations of what a draw of velocities gives a part, which slow motion lets it keep
AXES = ("x", "y", "z")


def check_ensemble(subject: Subject, n_steps: int) -> Check:
    """A run in the ensemble that was asked for."""
    settings = subject.settings
    if settings.ensemble == "nve":
        return _check_shares(subject, n_steps)
    if settings.temperatures is None:
        return skipped(NAME, f"{settings.ensemble} has no bath, and no distribution of the kinetic energy to test.")
    seen: list[float] = []

    def look(sim: Simulation) -> None:
        seen.append(float(subject.comm.all_sum(sim.state.kinetic_energy().cpu())))

    every = max(n_steps // LOOKS, 1)
    observer = Observer(every, look, needs_totals=False)
    with subject.simulation(observer, seed=subject.seed + 1) as sim:  # noise that the warm-up did not have
        run(sim, n_steps)
    memory = bath_time(settings) / (every * settings.timestep)
    return judge_kinetic(
        np.array(seen), subject.n_dof, settings.temperatures[0], memory, subject.state.n_total, subject.seed
    )


def bath_time(settings: Settings) -> float:
    """fs, in which the bath forgets: a run of a few of them can't tell by itself how few they are."""
    if options.thermostat_of(settings) in options.KICKING:
        friction = options.FRICTION if settings.friction is None else settings.friction
        return 1000 / friction if friction > 0 else math.inf
    return settings.thermostat_time or options.THERMOSTAT_TIME


def judge_kinetic(
    kinetic: np.ndarray,
    n_dof: int,
    temperature_K: float,
    memory: float = 1.0,
    n_atoms: int | None = None,
    seed: int = 0,
) -> Check:
    """Mean, width and shape of the kinetic energy against the gamma distribution of ``n_dof`` degrees of freedom.

    Mean and width are tested with the errors of as many independent samples as the series is worth, the shape by
    Kolmogorov and Smirnov's test of samples so far apart. Together they fail a correct run once in
    1 / ``FALSE_ALARMS``. What physical_validation says is told, and warned of: it counts independent samples with less
    care.

    Args:
        kinetic: (n_samples,) eV, in the order of time.
        memory: samples that are worth no more than one, whatever their correlation looks like.
        n_atoms: for physical_validation, where it is installed; None leaves it out.
    """
    kt = units.KB * temperature_K
    if n_dof == 0 or kt == 0:
        return skipped(NAME, "nothing may move, or the bath is at 0 K: there is no distribution.")
    kept = kinetic[len(kinetic) // SETTLING :]
    gap = min(max(careful_inefficiency(kept), memory), float(len(kept)))
    n_independent = len(kept) / gap
    expected = stats.gamma(n_dof / 2, scale=kt)
    mean, width = float(kept.mean()), float(kept.std())
    off_mean = (mean - expected.mean()) / (expected.std() / math.sqrt(n_independent))
    squares = (kept - expected.mean()) ** 2
    spread = math.sqrt(2 + 12 / n_dof)  # of one square, relative: the kurtosis of a gamma distribution is 3 + 12 / n
    off_width = (
        (squares.mean() / expected.var() - 1)
        / spread
        * math.sqrt(len(kept) / min(max(careful_inefficiency(squares), memory / 2), len(kept)))
    )
    p_shape = float(stats.kstest(kept[:: math.ceil(gap)], expected.cdf).pvalue)
    p_values = {
        "mean": float(2 * stats.norm.sf(abs(off_mean))),
        "width": float(2 * stats.norm.sf(abs(off_width))),
        "shape": p_shape,
    }
    opinion = second_opinion(kept, n_dof, temperature_K, n_atoms, seed) if n_atoms else {}
    numbers = {
        "mean_temperature_K": temperature(mean, n_dof),
        "expected_temperature_K": temperature_K,
        "width_over_expected": width / expected.std(),
        "deviation_of_mean_in_errors": float(off_mean),
        "deviation_of_width_in_errors": float(off_width),
        **{f"p_{name}": p_values[name] for name in ("mean", "width", "shape")},
        "independent_samples": n_independent,
        "degrees_of_freedom": n_dof,
        **opinion,
    }
    return _in_words(p_values, numbers, temperature_K)


def _in_words(p_values: dict[str, float], numbers: dict[str, Any], wanted: float) -> Check:
    least = min(p_values, key=p_values.__getitem__)
    limit = FALSE_ALARMS / len(p_values)
    found = (
        f"{numbers['mean_temperature_K']:.4g} K for {wanted:g} K, fluctuations {numbers['width_over_expected']:.2f} "
        f"times the expected, from {numbers['independent_samples']:.0f} independent samples"
    )
    if p_values[least] < limit:
        verdict, meaning = FAIL, (
            f"the {least} of the kinetic energy is not the ensemble's: {found}. Choose a thermostat that samples it, "
            "lower --timestep, or start from an equilibrated structure."
        )  # fmt: skip
    elif numbers.get("physical_validation_p_shape", 1.0) < limit:
        verdict, meaning = WARN, f"physical_validation finds another distribution than the ensemble's: {found}."
    elif numbers["independent_samples"] < FEWEST:
        verdict, meaning = WARN, f"{found}: too few to tell. Raise --long-steps."
    else:
        verdict, meaning = PASS, f"the kinetic energy is distributed as the ensemble's: {found}."
    return Check(NAME, verdict, meaning, in_errors(p_values[least]), in_errors(limit), "standard errors", numbers)


def in_errors(p: float) -> float:
    """How many standard errors a normal number would be off, of either sign, with that probability or less."""
    return float(stats.norm.isf(max(p, 1e-300) / 2))


def _check_shares(subject: Subject, n_steps: int) -> Check:
    """Equipartition: every axis and every species is as warm as the whole."""
    if len(subject.bonds):
        return skipped(NAME, "bonds take degrees of freedom from axes and species in shares that are not known here.")
    seen: list[torch.Tensor] = []

    def look(sim: Simulation) -> None:
        seen.append(subject.comm.all_sum(_kinetic_by_part(sim)))

    with subject.simulation(Observer(max(n_steps // LOOKS, 1), look, needs_totals=False)) as sim:
        run(sim, n_steps)
    counts = subject.comm.all_sum(_components_by_part(subject))
    return judge_shares(torch.stack(seen).numpy(), counts.numpy(), part_names(subject.state.numbers))


def part_names(numbers: Sequence[int]) -> list[str]:
    """Axes, then species where there are several."""
    from ase.data import chemical_symbols

    return [*(f"along {axis}" for axis in AXES), *(f"of {chemical_symbols[z]}" for z in numbers if len(numbers) > 1)]


def _by_part(subject_numbers: Sequence[int], types: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """(n_parts,) sums of (n, 3) values over each axis, and over each species where there are several."""
    parts = values.new_zeros(len(subject_numbers)).index_add(0, types.long(), values.sum(dim=1))
    species = parts if len(parts) > 1 else parts[:0]
    return torch.cat([values.sum(dim=0), species]).to("cpu", torch.float64)


def _kinetic_by_part(sim: Simulation) -> torch.Tensor:
    state = sim.state
    return _by_part(state.numbers, state.types, state.momenta.square() / state.masses[:, None] / 2)


def _components_by_part(subject: Subject) -> torch.Tensor:
    """This rank's part of the degrees of freedom. A resting centre of mass takes from each part by its mass."""
    state = subject.state
    mobile = state.mobile.double()
    n_components, mass = subject.comm.all_sum(torch.stack([mobile.sum(), state.masses.sum()]).cpu()).tolist()
    held = (n_components - subject.n_dof) / 3
    return _by_part(state.numbers, state.types, mobile - held * state.masses[:, None] / mass)


def judge_shares(kinetic: np.ndarray, counts: np.ndarray, names: Sequence[str]) -> Check:
    """The mean temperature of each part against that of the whole.

    Args:
        kinetic: (n_samples, n_parts) eV, axes first.
        counts: (n_parts,) degrees of freedom.
    """
    whole = 2 * kinetic[:, :3].sum(axis=1).mean() / (counts[:3].sum() * units.KB)
    if whole <= 0:
        return skipped(NAME, "nothing moves: give --init-temperature.")
    off, far, drawn = {}, {}, {}
    for name, energies, count in zip(names, kinetic.T, counts, strict=True):
        if count <= 0:
            continue
        drawn[name] = DRAWN * math.sqrt(2 / count)
        warmth = 2 * energies / (count * units.KB)
        kept = warmth[len(warmth) // SETTLING :]
        error = kept.std() * math.sqrt(careful_inefficiency(kept) / len(kept))
        off[name] = float(kept.mean() / whole - 1)
        far[name] = float(abs(kept.mean() - whole) / max(error, 1e-12 * whole))
    worst = max(far, key=far.__getitem__)
    limit = float(stats.norm.isf(FALSE_ALARMS / 2 / len(far)))
    numbers = {"temperature_K": float(whole), **{f"{n}_relative".replace(" ", "_"): v for n, v in off.items()}}
    found = f"the mean kinetic energy {worst} is {off[worst]:+.1%} from the whole's, {far[worst]:.1f} standard errors"
    if far[worst] <= limit:
        verdict, meaning = PASS, f"axes and species are equally warm: {found}."
    elif abs(off[worst]) <= drawn[worst]:
        verdict, meaning = WARN, f"{found}: no more than velocities drawn by chance, but it stays. Equilibrate longer."
    else:
        verdict, meaning = FAIL, f"{found}: energy is not shared evenly. Equilibrate first; check masses and forces."
    return Check(NAME, verdict, meaning, far[worst], limit, "standard errors", numbers)
