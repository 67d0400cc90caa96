"""The table of means and their errors at the end of a run."""

from __future__ import annotations

import math

from rich.console import Console

from mdrun.report.console import make_table
from mdrun.run.averages import FEWEST, Average, Averages


def show_averages(console: Console, averages: Averages) -> None:
    """A line that says what was averaged, and a row for each quantity that varied; nothing where nothing was logged."""
    moving = [a for a in averages.averages if not a.is_constant]
    if not moving:
        return
    used = f"the last {averages.n_used} of {averages.n_rows} rows"
    if averages.n_used < FEWEST:
        console.print(f"averages: {used} are too few to tell errors from; log more often, or run longer", markup=False)
        return
    console.print(f"averages: {used}, the first fifth left out; standard errors", markup=False)
    table = make_table(console)
    table.add_column("average of")
    for name in ("mean", "error", "independent rows"):
        table.add_column(name, justify="right", no_wrap=True)
    energy = {a.mean for a in moving if a.name == "total_eV"}
    for a in moving:
        if a.name == "conserved_eV" and a.mean in energy:
            continue  # the same number, where there is no bath
        table.add_row(a.name, *in_words(a), f"{a.n_effective:.0f}")
    console.print(table)


def in_words(average: Average) -> tuple[str, str]:
    """Mean and error, to the error's second digit."""
    if average.error is None:
        return f"{average.mean:.6g}", "too short to tell"
    n_decimals = max(1 - math.floor(math.log10(average.error)), 0)
    return f"{average.mean:.{n_decimals}f}", f"{average.error:.{n_decimals}f}"
