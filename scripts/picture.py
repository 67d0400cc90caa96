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
from mdrun.run.job import Job
from mdrun.run.settings import make_settings

PICTURE = Path("docs/simulate.svg")
STRUCTURE = "inputs/argon.extxyz"


def main() -> None:
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=140, highlight=False)
    comm = open_comm()
    with tempfile.TemporaryDirectory() as scratch:
        out = comm.broadcast(os.path.join(scratch, "argon.run"))
        flags = {
            "structure": STRUCTURE,
            "init_temperature": 80.0,
            "timestep": 2.0,
            "steps": 2000,
            "seed": 1,
            "out": out,
        }
        reporter = Reporter(comm.rank, console)
        Job(make_settings({}, flags), comm, reporter).execute()
        comm.close()
    if comm.rank == 0:
        PICTURE.parent.mkdir(exist_ok=True)
        console.save_svg(str(PICTURE), title="mdrun simulate inputs/argon.extxyz")
    os._exit(0)


if __name__ == "__main__":
    main()
