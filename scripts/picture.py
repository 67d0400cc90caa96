"""Draws the README's picture: the real output of a two-rank run, exported as SVG by rich.

Run it as ``torchrun --standalone --nproc-per-node 2 scripts/picture.py`` from the repository's root.
"""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path

from rich.console import Console

from mdrun.comm import open_comm
from mdrun.report.live import Reporter
from mdrun.report.summary import show_start
from mdrun.run.job import Job
from mdrun.run.settings import make_settings

ROOT = Path.cwd()
PICTURE = ROOT / "docs/simulate.svg"
STRUCTURE = "inputs/argon.extxyz"


class Still(Reporter):
    """Says what stays on the screen: a picture has no bar that moves."""

    def started(self, shared, sim, directory, n_threads) -> None:
        show_start(self.console, shared, sim, directory, n_threads)


def main() -> None:
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=90, highlight=False)
    comm = open_comm()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(comm.broadcast(scratch))
        flags = {
            "structure": STRUCTURE,
            "model": "lj:shift=true",
            "init_temperature": 80.0,
            "timestep": 2.0,
            "steps": 2000,
            "seed": 1,
        }
        if comm.rank == 0:
            os.symlink(ROOT / "inputs", "inputs")
        Job(make_settings({}, flags), comm, Still(comm.rank, console)).execute()
        comm.close()
        os.chdir(ROOT)
    if comm.rank == 0:
        PICTURE.parent.mkdir(exist_ok=True)
        console.save_svg(str(PICTURE), title="mdrun simulate inputs/argon.extxyz --model lj:shift=true")
    os._exit(0)


if __name__ == "__main__":
    main()
