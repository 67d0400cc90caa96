"""Section of the benchmark for machine-learned models: what mdrun adds to SevenNet's 7net-0, and what ranks gain.

    bash scripts/models.sh
    .venv/bin/python scripts/bench.py --sections models [--repeats 5] [--sizes 64,216,512]

In float32 on rock salt, on one thread. A step of mdrun and a bare call take turns within one process, so that threads,
memory and what else the machine does are the same for both. The bare call is sevenn's own network with its own module
of forces, on the edges that mdrun's step has just had; a graph is made before the clock starts.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ase import Atoms
from ase.build import bulk
from ase.io import write
from bench_systems import QUIET, Asked, rounds, run, status

MODEL = "7net-0"
OPTIONS = {"model": f"sevennet:{MODEL}", "precision": "mixed", "init_temperature": 300.0, "seed": 1, "log_every": 0}
FLAGS = [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
N_RANKS_ATOMS = 1000  # of the run on several ranks
WARM_UP = 3  # steps and calls in a row; TorchScript optimises in the first ones
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
SAME_FORCE = 1e-3  # eV/Å in float32


def models(python: Path, scratch: Path, asked: Asked) -> list[str]:
    """A step against a call; two ranks against one."""
    if importlib.util.find_spec("sevenn") is None:
        return ["## Machine-learned models\n", "Left out: sevenn is not installed (bash scripts/models.sh)."]
    return [*cost(python, scratch, asked), "", *ranks(python, scratch, asked)]


def salt(n_atoms: int) -> Atoms:
    """Rock salt, shaken as at room temperature."""
    cells = round((n_atoms / 8) ** (1 / 3))
    if 8 * cells**3 != n_atoms:
        raise SystemExit(f"--sizes: {n_atoms} is not 8 n³ atoms of rock salt.")
    atoms = bulk("NaCl", "rocksalt", a=5.64, cubic=True) * (cells, cells, cells)
    atoms.rattle(0.1, seed=1)
    return atoms


def cost(python: Path, scratch: Path, asked: Asked) -> list[str]:
    """Both clocks: the wall's, and the processor's, which other programs disturb less."""
    lines = [
        f"## A step of a model beside its bare call\n\n{MODEL} in float32, one thread; medians of {asked.repeats} "
        "turns, the ratio from its least to its most.\n",
        "| atoms | edges | clock | call, ms | step, ms | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for n_atoms in asked.sizes:
        path = scratch / f"salt{n_atoms}.extxyz"
        write(path, salt(n_atoms))
        told = run([str(python), __file__, str(path), str(asked.repeats), str(max(2, 1000 // n_atoms))], **ONE_THREAD)
        found = json.loads(told.splitlines()[-1])
        for clock in ("wall", "processor"):
            calls, steps = found[f"{clock} call"], found[f"{clock} step"]
            ratios = [step / call for step, call in zip(steps, calls, strict=True)]
            call, step = (1e3 * statistics.median(seconds) for seconds in (calls, steps))
            spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
            lines.append(f"| {n_atoms} | {found['edges']} | {clock} | {call:.1f} | {step:.1f} | {spread} |")
            print(f"  {lines[-1]}", file=sys.stderr)
    return lines


def ranks(python: Path, scratch: Path, asked: Asked) -> list[str]:
    """Two ranks of one thread against one, and the largest rank's memory."""
    path, n_steps = scratch / "salt.extxyz", 10
    n_atoms = min(N_RANKS_ATOMS, max(asked.sizes) * 8)  # less for a quick look
    write(path, salt(n_atoms))
    peaks: dict[str, float] = {}

    def step(n_ranks: int) -> Callable[[], float]:
        def measured() -> float:
            done = status(python, scratch, path, "--steps", str(n_steps), *QUIET, *FLAGS, ranks=n_ranks)
            peaks[str(n_ranks)] = max(rank["peak_memory_bytes"] for rank in done["rank_figures"]) / 2**20
            return float(done["loop_seconds"]) / n_steps

        return measured

    found = rounds(asked.repeats, {"1": step(1), "2": step(2)})
    one = statistics.median(found["1"])
    lines = [
        f"## Ranks of one thread under a model\n\n{MODEL}, {n_atoms:,} atoms.\n",
        "| ranks | ms/step | spread | faster than one | peak of a rank, MiB |",
        "| --- | --- | --- | --- | --- |",
    ]
    for n, values in found.items():
        middle = statistics.median(values)
        spread = (max(values) - min(values)) / middle
        lines.append(f"| {n} | {middle * 1e3:.0f} | {spread:.0%} | {one / middle:.2f} | {peaks[n]:.0f} |")
    return lines


def in_this_process(path: Path, n_turns: int, n_steps: int) -> dict[str, Any]:
    """Seconds of a step and of a call in each turn, by both clocks; edges of the last graph.

    A run as the command line starts it, but for what happens between its steps.
    """
    from mdrun.cli.job import run_job
    from mdrun.run.settings import Settings

    found: dict[str, Any] = {}

    def load() -> tuple[Callable[..., Any], Callable[[int], Any]]:
        from mdrun.run.job import Job

        class InTurn(Job):
            def _advance(self, sim: Any, settings: Settings) -> tuple[str, int]:
                found.update(taking_turns(sim, n_turns, n_steps))
                return "all steps done", 0

        return InTurn, Silent

    settings = OPTIONS | {"structure": path, "out": path.with_suffix(".run"), "overwrite": True, "threads": 1}
    settings |= {"steps": n_steps * n_turns + WARM_UP, "trajectory_every": 0, "checkpoint_every": 0}
    if run_job(settings, None, True, Settings, load):
        raise SystemExit("the run failed.")
    return found


def taking_turns(sim: Any, n_turns: int, n_steps: int) -> dict[str, Any]:
    """``n_steps`` steps, then as many calls on the graph of the last one, and so on."""
    import torch
    from sevenn.calculator import SevenNetCalculator

    from mdrun.run.simulation import run as advance

    bare = SevenNetCalculator(MODEL, device="cpu").model
    assert torch.get_num_threads() == 1
    network = sim.model.model.model
    forward, graphs = network.forward, []

    def remembering(graph: Any) -> Any:
        graphs[:] = [graph]
        return forward(graph)

    def graph_of_step() -> dict[str, Any]:
        """sevenn's, of the edges that the last step had; in memory of its own."""
        (graph,) = graphs
        assert graph.vectors.dtype == torch.float32
        return {
            "x": graph.numbers.clone(), "atomic_numbers": graph.numbers.clone(),
            "num_atoms": torch.tensor(graph.n_owned), "cell_volume": torch.linalg.det(graph.cell.detach()).abs(),
            "edge_index": torch.stack([graph.receivers, graph.senders]), "edge_vec": graph.vectors.detach().clone(),
            "pos": graph.positions.detach().clone(),
        }  # fmt: skip

    network.forward = remembering
    clocks = {"wall": time.perf_counter, "processor": time.process_time}
    found: dict[str, Any] = {f"{clock} {who}": [] for clock in clocks for who in ("step", "call")}

    def timed(who: str, n: int, work: Callable[[], Any]) -> Any:
        began = {name: clock() for name, clock in clocks.items()}
        answer = work()
        for name, clock in clocks.items():
            found[f"{name} {who}"].append((clock() - began[name]) / n)
        return answer

    def call(data: list[dict[str, Any]]) -> Any:
        while data:
            forces = bare(data.pop())["inferred_force"].detach().numpy()  # they are read, as a driver would
        return forces

    advance(sim, WARM_UP)
    call([graph_of_step() for _ in range(WARM_UP)])
    for _ in range(n_turns):
        timed("step", n_steps, lambda: advance(sim, n_steps))
        prepared = [graph_of_step() for _ in range(n_steps)]
        forces = timed("call", n_steps, lambda data=prepared: call(data))
        off = abs(forces - sim.forces.forces.numpy()).max()
        assert off < SAME_FORCE, f"both compute the same, but forces differ by {off} eV/Å"
    return found | {"edges": graphs[0].n_edges}


class Silent:
    """Tells nobody."""

    def __init__(self, rank: int) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., list]:
        return lambda *words: []


if __name__ == "__main__":
    print(json.dumps(in_this_process(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
