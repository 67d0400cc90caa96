"""The table of ``mdrun models``."""

from __future__ import annotations

from importlib.metadata import entry_points

from mdrun.potentials.catalogue import ENTRIES
from mdrun.potentials.registry import PLUG_INS
from mdrun.report.console import forgive_glyphs, make_console, make_table

NOTES = (
    "refresh: before each layer, ranks exchange the features of the atoms at their borders; nobody computes another's.",
    "wide halo: each rank computes as many cutoffs beyond its border as there are layers.",
    "All packages in one environment: bash scripts/models.sh. Files of mace, sevennet and chgnet need --trust-model.",
)


def show_models() -> None:
    """To stdout: ruled on a terminal, a line for each model elsewhere."""
    forgive_glyphs()
    console = make_console()
    table = make_table(console)
    for name in ("--model", "state", "species", "cutoff Å", "layers", "several ranks", "licence"):
        table.add_column(name, overflow="fold")
    for entry in ENTRIES:
        shown = (entry.spec, entry.state, entry.species, entry.cutoff, entry.layers, entry.halo, entry.licence)
        table.add_row(*(text.replace("[", r"\[") for text in shown))
    for point in entry_points(group=PLUG_INS):
        table.add_row(f"{point.name}:...", f"plug-in {point.value.partition(':')[0]}", *["the plug-in's"] * 5)
    console.print(table)
    for note in NOTES:
        console.print(note)
