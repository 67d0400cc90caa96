"""Each potential on a GPU beside the CPU path on all cores, in turn, each run in a process of its own.

python scripts/gpu_bench.py [--systems lj,eam,emt,sw,tersoff] [--atoms 32000] [--steps 2000] [--repeats 3]
    [--device cuda]

The CPU runs a tenth of the steps. The loop alone is timed: kernels are compiled, and the first list made, before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from ase import Atoms
from ase.build import bulk
from ase.io import write

POTENTIALS = Path(__file__).resolve().parent.parent / "tests" / "data" / "potentials"


@dataclass(frozen=True)
class System:
    """A crystal that is heated, and its model."""

    cell: Atoms
    model: str
    kelvin: float
    timestep_fs: float


SILICON = bulk("Si", "diamond", a=5.431, cubic=True)
COPPER = bulk("Cu", "fcc", a=3.615, cubic=True)
SYSTEMS = {
    "lj": System(bulk("Ar", "fcc", a=5.4, cubic=True), "lj", 80, 2),
    "eam": System(COPPER, f"eam:{POTENTIALS / 'Cu_mishin1.eam.alloy'}", 1600, 5),
    "emt": System(COPPER, "emt", 1600, 5),
    "sw": System(SILICON, "sw", 1000, 1),
    "tersoff": System(SILICON, "tersoff", 1000, 1),
}
CPU_STEPS = 10  # times fewer


def loop_seconds(scratch: Path, system: System, cells: int, path: tuple[str, str, str], steps: int) -> float:
    """Of one run, as its status tells."""
    structure, out = scratch / "cell.extxyz", scratch / "run"
    write(structure, system.cell)
    device, backend, precision = path
    command = [
        sys.executable, "-m", "mdrun", "simulate", structure, "--out", out, "--overwrite", "--replicate", *[cells] * 3,
        "--model", system.model, "--init-temperature", system.kelvin, "--timestep", system.timestep_fs, "--seed", 1,
        "--steps", steps, "--log-every", steps, "--trajectory-every", 0, "--checkpoint-every", 0,
        "--device", device, "--backend", backend, "--precision", precision,
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"gpu_bench: {' '.join(str(word) for word in command)} failed:\n{done.stderr[-2000:]}")
    return json.loads((out / "status.json").read_text())["loop_seconds"]


def rates(scratch: Path, system: System, cells: int, options: argparse.Namespace) -> dict[str, list[float]]:
    """Million atom-steps a second of each path, one for each turn."""
    paths = {
        "CPU, Numba, double": ("cpu", "numba", "double"),
        "CPU, Numba, mixed": ("cpu", "numba", "mixed"),
        f"{options.device}, torch, double": (options.device, "torch", "double"),
        f"{options.device}, torch, mixed": (options.device, "torch", "mixed"),
    }
    found: dict[str, list[float]] = {name: [] for name in paths}
    for turn in range(options.repeats + 1):  # the first, which fills caches, does not count
        for name, path in paths.items():
            steps = max(options.steps // (CPU_STEPS if path[1] == "numba" else 1), 10)
            rate = len(system.cell) * cells**3 * steps / loop_seconds(scratch, system, cells, path, steps) / 1e6
            print(f"  {name}: {rate:.3f} Matom-steps/s{'' if turn else ' (warm-up)'}", file=sys.stderr)
            if turn:
                found[name].append(rate)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--atoms", type=int, default=32000, help="as near as whole cells come")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda", help="of the torch path")
    options = parser.parse_args()
    where = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    print(f"torch {torch.__version__} on {where}; million atom-steps/s\n")
    print("| model | atoms | path | median | spread | CPU, double = 1 |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.systems.split(","):
            system = SYSTEMS[name]
            cells = max(round((options.atoms / len(system.cell)) ** (1 / 3)), 1)
            print(f"{name}, {cells} cells along an edge", file=sys.stderr)
            found = rates(Path(scratch), system, cells, options)
            middle = {path: statistics.median(values) for path, values in found.items()}
            for path, values in found.items():
                spread, ratio = (max(values) - min(values)) / middle[path], middle[path] / middle["CPU, Numba, double"]
                n_atoms = len(system.cell) * cells**3
                print(f"| {name} | {n_atoms} | {path} | {middle[path]:.3f} | {spread:.0%} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
