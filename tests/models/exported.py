"""A Lennard-Jones model as metatomic exports it. Imported where its packages are installed alone."""

# ruff: noqa: UP006, UP035, UP045 - TorchScript reads annotations of the old kind

from pathlib import Path
from typing import Dict, List, Optional

import torch
from metatensor.torch import Labels, TensorBlock, TensorMap
from metatomic.torch import (
    AtomisticModel,
    ModelCapabilities,
    ModelMetadata,
    ModelOutput,
    NeighborListOptions,
    System,
)

RANGE = 6.0  # Å


class Pairs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.options = NeighborListOptions(cutoff=RANGE, full_list=True, strict=True)

    def requested_neighbor_lists(self) -> List[NeighborListOptions]:
        return [self.options]

    def forward(
        self,
        systems: List[System],
        outputs: Dict[str, ModelOutput],
        selected_atoms: Optional[Labels] = None,
    ) -> Dict[str, TensorMap]:
        system = systems[0]
        pairs = system.get_neighbor_list(self.options)
        r2 = pairs.values.reshape(-1, 3).pow(2).sum(1)
        x = (3.4**2 / r2) ** 3
        halves = 2 * 0.0104 * (x * x - x) * (1 - r2 / 36.0) ** 3
        first = pairs.samples.column("first_atom").to(torch.long)
        energies = torch.zeros(len(system), dtype=halves.dtype).index_add(0, first, halves)
        atoms = torch.arange(len(system), dtype=torch.int32)
        samples = Labels(["system", "atom"], torch.stack([torch.zeros_like(atoms), atoms], 1))
        if not outputs["energy"].per_atom:
            energies, samples = energies.sum().reshape(1), Labels(["system"], torch.tensor([[0]], dtype=torch.int32))
        none = torch.jit.annotate(List[Labels], [])
        names = Labels(["energy"], torch.tensor([[0]], dtype=torch.int32))
        block = TensorBlock(values=energies.reshape(-1, 1), samples=samples, components=none, properties=names)
        return {"energy": TensorMap(Labels(["_"], torch.tensor([[0]], dtype=torch.int32)), [block])}


def export(path: Path) -> None:
    capabilities = ModelCapabilities(
        outputs={"energy": ModelOutput(quantity="energy", unit="eV", per_atom=True)},
        atomic_types=[18],
        interaction_range=RANGE,
        length_unit="Angstrom",
        supported_devices=["cpu"],
        dtype="float64",
    )
    AtomisticModel(Pairs().eval(), ModelMetadata(), capabilities).save(str(path))
