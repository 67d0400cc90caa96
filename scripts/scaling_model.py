"""The tables of docs/scaling.md: what halos weigh and cost, from numbers of atoms, ranks and a machine's constants.

python scripts/scaling_model.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ARGON = 0.8442 / 3.405**3  # atoms/Å³, the Lennard-Jones benchmark's liquid
SILICON = 8 / 5.431**3
LATENCY = 10e-6  # s a message between GPUs, launch included
BANDWIDTH = 25e9  # bytes/s for each GPU
POSITION = 24  # bytes of a ghost's position


@dataclass(frozen=True)
class Model:
    """A force model: Å, atom-steps a second on one GPU, bytes of features a ghost gets back and forth in each step."""

    name: str
    density: float
    width: float
    rate: float
    feature_bytes: int = 0


MODELS = (
    Model("Lennard-Jones", ARGON, 2.5 * 3.405 + 1.0, 2e8),
    # two layers, one refresh of 128 scalars and vectors in float32 and its adjoint; force contributions go home
    Model("message passing, refreshed", SILICON, 5.5 + 0.5, 5e4, 2 * 128 * 4 * 4 + POSITION),
    Model("message passing, wide halo", SILICON, 2 * 5.5 + 0.5, 5e4),
)


def side(model: Model, n_owned: float) -> float:
    """Å, of the cube that holds a rank's atoms."""
    return (n_owned / model.density) ** (1 / 3)


def ghosts_per_owned(model: Model, n_owned: float) -> float:
    """((a + 2 w)³ - a³) / a³."""
    return (1 + 2 * model.width / side(model, n_owned)) ** 3 - 1


def n_partners(model: Model, n_owned: float) -> int:
    """Boxes within the ghost width: 26 as long as a box is wider."""
    return (2 * math.ceil(model.width / side(model, n_owned)) + 1) ** 3 - 1


def step_seconds(model: Model, n_atoms: float, n_ranks: int) -> tuple[float, float, float]:
    """Computing, and communicating with the partners alone or with a letter to every rank."""
    n = n_atoms / n_ranks
    ghosts = ghosts_per_owned(model, n) * n
    # in a wide halo the ghosts are computed too, in all layers but the last
    rows = n + (ghosts if "wide" in model.name else 0)
    flow = ghosts * (POSITION + model.feature_bytes) / BANDWIDTH
    n_letters = min(n_partners(model, n), n_ranks - 1)
    n_refreshes = 1 if model.feature_bytes == 0 else 4
    return rows / model.rate, flow + n_refreshes * n_letters * LATENCY, flow + n_refreshes * (n_ranks - 1) * LATENCY


def main() -> None:
    for model in MODELS:
        print(f"\n{model.name}: ghost width {model.width:.1f} Å, {model.rate:.0e} atom-steps/s on one GPU\n")
        print(
            "| atoms | GPUs | atoms/GPU | box, Å | ghosts/owned | MB/step | compute, ms | halo, ms | every rank, ms |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for n_atoms in (1e6, 1e8, 1e10):
            for n_ranks in (8, 128, 1024, 8192):
                n = n_atoms / n_ranks
                ratio = ghosts_per_owned(model, n)
                megabytes = ratio * n * (POSITION + model.feature_bytes) / 1e6
                compute, halo, every = (1e3 * t for t in step_seconds(model, n_atoms, n_ranks))
                print(
                    f"| 1e{math.log10(n_atoms):.0f} | {n_ranks:,} | {n:,.0f} | {side(model, n):.0f} | {ratio:.2f} | "
                    f"{megabytes:.3g} | {compute:.3g} | {halo:.3g} | {every:.3g} |"
                )


if __name__ == "__main__":
    main()
