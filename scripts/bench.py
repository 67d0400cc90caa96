"""mdrun beside its peers on one core, in turn, in one run; prints a table and writes it as Markdown.

    bash scripts/bench_peers.sh DIR
    python scripts/bench.py DIR [--repeats 5] [--sections peers,scaling] [--only TEXT] [--out docs/benchmarks.md]

All sections but ``peers`` do without DIR, which holds the other programs; ``models`` asks for scripts/models.sh:

    python scripts/bench.py --sections models [--sizes 64,216,512]

Only ratios within one run mean something: absolute figures move with whatever else the machine does.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path

from bench_models import models
from bench_sections import SECTIONS
from bench_systems import Asked, Runner, System, systems

ALL = {**SECTIONS, "models": models}


def measure(system: System, repeats: int) -> dict[str, list[float]]:
    """Million atom-steps a second of everybody, A B A B; the first round warms caches and does not count."""
    runners: dict[str, Runner] = {**system.mdrun, **system.peers}
    rates: dict[str, list[float]] = {name: [] for name in runners}
    for turn in range(repeats + 1):
        for name, seconds in runners.items():
            rate = system.n_atoms * system.n_steps / seconds(system.n_steps) / 1e6
            if turn > 0:
                rates[name].append(rate)
            print(f"  {system.name}: {name}: {rate:.3f} Matom-steps/s{'' if turn else ' (warm-up)'}", file=sys.stderr)
    return rates


def rows(system: System, rates: dict[str, list[float]]) -> list[str]:
    """Markdown rows: who, median, spread, and how many times as fast mdrun is in the same precision."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    lines = []
    for name, values in rates.items():
        spread = (max(values) - min(values)) / medians[name]
        own = medians["mdrun, mixed" if name.endswith(", mixed") else "mdrun, double"]
        ratio = "" if name in system.mdrun else f"{own / medians[name]:.2f}"
        lines.append(f"| {system.name} | {name} | {medians[name]:.3f} | {spread:.0%} | {ratio} |")
    return lines


def machine() -> str:
    """The processor's name, where the system tells it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def peers(folder: Path, scratch: Path, repeats: int, only: str) -> list[str]:
    """The section that compares programs."""
    lines = [
        f"## Beside its peers\n\nOne core each, {repeats} rounds in turn.\n",
        "| system | program | million atom-steps/s | spread | mdrun is faster by |",
        "| --- | --- | --- | --- | --- |",
    ]
    for system in systems(Path(sys.executable), folder.resolve(), scratch):
        if only in system.name:
            lines += rows(system, measure(system, repeats))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=Path, nargs="?", help="folder of scripts/bench_peers.sh")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sections", help=f"which, in this order: peers (where DIR is given), {', '.join(ALL)}")
    parser.add_argument("--only", default="", help="of the peers' systems, those whose name contains this text")
    parser.add_argument("--cells", type=int, default=63, help="fcc cells along each side of the large system")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sizes", default="64,216,512", help="atoms of the systems of models, 8 n³ each")
    options = parser.parse_args()
    default = ["peers"] * (options.peers is not None) + list(ALL)
    sections = options.sections.split(",") if options.sections else default
    if unknown := set(sections) - {"peers", *ALL}:
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are peers, {', '.join(ALL)}")
    if "peers" in sections and options.peers is None:
        parser.error("section peers needs the folder of scripts/bench_peers.sh")
    asked = Asked(options.repeats, options.cells, tuple(int(word) for word in options.sizes.split(",")))
    lines = [f"# Benchmarks\n\n{machine()}, {os.cpu_count()} cores."]
    with tempfile.TemporaryDirectory() as scratch:
        for name in sections:
            if name == "peers":
                lines += ["", *peers(options.peers, Path(scratch), options.repeats, options.only)]
            else:
                lines += ["", *ALL[name](Path(sys.executable), Path(scratch), asked)]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
