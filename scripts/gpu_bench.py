"""Lennard-Jones argon on a GPU beside the CPU path on all cores, in turn, each in a process of its own.

python scripts/gpu_bench.py [--cells 20] [--steps 2000] [--repeats 3] [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from ase.build import bulk
from ase.io import write

PATHS = {
    "CPU, Numba, double": ("cpu", "numba", "double"),
    "CPU, Numba, mixed": ("cpu", "numba", "mixed"),
    "torch, double": ("", "torch", "double"),
    "torch, mixed": ("", "torch", "mixed"),
}


def loop_seconds(structure: Path, out: Path, path: tuple[str, str, str], cells: int, steps: int) -> float:
    """Of one run, as its status tells."""
    device, backend, precision = path
    command = [
        sys.executable, "-m", "mdrun", "simulate", structure, "--out", out, "--overwrite", "--replicate", *[cells] * 3,
        "--init-temperature", 80, "--seed", 1, "--timestep", 2, "--steps", steps, "--log-every", steps,
        "--trajectory-every", 0, "--checkpoint-every", 0, "--device", device, "--backend", backend,
        "--precision", precision,
    ]  # fmt: skip
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    return json.loads((out / "status.json").read_text())["loop_seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda", help="of the torch path")
    options = parser.parse_args()
    n_atoms = 4 * options.cells**3
    rates: dict[str, list[float]] = {name: [] for name in PATHS}
    with tempfile.TemporaryDirectory() as scratch:
        structure = Path(scratch) / "argon.extxyz"
        write(structure, bulk("Ar", "fcc", a=5.4, cubic=True))
        for turn in range(options.repeats + 1):
            for name, (device, backend, precision) in PATHS.items():
                path = (device or options.device, backend, precision)
                short, long = (
                    loop_seconds(structure, Path(scratch) / "run", path, options.cells, n)
                    for n in (options.steps // 10, options.steps + options.steps // 10)
                )
                found = n_atoms * options.steps / (long - short) / 1e6  # what was compiled in the loop cancels
                print(f"  {name}: {found:.3f} Matom-steps/s{'' if turn else ' (warm-up)'}", file=sys.stderr)
                if turn:
                    rates[name].append(found)
    where = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    print(f"{n_atoms} Lennard-Jones atoms, {options.steps} steps, torch on {where}\n")
    print("| path | million atom-steps/s | spread |\n| --- | --- | --- |")
    for name, values in rates.items():
        middle = statistics.median(values)
        print(f"| {name} | {middle:.3f} | {(max(values) - min(values)) / middle:.0%} |")


if __name__ == "__main__":
    main()
