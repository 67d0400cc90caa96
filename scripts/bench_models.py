"""What mdrun adds to a machine-learned model: its step beside the model's own energy-and-forces call; ranks; memory.

    bash scripts/models.sh
    .venv/bin/python scripts/bench_models.py [--repeats 5] [--sizes 64,216,512] [--sections cost,ranks]

The model is SevenNet's 7net-0 in float32 on rock salt, one thread. The call is sevenn's own network with its own forces
and stress, on a graph that was made before the clock starts. Both take turns; figures are medians.
"""

from __future__ import annotations

import argparse
import copy
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ase import Atoms
from ase.build import bulk
from ase.io import read, write
from bench_sections import in_turn
from bench_systems import QUIET, status

MODEL = "7net-0"
OPTIONS = ("--model", f"sevennet:{MODEL}", "--precision", "mixed", "--init-temperature", "300", "--log-every", "0")
CELLS = {64: (2, 2, 2), 216: (3, 3, 3), 512: (4, 4, 4), 1000: (5, 5, 5)}


def salt(n_atoms: int) -> Atoms:
    """Rock salt, shaken as at room temperature."""
    atoms = bulk("NaCl", "rocksalt", a=5.64, cubic=True) * CELLS[n_atoms]
    atoms.rattle(0.1, seed=1)
    return atoms


def bare_seconds(path: Path, n_calls: int) -> float:
    """Of one call, by the package alone; run in a process of its own."""
    import numpy as np
    import torch
    from sevenn.atom_graph_data import AtomGraphData
    from sevenn.calculator import SevenNetCalculator
    from sevenn.train.dataload import unlabeled_atoms_to_graph

    calculator = SevenNetCalculator(MODEL, device="cpu")
    graph = unlabeled_atoms_to_graph(read(path), calculator.cutoff, with_shift=False)
    spent = []
    for _ in range(n_calls + 3):  # the first ones warm it up
        data = AtomGraphData.from_numpy_dict(copy.deepcopy(graph))
        began = time.perf_counter()
        calculator.model(data)["inferred_force"].detach().numpy()  # forces are read, as a driver would
        spent.append(time.perf_counter() - began)
    assert torch.get_num_threads() == 1
    return float(np.mean(spent[3:]))


def bare(path: Path, n_calls: int) -> float:
    code = f"import bench_models, pathlib; print(bench_models.bare_seconds(pathlib.Path({str(path)!r}), {n_calls}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout.split()[-1])


def cost(scratch: Path, repeats: int, sizes: list[int]) -> list[str]:
    """A step against a call."""
    lines = [
        "## A step beside the bare call\n",
        "| atoms | call, ms | step, ms | ratio |",
        "| --- | --- | --- | --- |",
    ]
    for n_atoms in sizes:
        path, n = scratch / f"salt{n_atoms}.extxyz", max(10, 4000 // n_atoms)
        write(path, salt(n_atoms))

        def step(path: Path = path, n: int = n) -> float:
            done = status(Path(sys.executable), scratch, path, "--steps", str(n), *QUIET, *OPTIONS)
            return float(done["loop_seconds"]) / n

        found = in_turn(repeats, {f"{n_atoms} call": lambda p=path, k=n: bare(p, k), f"{n_atoms} step": step})
        call, whole = found.values()
        lines.append(f"| {n_atoms} | {call * 1e3:.1f} | {whole * 1e3:.1f} | {whole / call:.3f} |")
    return lines


def ranks(scratch: Path, repeats: int, sizes: list[int]) -> list[str]:
    """Two ranks of one thread against one, and the largest rank's memory."""
    path, n = scratch / "salt1000.extxyz", 10
    write(path, salt(1000))
    peaks: dict[str, float] = {}

    def step(n_ranks: int, strategy: str) -> Callable[[], float]:
        def measured() -> float:
            options = ("--steps", str(n), *QUIET, *OPTIONS, "--strategy", strategy)
            done = status(Path(sys.executable), scratch, path, *options, ranks=n_ranks)
            peaks[f"{n_ranks} {strategy}"] = max(r["peak_memory_bytes"] for r in done["rank_figures"]) / 2**20
            return float(done["loop_seconds"]) / n

        return measured

    kinds = [(1, "auto"), (2, "halo")]
    found = in_turn(repeats, {f"{k} {strategy}": step(k, strategy) for k, strategy in kinds})
    one = found["1 auto"]
    lines = [
        "## Ranks of one thread, 1,000 atoms\n",
        "| ranks | step, ms | faster than one | peak of a rank, MiB |",
        "| --- | --- | --- | --- |",
    ]
    for name, seconds in found.items():
        lines.append(f"| {name} | {seconds * 1e3:.0f} | {one / seconds:.2f} | {peaks[name]:.0f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", default="64,216,512")
    parser.add_argument("--sections", default="cost,ranks")
    options = parser.parse_args()
    sizes = [int(word) for word in options.sizes.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.sections.split(","):
            print("\n".join({"cost": cost, "ranks": ranks}[name](Path(scratch), options.repeats, sizes)), "\n")


if __name__ == "__main__":
    main()
