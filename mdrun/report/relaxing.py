"""What the user is told of a relaxation."""

from __future__ import annotations

import sys
from pathlib import Path

from mdrun.report.live import Reporter
from mdrun.report.summary import atom_steps_and_memory, show_ranks, show_rows, start_rows
from mdrun.run.directory import RELAXED
from mdrun.run.outcome import Outcome
from mdrun.run.relax_settings import RelaxSettings
from mdrun.run.relaxation import Relaxation
from mdrun.run.setup import Shared
from mdrun.run.simulation import Simulation

OF_DYNAMICS = ("velocities", "ensemble", "temperature")


class RelaxReporter(Reporter):
    """As ``Reporter``, in the words of a search for a minimum."""

    def _introduce(self, shared: Shared, sim: Simulation, directory: Path, n_threads: int) -> None:
        settings = shared.settings
        assert isinstance(settings, RelaxSettings)
        rows = [row for row in start_rows(shared, sim, directory, n_threads) if row[0] not in OF_DYNAMICS]
        place = [name for name, _ in rows].index("decomposition")
        rows[place:place] = [
            ("search", f"{sim.integrator.describe()}, at most {settings.n_steps} steps"),
            ("strain", strain_words(settings)),
        ]
        show_rows(self.console, shared, rows)

    def _words(self, sim: Simulation) -> str:
        assert isinstance(sim.integrator, Relaxation)
        point = sim.integrator.point
        assert point is not None
        return f"{point.enthalpy:.6f} eV, largest force {point.fmax:.2e} eV/Å"

    def _conclude(self, outcome: Outcome) -> None:
        show_ranks(self.console, outcome)
        first, last = outcome.first, outcome.last
        fell = (last.potential_eV - first.potential_eV) / outcome.shared.n_atoms
        bounds = ""
        if last.volume_A3 == last.volume_A3:
            bounds = f", {last.volume_A3:.3f} Å³ (from {first.volume_A3:.3f}), {last.pressure_GPa:.4f} GPa"
        self.console.print(f"end: {last.potential_eV:.6f} eV, change {fell:+.2e} eV/atom{bounds}", markup=False)
        self.console.print(f"{outcome.reason}", markup=False)
        verb = "stopped after" if outcome.exit_code else "finished"
        self.console.print(
            f"{verb} {outcome.n_steps} steps in {outcome.loop_seconds:.2f} s: {outcome.steps_per_second:.1f} steps/s, "
            f"{atom_steps_and_memory(outcome)}"
        )
        if outcome.exit_code:
            self.console.file.flush()
            relaxed = outcome.shared.settings.directory / RELAXED
            advice = f"Go on from {relaxed}"
            if outcome.n_steps >= outcome.shared.settings.n_steps:
                advice += ", with more --steps, or take another --optimizer"
            print(f"mdrun: {outcome.reason}. {advice}.", file=sys.stderr, flush=True)


def strain_words(settings: RelaxSettings) -> str:
    """What the cell may do."""
    if settings.cell == "none":
        return "none: the cell stays"
    mask = f", of {','.join(settings.strains)}" if settings.cell_mask is not None else ""
    kept = ", volume kept" if settings.cell == "shape" else f", to {settings.pressure:g} GPa"
    return f"{settings.cell}{mask}{kept}"
