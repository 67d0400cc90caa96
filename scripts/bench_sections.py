"""Sections of the benchmark that have no peer: scaling, memory, start-up, and where a step's time goes.

Each is ``(python, scratch, asked) -> lines`` of Markdown; configurations take turns, figures are medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ase.io import write
from bench_systems import LJ_OPTIONS, QUIET, Asked, argon, in_turn, run, status

LIQUID = ("--replicate", "20", "20", "20")
PARTS = ("force", "neighbor", "communication", "integration", "output")
ARGON_500 = Path(__file__).parent.parent / "inputs" / "argon.extxyz"


def lj(python: Path, scratch: Path, n_steps: int, *options: str, **more: int) -> dict:
    """``status.json`` of the Lennard-Jones liquid, replicated as the options say."""
    path = scratch / "cell.extxyz"
    write(path, argon(1))
    return status(python, scratch, path, "--steps", str(n_steps), *LJ_OPTIONS, *options, **more)


def scaling(python: Path, scratch: Path, asked: Asked) -> list[str]:
    """Two threads, and two ranks of one thread, against one; and what the machine's second core adds at all."""

    def seconds(**more: int) -> Callable[[], float]:
        return lambda: lj(python, scratch, 200, *LIQUID, *QUIET, **more)["loop_seconds"]

    def two_runs() -> float:
        """Each of half the work of one: what sets them back is the machine."""
        folders = [scratch / "one", scratch / "other"]
        for folder in folders:
            folder.mkdir(exist_ok=True)
        with ThreadPoolExecutor(2) as pool:
            ends = pool.map(lambda f: lj(python, f, 200, *LIQUID, *QUIET)["loop_seconds"], folders)
            return max(ends) / 2

    shapes = {
        "1 rank of 1 thread": seconds(),
        "1 rank of 2 threads": seconds(threads=2),
        "2 ranks of 1 thread": seconds(ranks=2),
        "two runs at once, of which each does half": two_runs,
    }
    found = in_turn(asked.repeats, shapes)
    one = next(iter(found.values()))
    lines = ["## Scaling\n\nLJ liquid, 32,000 atoms, double.\n", "| | ms/step | speed-up |", "| --- | --- | --- |"]
    return lines + [f"| {name} | {5 * s:.2f} | {one / s:.2f} |" for name, s in found.items()]


def memory(python: Path, scratch: Path, asked: Asked) -> list[str]:
    """The large system's peak, everything that a run does included, and its pace beside 32,000 atoms'."""
    large = ("--replicate", *3 * (str(asked.cells),))
    whole = lj(python, scratch, 10, *large, "--trajectory-every", "10")
    empty = lj(python, scratch, 10)["peak_memory_bytes"]  # four atoms: what Python and its libraries hold
    n, peak = whole["n_atoms"], whole["peak_memory_bytes"]

    def nanoseconds(n_steps: int, *size: str) -> Callable[[], float]:
        return lambda: 1e9 / lj(python, scratch, n_steps, *size, *QUIET)["atom_steps_per_second"]

    names = ("32,000 atoms", f"{n:,} atoms")
    paces = in_turn(asked.repeats, {names[0]: nanoseconds(40, *LIQUID), names[1]: nanoseconds(40, *large)})
    return [
        f"## Memory\n\nLJ liquid, {n:,} atoms in one process: 10 steps, two frames, a checkpoint.\n",
        "| | bytes an atom | MiB |",
        "| --- | --- | --- |",
        f"| peak | {peak / n:.0f} | {peak / 2**20:.0f} |",
        f"| beyond a run of four atoms | {(peak - empty) / n:.0f} | {(peak - empty) / 2**20:.0f} |",
        "",
        *(f"{name}: {pace:.1f} ns an atom-step on one core.  " for name, pace in paces.items()),
        f"Ratio {paces[names[1]] / paces[names[0]]:.2f}.",
    ]


def startup(python: Path, scratch: Path, asked: Asked) -> list[str]:
    """From the shell to the end of a first step, caches warm."""

    def seconds(*words: str) -> Callable[[], float]:
        def once() -> float:
            began = time.perf_counter()
            run([str(python), *words])
            return time.perf_counter() - began

        return once

    simulate = ("-m", "mdrun", "simulate", str(ARGON_500), "--steps", "1", "--overwrite")
    words = {
        "`mdrun simulate`, 500 atoms, 1 step": (*simulate, "--out", str(scratch / "start.run")),
        "of that `import torch`": ("-c", "import torch"),
        "`mdrun --help`": ("-m", "mdrun", "--help"),
    }
    found = in_turn(asked.repeats, {name: seconds(*command) for name, command in words.items()})
    lines = ["## Start-up\n\nKernels compiled before.\n", "| | s |", "| --- | --- |"]
    return lines + [f"| {name} | {s:.2f} |" for name, s in found.items()]


def steps(python: Path, scratch: Path, asked: Asked) -> list[str]:
    """Where a step's time goes, on average over the ranks."""
    lines = [
        "## Where a step's time goes\n\nLJ liquid, 32,000 atoms, double, 400 steps; percent of the loop.\n",
        f"| | {' | '.join(PARTS)} | ms/step |",
        f"| --- |{' --- |' * (len(PARTS) + 1)}",
    ]
    for name, ranks in (("1 rank", 1), ("2 ranks", 2)):
        done = lj(python, scratch, 400, *LIQUID, *QUIET, ranks=ranks)
        loop, figures = done["loop_seconds"], done["rank_figures"]
        shares = (statistics.mean(rank[f"{part}_s"] for rank in figures) / loop for part in PARTS)
        lines.append(f"| {name} | {' | '.join(f'{share:.0%}' for share in shares)} | {loop / 0.4:.2f} |")
    return lines


def checkpoints(python: Path, scratch: Path, repeats: int, cells: int) -> list[str]:
    """What one checkpoint of the large system costs: ten steps with five of them less ten steps with none."""
    large, n_kept = ("--replicate", *3 * (str(cells),)), 5

    def seconds(every: int) -> Callable[[], float]:
        quiet = ("--trajectory-every", "0", "--checkpoint-every", str(every))
        return lambda: lj(python, scratch, 2 * n_kept, *large, *quiet)["loop_seconds"]

    # The one without comes first: what the other leaves in the scratch folder is the file that is weighed.
    without, with_them = in_turn(repeats, {"no checkpoints": seconds(0), f"{n_kept} checkpoints": seconds(2)}).values()
    megabytes = (scratch / "bench.run" / "checkpoint.npz").stat().st_size / 1e6
    each = (with_them - without) / n_kept
    return [
        f"## Checkpoints\n\nLJ liquid, {4 * cells**3:,} atoms on one core, {2 * n_kept} steps.\n",
        "| | |",
        "| --- | --- |",
        f"| one checkpoint | {each:.2f} s |",
        f"| its size | {megabytes:.0f} MB |",
        f"| share of a run that writes one each 15 minutes | {each / 900:.2%} |",
    ]


SECTIONS = {"scaling": scaling, "memory": memory, "startup": startup, "steps": steps, "checkpoints": checkpoints}
