"""What is said before the first step and after the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from ase.geometry import cell_to_cellpar
from rich.console import Console
from rich.table import Table

from mdrun import units
from mdrun.domain import Domain
from mdrun.report.averages import show_averages
from mdrun.report.console import make_table, show_named
from mdrun.run.outcome import Outcome
from mdrun.run.ranks import ExchangeFigures, RankFigures
from mdrun.run.setup import Shared
from mdrun.run.simulation import Simulation
from mdrun.strategies.names import HALO

MIB = 1024**2


def show_start(console: Console, shared: Shared, sim: Simulation, directory: Path, n_threads: int) -> None:
    """The panel of what is about to run, and the notes that the input earned."""
    show_rows(console, shared, start_rows(shared, sim, directory, n_threads))


def show_rows(console: Console, shared: Shared, rows: list[tuple[str, str]]) -> None:
    """A name and a line for each row, in a panel on a terminal; the notes below."""
    show_named(console, f"mdrun {shared.settings.command}", rows)
    for note in shared.notes:
        console.print(f"note: {note}", markup=False)


def start_rows(shared: Shared, sim: Simulation, directory: Path, n_threads: int) -> list[tuple[str, str]]:
    """Structure, model, ensemble, decomposition, output: a name and a line for each."""
    domain, settings = sim.domain, shared.settings
    fixed = f", {shared.n_fixed} fixed" if shared.n_fixed else ""
    plural = "s" if shared.n_atoms > 1 else ""
    lengths = " ".join(f"{v:.3f}" for v in sim.state.cell.norm(dim=1).tolist())
    angles = cell_to_cellpar(sim.state.cell.numpy())[3:] if all(shared.pbc) else np.full(3, 90.0)
    skew = "" if np.allclose(angles, 90.0) else ", angles " + " ".join(f"{v:.2f}" for v in angles) + "°"
    pbc = " ".join("T" if p else "F" for p in shared.pbc)
    least, most = domain.owned_by_rank.min(), domain.owned_by_rank.max()
    each = f"{least}" if least == most else f"{least} to {most}"
    ranks = f"{domain.comm.size} rank{'s' if domain.comm.size > 1 else ''}"
    strategy = sim.model.strategy.name
    unlike = f", by {strategy}" if strategy != HALO else ""
    return [
        ("structure", f"{settings.structure}: {shared.n_atoms} atom{plural}, {shared.formula}{fixed}"),
        ("cell", f"{lengths} Å{skew}, periodic {pbc}" if any(shared.pbc) else "open"),
        ("velocities", shared.velocities),
        *_bond_rows(shared),
        ("model", f"{sim.model.model.name} ({shared.model})"),
        ("kernels", f"{settings.backend} on {settings.device}, in {settings.precision} precision"),
        ("ensemble", f"{sim.integrator.describe()}, {shared.n_steps} steps"),
        ("temperature", f"counts {sim.n_dof} degrees of freedom ({shared.counted})"),
        (
            "decomposition",
            f"{ranks} of {n_threads} thread{'s' if n_threads > 1 else ''}, {each} atoms each, "
            f"ghost width {domain.ghost_width:.2f} Å "
            f"({_reach_in_words(domain)} + skin {domain.skin:.2f}){unlike}",
        ),
        ("output", str(directory)),
    ]


def _reach_in_words(domain: Domain) -> str:
    cutoff = f"cutoff {domain.cutoff:.2f}"
    return f"{cutoff}, of all layers {domain.ghost_reach:.2f}" if domain.ghost_reach > domain.cutoff else cutoff


def _bond_rows(shared: Shared) -> list[tuple[str, str]]:
    bonds = shared.bonds
    if not len(bonds):
        return []
    sizes = np.diff(bonds.starts)
    largest = f"up to {sizes.max()}" if sizes.min() < sizes.max() else f"{sizes.max()}"
    text = f"{len(bonds)} of fixed length, {largest} in each of {len(sizes)} molecule{'s' if len(sizes) > 1 else ''}"
    return [("bonds", text)]


def show_end(console: Console, outcome: Outcome) -> None:
    """Rank table, balance, advice, averages, energies, speed."""
    show_ranks(console, outcome)
    if outcome.averages is not None:
        show_averages(console, outcome.averages)
    console.print(energy_line(outcome))
    settings = outcome.shared.settings
    rate = outcome.steps_per_second
    verb = "stopped after" if outcome.is_stopped else "finished"
    console.print(
        f"{verb} {outcome.n_steps} steps in {outcome.loop_seconds:.2f} s: {rate:.1f} steps/s, "
        f"{units.ns_per_day(settings.timestep, rate):.3g} ns/day, {atom_steps_and_memory(outcome)}"
    )


def stopped_words(outcome: Outcome) -> str:
    """Why a run ended before its last step, and how to go on."""
    settings = outcome.shared.settings
    n_steps = outcome.last.step
    way_on = "no step was made: start it again" if n_steps == 0 else f"mdrun resume {settings.directory} goes on"
    return f"stopped after step {n_steps} of {outcome.shared.n_steps}: {outcome.reason}; {way_on}."


def atom_steps_and_memory(outcome: Outcome) -> str:
    """What the last line ends with."""
    memory = sum(r.peak_memory_bytes for r in outcome.ranks) / MIB
    rate = outcome.steps_per_second * outcome.shared.n_atoms
    return f"{rate:.3g} atom-steps/s, peak memory {memory:.0f} MiB"


def show_ranks(console: Console, outcome: Outcome) -> None:
    """Rank table, balance, advice."""
    for table in rank_tables(console, outcome.ranks):
        console.print(table)
    if outcome.exchanges:
        console.print(exchange_table(console, outcome.exchanges))
    b = outcome.balance
    console.print(
        f"imbalance {b.imbalance:.2f} (max/mean), halo fraction {b.halo_fraction:.2f}, "
        f"communication {b.communication_fraction:.0%}, dangerous builds {b.dangerous_builds}"
    )
    if b.advice:
        console.print(f"advice: {b.advice}", markup=False)


def energy_line(outcome: Outcome) -> str:
    """Where the run ended, and how far went what the ensemble conserves."""
    first, last = outcome.first, outcome.last
    drift = ""
    if last.time_ps > first.time_ps:
        per_atom = (last.conserved_eV - first.conserved_eV) / outcome.shared.n_atoms
        what = "energy" if outcome.shared.settings.ensemble == "nve" else "conserved energy"
        drift = f", {what} change {per_atom:+.2e} eV/atom over {last.time_ps - first.time_ps:g} ps"
    pressure = f", {last.pressure_GPa:.4f} GPa" if last.pressure_GPa == last.pressure_GPa else ""
    return f"end: {last.temperature_K:.2f} K, {last.potential_eV:.6f} eV potential{pressure}{drift}"


Cell = Callable[[RankFigures], str]

SPACE_COLUMNS: dict[str, Cell] = {
    "rank": lambda r: f"{r.rank:.0f}",
    "box Å": lambda r: f"{r.box_a:.1f} {r.box_b:.1f} {r.box_c:.1f}",
    "owned (range)": lambda r: f"{r.owned_mean:.0f} ({r.owned_min:.0f}/{r.owned_max:.0f})",
    "ghosts": lambda r: f"{r.ghosts_mean:.0f}",
    "ghost/owned": lambda r: f"{r.ghosts_per_owned:.2f}",
    "neighbors": lambda r: f"{r.neighbors:.1f}",
    "migrated": lambda r: f"{r.migrations:.0f}",
}
TIME_COLUMNS: dict[str, Cell] = {
    "rank": SPACE_COLUMNS["rank"],
    "rebuilds": lambda r: f"{r.rebuilds:.0f}",
    "kB/step": lambda r: f"{r.bytes_per_step / 1000:.1f}",
    "force s": lambda r: f"{r.force_s:.2f}",
    "neighbor s": lambda r: f"{r.neighbor_s:.2f}",
    "comm s": lambda r: f"{r.communication_s:.2f}",
    "integrate s": lambda r: f"{r.integration_s:.2f}",
    "output s": lambda r: f"{r.output_s:.2f}",
}


def exchange_table(console: Console, exchanges: Sequence[ExchangeFigures]) -> Table:
    """A row for each exchange that the model asks for: what the ranks sent, and how long it took them."""
    table = make_table(console)
    for name in ("exchange", "kB/step", "most", "s", "longest"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in dict.fromkeys(e.exchange for e in exchanges):
        of_it = [e for e in exchanges if e.exchange == name]
        sent, seconds = [e.bytes_per_step / 1000 for e in of_it], [e.seconds for e in of_it]
        figures = (np.mean(sent), max(sent)), (np.mean(seconds), max(seconds))
        table.add_row(name, *(f"{v:.1f}" for v in figures[0]), *(f"{v:.2f}" for v in figures[1]))
    return table


def rank_tables(console: Console, ranks: list[RankFigures]) -> list[Table]:
    """A row for each rank: where its atoms were, and where its time went; side by side they would not fit."""
    tables = []
    for columns in (SPACE_COLUMNS, TIME_COLUMNS):
        table = make_table(console)
        for name in columns:
            table.add_column(name, justify="right", no_wrap=True)
        for r in ranks:
            table.add_row(*(cell(r) for cell in columns.values()))
        tables.append(table)
    return tables
