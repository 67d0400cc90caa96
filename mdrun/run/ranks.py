"""What the decomposition did, rank by rank: the figures behind ``ranks.csv`` and the final table."""

from __future__ import annotations

import csv
import resource
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, TextIO

import torch

from mdrun import cell as geometry
from mdrun.clock import CLOCK, SECTIONS
from mdrun.exchanges import EXCHANGES
from mdrun.run.appending import open_text, written
from mdrun.run.directory import writing
from mdrun.run.simulation import Simulation


@dataclass(frozen=True)
class RankFigures:
    """One rank since the run began; means are over rebuilds, times in seconds of the loop.

    Attributes:
        box_a, box_b, box_c: Å along the cell's vectors, the tight bounds of the atoms owned now.
        neighbors: within cutoff + skin of an atom, on average.
        bytes_per_step: sent to other ranks.
        migrations: atoms that left this rank after they were first dealt out.
    """

    step: int
    rank: int
    box_a: float
    box_b: float
    box_c: float
    owned: int
    owned_min: int
    owned_mean: float
    owned_max: int
    ghosts: int
    ghosts_mean: float
    neighbors: float
    bytes_per_step: float
    migrations: int
    rebuilds: int
    dangerous_builds: int
    force_s: float
    neighbor_s: float
    communication_s: float
    integration_s: float
    output_s: float
    peak_memory_bytes: int

    @property
    def ghosts_per_owned(self) -> float:
        return self.ghosts_mean / self.owned_mean if self.owned_mean > 0 else 0.0

    @property
    def busy_s(self) -> float:
        """Time not spent waiting for others."""
        return self.force_s + self.neighbor_s + self.integration_s + self.output_s


def peak_memory_bytes() -> int:
    """The most that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def figures_here(sim: Simulation) -> RankFigures:
    """This rank's figures."""
    domain, counts = sim.domain, sim.domain.counts
    low, high = domain.boxes[domain.comm.rank].T
    vectors = geometry.completed(sim.state.cell, sim.state.pbc).norm(dim=1).numpy()
    sides = (high - low) * vectors if domain.n_owned else [0.0, 0.0, 0.0]
    builds = max(counts.rebuilds, 1)
    seconds = {f"{section}_s": CLOCK.seconds[section] for section in SECTIONS}
    return RankFigures(
        step=sim.step,
        rank=domain.comm.rank,
        box_a=sides[0],
        box_b=sides[1],
        box_c=sides[2],
        owned=domain.n_owned,
        owned_min=counts.owned_least,
        owned_mean=counts.owned_sum / builds,
        owned_max=counts.owned_most,
        ghosts=domain.n_ghosts,
        ghosts_mean=counts.ghosts_sum / builds,
        neighbors=counts.neighbors_sum / max(counts.owned_sum, 1),
        bytes_per_step=domain.comm.bytes_sent / max(sim.step - sim.counted_from, 1),
        migrations=counts.migrations,
        rebuilds=counts.rebuilds,
        dangerous_builds=counts.dangerous_builds,
        peak_memory_bytes=peak_memory_bytes(),
        **seconds,
    )


def figures_of_all(sim: Simulation) -> list[RankFigures]:
    """Every rank's figures, on every rank; a collective."""
    mine = torch.tensor([float(v) for v in astuple(figures_here(sim))], dtype=torch.float64)
    kinds: list[Any] = [int if f.type == "int" else float for f in fields(RankFigures)]
    everyone = sim.domain.comm.all_gather(mine).tolist()
    return [RankFigures(*(kind(v) for kind, v in zip(kinds, row, strict=True))) for row in everyone]


@dataclass(frozen=True)
class ExchangeFigures:
    """What one of the exchanges that a model asks for cost a rank, with its adjoint.

    Attributes:
        exchange: its name, as the model gave it, ``exchange N``, or ``forces``: those on ghosts.
        bytes_per_step: sent to other ranks.
        seconds: of the loop, the wait for other ranks included.
    """

    exchange: str
    rank: int
    bytes_per_step: float
    seconds: float


def exchanges_of_all(sim: Simulation, n_steps: int) -> list[ExchangeFigures]:
    """Every rank's figures of every exchange, on every rank; a collective. None of a model without layers.

    ``n_steps``: that this process made, which is what the tallies are of.
    """
    names, steps = list(EXCHANGES.tallies), max(n_steps, 1)  # every rank asks in the same order
    mine = [[EXCHANGES.tallies[n].bytes / steps, EXCHANGES.tallies[n].seconds] for n in names]
    everyone = sim.domain.comm.all_gather(torch.tensor(mine, dtype=torch.float64).reshape(-1, 2)).tolist()
    by_name = [(name, rank, *row[i]) for i, name in enumerate(names) for rank, row in enumerate(everyone)]
    return [ExchangeFigures(*figures) for figures in by_name] if sim.domain.comm.size > 1 else []


FAR_MORE = 3.0  # rows for each atom, of which a wide halo tells


def notes_of_wide_halo(sim: Simulation, n_atoms: int) -> list[str]:
    """What to tell where ranks compute far more rows than there are atoms; a collective."""
    domain = sim.domain
    if domain.ghost_reach <= domain.cutoff:
        return []
    rows = domain.comm.all_gather(torch.tensor([float(domain.n_padded)], dtype=torch.float64)).flatten()
    total, most, n_ranks = round(float(rows.sum())), round(float(rows.max())), domain.comm.size
    if total <= FAR_MORE * n_atoms:
        return []
    gain = "no faster than one rank" if most >= n_atoms else f"at best {n_atoms / most:.1f} times as fast as one rank"
    return [
        f"the wide halo of {domain.ghost_width:.1f} Å has {n_ranks} ranks compute {total} rows for {n_atoms} atoms, "
        f"{most} on one of them: {gain}. Take fewer ranks, one computes each atom once, or a larger system."
    ]


JUDGED_FROM_S = 1.0  # speed is judged in runs of at least this long


@dataclass(frozen=True)
class Balance:
    """What the figures of all ranks add up to.

    Attributes:
        imbalance: busiest rank's work over the mean; 1 is perfect.
        halo_fraction: ghost rows among all rows.
        communication_fraction: of the loop's time, on average.
    """

    imbalance: float
    halo_fraction: float
    communication_fraction: float
    dangerous_builds: int
    advice: str | None


def balance(ranks: Sequence[RankFigures]) -> Balance:
    """The summary below the table, and one line of advice where a figure is poor."""
    busy = [r.force_s + r.neighbor_s for r in ranks]
    mean_busy = sum(busy) / len(busy)
    imbalance = max(busy) / mean_busy if mean_busy > 0 else 1.0
    ghosts, owned = sum(r.ghosts_mean for r in ranks), sum(r.owned_mean for r in ranks)
    halo = ghosts / (ghosts + owned) if owned else 0.0
    all_time = sum(r.busy_s + r.communication_s for r in ranks)
    communication = sum(r.communication_s for r in ranks) / all_time if all_time > 0 else 0.0
    dangerous = max(r.dangerous_builds for r in ranks)
    advice = None
    if dangerous:
        advice = f"{dangerous} dangerous builds: atoms outran the list. Raise --skin or set --check-every 1."
    elif len(ranks) > 1 and any(r.owned_max == 0 for r in ranks):
        idle = sum(r.owned_max == 0 for r in ranks)
        advice = f"{idle} of {len(ranks)} ranks own no atom: use fewer."
    elif all_time / len(ranks) < JUDGED_FROM_S:
        pass  # too short a run to judge speed by
    elif len(ranks) > 1 and communication > 0.5:
        advice = f"{communication:.0%} of the time went into communication: fewer ranks would do as well."
    elif len(ranks) > 1 and imbalance > 1.25:
        advice = f"the busiest rank works {imbalance:.2f} times the mean: the others wait for it."
    elif len(ranks) > 1 and ghosts > 3 * owned:
        advice = f"{ghosts / owned:.1f} ghosts for each atom: the boxes are small for this cutoff, use fewer ranks."
    return Balance(imbalance, halo, communication, dangerous, advice)


class RanksFile:
    """``ranks.csv``: a row for each rank each time it looks."""

    def __init__(self, path: Path | None, at: int | None = None) -> None:
        """``path`` is None on ranks that don't write; ``at``: go on there, see ``open_text``."""
        self._file: TextIO | None = None
        if path is not None:
            self._path = path
            with writing(path):
                self._file = open_text(path, at)
            self._writer = csv.writer(self._file, lineterminator="\n")
            if at is None:
                self._writer.writerow([f.name for f in fields(RankFigures)])

    def position(self) -> int:
        """Bytes written, and safe; 0 on ranks that don't write."""
        return 0 if self._file is None else written(self._file)

    def __call__(self, sim: Simulation) -> None:
        everyone = figures_of_all(sim)
        if self._file is not None:
            with writing(self._path, self._file):
                for figures in everyone:
                    self._writer.writerow([f"{value:.9g}" for value in astuple(figures)])
                self._file.flush()
