"""The packages' models in mdrun and in the packages' own ASE calculators, in the same precision, on small systems."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.build import bulk
from ase.calculators.calculator import Calculator

from mdrun.potentials.adapters.packages import default_dtype, quiet
from mdrun.potentials.base import ForceModel
from mdrun.potentials.precision import PRECISIONS
from tests.systems import Result, species_of

PACKAGES = {"mace": "mace", "sevennet": "sevenn", "sevennet modal": "sevenn", "chgnet": "chgnet"}
TRIMER = [(1.0, 1.0, 1.0), (3.4, 1.0, 1.0), (1.0, 3.6, 1.2)]


def rocksalt() -> Atoms:
    """8 atoms, displaced, in a cell shorter than CHGNet's cutoff."""
    atoms = bulk("NaCl", "rocksalt", a=5.64, cubic=True)
    atoms.rattle(0.15, seed=1)
    return atoms


def one_copper() -> Atoms:
    """In a skewed cell half as long as any cutoff."""
    atoms = bulk("Cu", "fcc", a=3.6)
    skew = np.eye(3) + 0.04 * np.random.default_rng(0).normal(size=(3, 3))
    atoms.set_cell(atoms.cell.array @ skew, scale_atoms=True)
    return atoms


def slab() -> Atoms:
    """16 copper atoms under vacuum, periodic in two directions."""
    atoms = bulk("Cu", "fcc", a=3.6, cubic=True) * (2, 2, 1)
    atoms.pbc = (True, True, False)
    atoms.center(8.0, axis=2)
    atoms.rattle(0.1, seed=2)
    return atoms


def corner() -> Atoms:
    """Three atoms that see each other and one that sees none, in a large box: with four ranks and one atom each, or in
    a box cut where nothing lies."""
    return Atoms("Na2Cl2", positions=[*TRIMER, (16.0, 16.0, 16.0)], cell=[30.0] * 3, pbc=True)


def pair() -> Atoms:
    """Fewer atoms than ranks."""
    return Atoms("NaCl", positions=[(1, 1, 1), (3.5, 1.3, 0.8)], cell=[12.0] * 3, pbc=True)


SYSTEMS: dict[str, Callable[[], Atoms]] = {
    "rocksalt": rocksalt,
    "one copper": one_copper,
    "copper slab": slab,
    "corner": corner,
    "pair": pair,
}


@lru_cache
def seeded_mace() -> Any:
    """Two layers with random weights, so scaled that the second layer's neighbours are felt."""
    with quiet():
        from e3nn import o3
        from mace import modules
    with quiet(), default_dtype(torch.float64), torch.random.fork_rng():
        torch.manual_seed(3)
        return modules.ScaleShiftMACE(
            r_max=4.5, num_bessel=6, num_polynomial_cutoff=5, max_ell=2,
            interaction_cls=modules.interaction_classes["RealAgnosticResidualInteractionBlock"],
            interaction_cls_first=modules.interaction_classes["RealAgnosticInteractionBlock"],
            num_interactions=2, num_elements=3, hidden_irreps=o3.Irreps("8x0e + 8x1o"), MLP_irreps=o3.Irreps("8x0e"),
            atomic_energies=np.array([-1.0, -2.0, -3.0]), avg_num_neighbors=3.0, atomic_numbers=[11, 17, 29],
            correlation=2, gate=torch.nn.functional.silu, radial_MLP=[16, 16], atomic_inter_scale=100.0,
            atomic_inter_shift=0.0,
        )  # fmt: skip


def model_of(kind: str, atoms: Atoms, precision: str) -> ForceModel:
    from mdrun.potentials.adapters import chgnet, mace, sevennet

    species = species_of(atoms)
    if kind == "mace":
        model = mace.of_net(copy.deepcopy(seeded_mace()), None, species, "mace")
    elif kind == "chgnet":
        model = chgnet.load(None, {}, species)
    else:
        model = sevennet.load(*SEVENNETS[kind], species)
    model.precision = PRECISIONS[precision]
    return model


SEVENNETS: dict[str, tuple[str, dict[str, str]]] = {
    "sevennet": ("7net-0", {}),
    "sevennet modal": ("7net-MF-0", {"modal": "PBE"}),
    "sevennet l3i5": ("7net-l3i5", {}),  # the largest: minutes
}


def truth_of(kind: str, atoms: Atoms) -> Result:
    """What the package's calculator says, computing in float64."""
    atoms = atoms.copy()
    with quiet():
        atoms.calc = CALCULATORS[kind]()
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        stress = atoms.get_stress(voigt=False) if atoms.pbc.all() else None
    return Result(float(energy), np.array(forces), stress)


def _mace_calculator() -> Calculator:
    from mace.calculators import MACECalculator

    return MACECalculator(models=[copy.deepcopy(seeded_mace())], device="cpu", default_dtype="float64")


def _sevennet_calculator(kind: str) -> Calculator:
    """Its graphs are made in float64, then put into float32: vectors and the cell's volume are kept from before."""
    import sevenn.calculator
    from sevenn.calculator import SevenNetCalculator

    name, options = SEVENNETS[kind]
    build, kept = sevenn.train.dataload.unlabeled_atoms_to_graph, {}

    def remembering(*args: Any, **kwargs: Any) -> dict[str, Any]:
        graph = build(*args, **kwargs)
        kept.update(
            {name: torch.from_numpy(np.array(graph[name], dtype=float)) for name in ("edge_vec", "cell_volume")}
        )
        return graph

    sevenn.calculator.unlabeled_atoms_to_graph = remembering
    calculator = SevenNetCalculator(name, device="cpu", **options)
    model = calculator.model.double()

    def in_double(module: Any, args: Any, found: dict[str, Any]) -> None:
        found["x"], found["node_attr"] = found["x"].double(), found["node_attr"].double()

    def edges_in_double(module: Any, args: Any) -> None:
        (found,) = args
        found["edge_vec"], found["cell_volume"] = kept["edge_vec"].clone().requires_grad_(), kept["cell_volume"]

    model.onehot_idx_to_onehot.register_forward_hook(in_double)
    model.register_forward_pre_hook(edges_in_double)
    return calculator


def _chgnet_calculator() -> Calculator:
    import chgnet.graph.converter
    import chgnet.model.model
    from chgnet.model import CHGNet
    from chgnet.model.dynamics import CHGNetCalculator

    for module in (chgnet.graph.converter, chgnet.model.model):
        module.TORCH_DTYPE = torch.float64
    net = CHGNet.load(use_device="cpu").double()
    assemble = net.composition_model._assemble_graphs
    net.composition_model._assemble_graphs = lambda graphs: assemble(graphs).double()
    return CHGNetCalculator(net, use_device="cpu", on_isolated_atoms="ignore")


CALCULATORS: dict[str, Callable[[], Calculator]] = {
    "mace": _mace_calculator,
    "sevennet": lambda: _sevennet_calculator("sevennet"),
    "sevennet modal": lambda: _sevennet_calculator("sevennet modal"),
    "sevennet l3i5": lambda: _sevennet_calculator("sevennet l3i5"),
    "chgnet": _chgnet_calculator,
}
