"""CHGNet of the package chgnet: ``chgnet`` (0.3.0), ``chgnet:r2scan``, or a file of its weights.

Deng et al., Nat. Mach. Intell. 5, 1031 (2023), doi:10.1038/s42256-023-00716-3.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mdrun.errors import InputError
from mdrun.graph import Graph
from mdrun.potentials.adapters.packages import needed, quiet
from mdrun.potentials.base import ForceModel, UnknownSpecies, symbols_of
from mdrun.potentials.catalogue import IN_PACKAGES
from mdrun.potentials.graph_model import GraphModel, Needs
from mdrun.verbs import refresh_neighbors, system_sum

IN_THE_WHEEL = IN_PACKAGES["chgnet"]
MOST_BONDS = 256  # of one atom
SAME_BOND = 1e-3  # Å


class CHGNet(nn.Module):
    """Per-atom energies by chgnet's own layers.

    chgnet has one feature for each undirected bond. Here each end has a copy, and knows the angles around itself: what
    those say is completed with what the other end's say, which comes as a feature of the neighbour. A wide halo would
    have to reach over four layers of 6 Å.

    Args:
        net: a ``chgnet.model.CHGNet`` with ``mlp_first`` and bond convolutions without biases.
    """

    needs = Needs(owned_first=True)

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net
        self.cutoff, self.n_layers = float(net.model_args["atom_graph_cutoff"]), int(net.n_conv)
        self.bond_cutoff = float(net.model_args["bond_graph_cutoff"])

    def forward(self, graph: Graph) -> Tensor:
        """(n_owned,) eV."""
        net, owned = self.net, slice(0, graph.n_owned)
        dtype = graph.vectors.dtype
        lengths = graph.vectors.double().norm(dim=1)  # of which waves are made, some 30 periods: too many for float32
        bonds = _Bonds.of(graph, lengths, self.bond_cutoff)
        basis = net.bond_basis_expansion
        radial = basis.rbf_expansion_ag(lengths).to(dtype)
        weights_of_bonds = net.bond_weights_bg(basis.rbf_expansion_bg(lengths[bonds.edges]).to(dtype))
        weights = net.bond_weights_ag(radial)
        edges = net.bond_embedding(radial)
        bond = edges[bonds.edges]
        direction = -graph.vectors[bonds.edges] / lengths[bonds.edges, None].to(dtype)
        angle = net.angle_embedding(net.angle_basis_expansion(direction[bonds.first], direction[bonds.second]))
        atoms = net.atom_embedding(graph.numbers - 1)
        for layer, (of_atoms, of_bonds) in enumerate(
            zip(net.atom_conv_layers, [*net.bond_conv_layers, None], strict=True)
        ):
            if layer > 0:
                atoms = refresh_neighbors(atoms, f"layer {layer + 1}")
            atoms = _atom_convolution(of_atoms, graph, atoms, edges, weights)
            if of_bonds is None:
                break
            here = _of_bonds_here(of_bonds, bonds, atoms, bond, weights_of_bonds, angle)
            there = bonds.at_other_end(here, graph.n_owned, f"bonds {layer + 1}")
            bond = _bond_convolution(of_bonds, here + there, bond)
            edges = edges.index_copy(0, bonds.edges, bond)
            of_angles = net.angle_layers[layer]
            if of_angles is not None and layer < self.n_layers - 2:  # nobody reads those of the last
                ends = torch.stack([bonds.centres[bonds.first], bonds.first, bonds.second], dim=1)
                angle = of_angles(atom_feas=atoms, bond_feas=bond, angle_feas=angle, bond_graph=ends)
        if net.readout_norm is not None:
            atoms = net.readout_norm(atoms)
        energies = net.mlp(atoms)[:, 0]
        if net.composition_model is not None:
            energies = energies + net.composition_model.fc.weight[0, graph.numbers[owned] - 1]
        return energies


@dataclass
class _Bonds:
    """Edges short enough for the bond graph.

    Attributes:
        edges: (n,) their number among the graph's.
        centres: (n,) owned node each.
        slots: (n,) each one's number among those of its centre.
        reverse_row: (n,) node at the other end.
        reverse_slot: (n,) the number that the same bond has there.
        has_reverse: (n, 1) 0 where the other end doesn't see it: at the cutoff, by rounding; its weight is 0.
        first, second: (n_angles,) bonds at one centre; all ordered pairs.
        n_slots: of the atom with most, on any rank.
    """

    edges: Tensor
    centres: Tensor
    slots: Tensor
    reverse_row: Tensor
    reverse_slot: Tensor
    has_reverse: Tensor
    first: Tensor
    second: Tensor
    n_slots: int

    @classmethod
    def of(cls, graph: Graph, lengths: Tensor, cutoff: float) -> _Bonds:
        edges = torch.nonzero(lengths.detach() < cutoff).flatten()
        centres, others = graph.receivers[edges], graph.senders[edges]
        counts = torch.bincount(centres, minlength=graph.n_owned)
        starts = counts.cumsum(0) - counts
        slots = torch.arange(len(edges), device=edges.device) - starts[centres]
        n_slots = _largest(counts)
        partners = counts[centres]
        first = torch.repeat_interleave(partners)
        within = torch.arange(len(first), device=edges.device) - (partners.cumsum(0) - partners)[first]
        second = starts[centres[first]] + within
        differ = first != second
        ids = graph.ids.double()
        vectors = graph.vectors.detach()[edges].double()
        told = torch.cat([ids[others, None], vectors], dim=1)
        table = told.new_full((graph.n_owned, n_slots, 4), torch.inf)
        table[centres, slots] = told
        seen = refresh_neighbors(table, "ends of bonds")[others]  # (n, n_slots, 4)
        expected = torch.cat([ids[centres, None], -vectors], dim=1)
        distance, slot = (seen - expected[:, None]).abs().amax(dim=2).nan_to_num(nan=torch.inf).min(dim=1)
        has_reverse = (distance < SAME_BOND).to(graph.vectors.dtype)[:, None]
        return cls(edges, centres, slots, others, slot, has_reverse, first[differ], second[differ], n_slots)

    def at_other_end(self, here: Tensor, n_owned: int, exchange: str) -> Tensor:
        """(n, ...) what the other end of each bond has of (n, ...)."""
        table = here.new_zeros((n_owned, self.n_slots, here.shape[1])).index_put((self.centres, self.slots), here)
        return refresh_neighbors(table, exchange)[self.reverse_row, self.reverse_slot] * self.has_reverse


def _largest(counts: Tensor) -> int:
    """The largest of all ranks' counts, at least 1."""
    places = torch.nn.functional.one_hot(counts.clamp(max=MOST_BONDS - 1), MOST_BONDS).double()
    occurring = torch.nonzero(system_sum(places, torch.zeros_like(counts), 1)[0]).flatten()
    return max(1, int(occurring[-1])) if len(occurring) else 1


def _atom_convolution(layer: Any, graph: Graph, atoms: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
    """chgnet's ``AtomConv`` for owned atoms alone; ``atoms`` has rows of all nodes."""
    meeting = [atoms[graph.receivers], edges, atoms[graph.senders]]
    new = graph.sum_edges(layer.twoBody_atom(torch.cat(meeting, dim=1)) * weights)
    new = layer.mlp_out(new) if layer.use_mlp_out else new
    new = new + atoms[: graph.n_owned] if layer.resnet else new
    return new if layer.atom_norm is None else layer.atom_norm(new)


def _of_bonds_here(layer: Any, bonds: _Bonds, atoms: Tensor, bond: Tensor, weights: Tensor, angle: Tensor) -> Tensor:
    """The sums of chgnet's ``BondConv`` over the angles at this end of each bond."""
    meeting = [bond[bonds.first], bond[bonds.second], angle, atoms[bonds.centres[bonds.first]]]
    update = layer.twoBody_bond(torch.cat(meeting, dim=1)) * weights[bonds.first] * weights[bonds.second]
    return torch.zeros_like(bond).index_add(0, bonds.first, update)


def _bond_convolution(layer: Any, update: Tensor, bond: Tensor) -> Tensor:
    """The rest of chgnet's ``BondConv``, of sums over the angles at both ends of each bond."""
    new = layer.mlp_out(update) if layer.use_mlp_out else update
    return new + bond if layer.resnet else new


def load(argument: str | None, options: dict[str, str], numbers: tuple[int, ...]) -> ForceModel:
    """See the module's text.

    Raises:
        InputError: the package or the file is not there, or the model is of another kind.
        UnknownSpecies: it was not trained on one.
    """
    if options:
        raise InputError("chgnet takes no options.")
    name = argument or IN_THE_WHEEL[0]
    package = needed("chgnet.model.model", "chgnet").CHGNet
    if not is_in_the_wheel(name) and not Path(name).is_file():
        raise InputError(f"chgnet:{name}: there is no such file, and the package has {', '.join(IN_THE_WHEEL)}.")
    try:
        with quiet():
            net = (
                package.load(model_name=name.lower(), use_device="cpu", verbose=False)
                if is_in_the_wheel(name)
                else package.from_file(name)
            )
    except Exception as error:
        raise InputError(f"chgnet:{name} can't be loaded: {type(error).__name__}: {error}") from error
    return of_net(net, numbers, f"chgnet:{Path(name).name}")


def of_net(net: Any, numbers: tuple[int, ...], name: str) -> ForceModel:
    """The force model of one of chgnet's.

    Raises:
        InputError: bonds are updated in a way that needs more than this module does, or energies aren't per atom.
        UnknownSpecies: it was not trained on one.
    """
    layers = [layer for layer in net.bond_conv_layers if layer is not None]
    has_bias = any(
        module.bias is not None for layer in layers for module in layer.mlp_out.modules() if hasattr(module, "bias")
    )
    if not net.mlp_first or has_bias or len(layers) < len(net.bond_conv_layers) or any(x.bond_norm for x in layers):
        raise InputError(f"{name} is a CHGNet of a kind that mdrun has no path for (like 0.2.0); take 0.3.0 or r2scan.")
    n_known = net.atom_embedding.embedding.num_embeddings
    missing = [z for z in numbers if not 1 <= z <= n_known]
    if missing:
        raise UnknownSpecies(name, missing, symbols_of(range(1, n_known + 1)))
    return GraphModel(CHGNet(net), numbers, name)


def is_in_the_wheel(name: str) -> bool:
    """Whether the weights come with the package, rather than from a file of the user's."""
    return name.lower() in IN_THE_WHEEL
