"""A force model out of an energy model: something that maps a ``Graph`` to energies of its nodes.

Forces are the energy's gradient at the positions of nodes, ghosts' summed into their owners, and the virial is that
under one strain of positions and cell. Each rank differentiates the energy of its own atoms; what other ranks' energies
owe to features of these atoms arrives through the adjoint of ``refresh_neighbors``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from mdrun.compiler import compiled_for_each_shape
from mdrun.context import DistributedContext, current_dd_context
from mdrun.domain import Domain
from mdrun.errors import InputError
from mdrun.exchanges import EXCHANGES, FORCES
from mdrun.fixed_shapes import GraphPadder
from mdrun.graph import Evaluation, Graph, GraphView
from mdrun.nodes import Nodes
from mdrun.potentials.base import Forces
from mdrun.potentials.precision import DOUBLE, Precision
from mdrun.verbs import sum_into_owners


@dataclass(frozen=True)
class Needs:
    """What an energy model asks of the driver, in its attribute ``needs``.

    Attributes:
        reach: how a layer learns of neighbours that other ranks own. "refresh": the model calls ``refresh_neighbors``
            before each layer that reads neighbours, but the first. "wide": it calls nothing; ghosts as far away as
            all layers reach are computed here too.
        owned_first: it computes the first rows of a graph, so owned nodes have to be those.
        all_nodes: it builds its own graph, from the positions of all atoms.
        compiles: ``forward`` may be compiled, and is where ``--compile`` asks for it; not with ``all_nodes`` nor with
            ``direct_forces``.
        direct_forces: ``forward`` returns (energies, forces (n_owned, 3) eV/Å) or, with (3, 3) eV of the owned nodes'
            share of -dE/dstrain, (energies, forces, virial): forces that are no energy's gradient.
        dtypes: that it computes in; the first where what ``--precision`` asks for isn't among them.
    """

    reach: str = "refresh"
    owned_first: bool = False
    all_nodes: bool = False
    direct_forces: bool = False
    compiles: bool = False
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32)

    def __post_init__(self) -> None:
        if self.reach not in ("refresh", "wide"):
            raise InputError(f"a model's needs.reach is {self.reach!r}; it must be 'refresh' or 'wide'.")


class EnergyModel(Protocol):
    """A ``torch.nn.Module`` or anything alike; with ``needs`` where the defaults of ``Needs`` don't fit.

    Attributes:
        cutoff: Å, of the edges.
        n_layers: how many times in a row atoms learn of their neighbours.
    """

    cutoff: float
    n_layers: int

    def forward(self, graph: Graph) -> Tensor:
        """(n_nodes,) or (n_owned,) eV; those of owned nodes count.

        Every rank calls it, those without atoms too: no way around a layer for graphs without nodes or edges, since
        the others would wait for this rank in the layers' exchanges and in their adjoints.
        """
        ...


def is_energy_model(model: Any) -> bool:
    """Whether it has what ``EnergyModel`` asks for."""
    return all(hasattr(model, name) for name in ("forward", "cutoff", "n_layers"))


class GraphModel:
    """The force model.

    Args:
        model: see ``EnergyModel``; its parameters get frozen.
        numbers: atomic numbers of the structure's types.
        name: as the start-up panel shows it.
    """

    runs_torch = True
    wants_compiling = False
    compiler = "inductor"

    def __init__(self, model: Any, numbers: tuple[int, ...], name: str) -> None:
        self.model, self._label = model, name
        self.needs: Needs = getattr(model, "needs", None) or Needs()
        self._numbers = numbers
        self._precision = DOUBLE
        self._compiled: Callable[[Graph], Tensor] | None = None
        self._placed: tuple[torch.device, torch.dtype] | None = None
        self._has_slopes = False
        self._view = GraphView(numbers, self.cutoff)
        if isinstance(model, torch.nn.Module):
            model.eval().requires_grad_(False)

    @property
    def name(self) -> str:
        return f"{self._label} ({str(self.dtype).removeprefix('torch.')})"

    @property
    def cutoff(self) -> float:
        return float(self.model.cutoff)

    @property
    def ghost_reach(self) -> float:
        """Å; see ``Domain``."""
        return self.cutoff * int(self.model.n_layers) if self.needs.reach == "wide" else 0.0

    @property
    def needs_all_nodes(self) -> bool:
        return self.needs.all_nodes

    @property
    def needs_owned_first(self) -> bool:
        return self.needs.owned_first

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user is told before the run."""
        if not self.needs.direct_forces:
            return ()
        return (
            f"model {self.name} gives forces that are no gradient of its energy: no ensemble conserves anything, and "
            "the change of energy at the end is the model's, not the time step's",
        )

    @property
    def precision(self) -> Precision:
        return self._precision

    @precision.setter
    def precision(self, precision: Precision) -> None:
        self._precision = precision

    @property
    def dtype(self) -> torch.dtype:
        """What the model computes in; positions, and sums over nodes, are in float64 always."""
        wanted = torch.float64 if self._precision is DOUBLE else torch.float32
        return wanted if wanted in self.needs.dtypes else self.needs.dtypes[0]

    def distributed_setup(self, context: DistributedContext) -> None:
        hook = getattr(self.model, "distributed_setup", None)
        if hook is not None:
            hook(context)

    def distributed_teardown(self) -> None:
        hook = getattr(self.model, "distributed_teardown", None)
        if hook is not None:
            hook()

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        self._place(domain.backend.device)
        if not self._view.knows(domain):
            self._view.adopt(domain, self._choose_nodes(domain))
        nodes = self._view.nodes
        evaluation = self._view.evaluation(domain, self.dtype, totals)
        n_before = EXCHANGES.n_asked
        with _showing(nodes), torch.set_grad_enabled(not self.needs.direct_forces):
            forward: Callable[[Graph], Any] = self._compiled_forward if self.is_compiled_here else self.model.forward
            answer = forward(evaluation.graph)
            self._refuse_stale_neighbors(domain, EXCHANGES.n_asked - n_before)
            if self.needs.direct_forces:
                return self._as_told(answer, evaluation.graph, totals)
            energy = self._energy(answer, evaluation.graph, domain.n_owned)
            self._refuse_lost_slopes(domain, energy, evaluation.graph)
            forces = self._differentiate(energy, evaluation, totals)
            return replace(forces, forces=forces.forces[: domain.n_owned])

    def _refuse_stale_neighbors(self, domain: Domain, n_exchanges: int) -> None:
        """Every rank asks as often, so all end here.

        Raises:
            InputError: a layer read neighbours of other ranks without asking for them.
        """
        n_layers = int(self.model.n_layers)
        knows_all = domain.comm.size == 1 or self.needs.all_nodes or self.needs.reach == "wide"
        if not knows_all and n_exchanges < n_layers - 1:
            raise InputError(
                f"model {self.name} has {n_layers} layers and asked {n_exchanges} times for neighbours that other "
                "ranks own: call refresh_neighbors before each layer that reads neighbours, but the first, or "
                "declare needs = Needs(reach='wide')."
            )

    def _refuse_lost_slopes(self, domain: Domain, energy: Tensor, graph: Graph) -> None:
        """Once for a model, as soon as there is a slope; a collective until then.

        Raises:
            InputError: atoms with neighbours have energies, and no rank's has a slope: all forces would be zero.
        """
        if self._has_slopes:
            return
        found = [energy.requires_grad, graph.senders.numel(), bool(energy.detach())]
        n_slopes, n_edges, n_energies = domain.comm.all_sum(torch.tensor(found, dtype=torch.float64)).tolist()
        if n_edges and n_energies and not n_slopes:
            raise InputError(
                f"model {self.name} returns energies that autograd can't follow back to positions, so that it would "
                "give no forces: look for detach(), torch.no_grad(), .item() or numpy in its forward, or declare "
                "needs = Needs(direct_forces=True) and return the forces."
            )
        self._has_slopes = n_slopes > 0

    @property
    def is_compiled_here(self) -> bool:
        """Whether graphs are padded to fixed shapes and go through compiled code."""
        return self.wants_compiling and self.why_not_compiled is None

    @property
    def why_not_compiled(self) -> str | None:
        """In words; None where ``--compile`` does it."""
        if not self.needs.compiles:
            return "it does not declare that it compiles"
        if self.needs.direct_forces:
            return "its forces are no gradient of its energy"
        return "it builds a graph of its own, which nobody can fill up" if self.needs.all_nodes else None

    def _compiled_forward(self, graph: Graph) -> Tensor:
        """Energies of the owned nodes, of a graph whose shapes seldom change."""
        context = current_dd_context()
        padder = context.graph_padder = context.graph_padder or GraphPadder(self._numbers[0])
        padded = context.maybe_pad_graph(graph)
        if context.halo_meta is not None:
            context.halo_meta = padder.pad_meta(context.halo_meta, padded)
        if self._compiled is None:
            self._compiled = compiled_for_each_shape(self.model.forward, self.compiler)
        energies = self._compiled(padded)
        if context.halo_meta is not None:
            context.halo_meta = self._view.nodes.halo_meta
        return padder.unpad(energies, graph.n_owned) if context.cap_atoms else energies

    def _choose_nodes(self, domain: Domain) -> Nodes:
        is_wide = self.needs.reach == "wide" and domain.comm.size > 1  # one rank owns what its layers reach
        return current_dd_context().strategy.nodes(domain, is_wide, self.is_compiled_here)

    def _place(self, device: torch.device) -> None:
        if self._placed != (device, self.dtype):
            self._placed = (device, self.dtype)
            if hasattr(self.model, "to"):
                self.model.to(device=device, dtype=self.dtype)

    def _as_told(self, told: tuple[Tensor, ...], graph: Graph, totals: bool) -> Forces:
        energies, forces, *virials = told
        energy = float(self._energy(energies, graph, graph.n_owned)) if totals else None
        return Forces(forces.double(), energy, virials[0].double().cpu() if totals and virials else None)

    def _energy(self, energies: Tensor, graph: Graph, n_atoms: int) -> Tensor:
        """() float64 eV, of the owned nodes; the first ``n_atoms`` of them are atoms."""
        if energies.ndim == 2 and energies.shape[1] == 1:
            energies = energies[:, 0]
        if energies.shape == (graph.n_nodes,):
            energies = energies[graph.owned]
        if energies.shape != (graph.n_owned,):
            raise ValueError(
                f"model {self.name} returned energies of shape {tuple(energies.shape)}; one for each of "
                f"{graph.n_nodes} nodes, or of the {graph.n_owned} owned ones, was expected"
            )
        return energies[:n_atoms].sum(dtype=torch.float64)

    def _differentiate(self, energy: Tensor, evaluation: Evaluation, totals: bool) -> Forces:
        strain = evaluation.strain
        at = [evaluation.leaf] if strain is None else [evaluation.leaf, strain]
        if energy.requires_grad:
            with _differentiating_shares():
                slopes = torch.autograd.grad(energy, at, allow_unused=True, materialize_grads=True)
        else:  # of a rank whose atoms have no neighbours, in a model that looks at nothing else
            slopes = tuple(torch.zeros_like(x) for x in at)
        forces = -sum_into_owners(slopes[0], FORCES)
        if strain is None:
            return Forces(forces)
        virial = -(slopes[1] + slopes[1].T) / 2
        return Forces(forces, float(energy.detach()), virial.cpu())


@contextmanager
def _showing(nodes: Nodes) -> Iterator[None]:
    """The active context with the graph's nodes in place of the domain's rows, so that verbs mean those."""
    context = current_dd_context()
    before = replace(context)
    context.halo_meta, context.gather_meta = nodes.halo_meta, nodes.gather_meta
    context.owned_offset, context.policy = nodes.owned_offset, nodes.policy or before.policy
    try:
        yield
    finally:
        context.halo_meta, context.gather_meta = before.halo_meta, before.gather_meta
        context.owned_offset, context.policy = before.owned_offset, before.policy


@contextmanager
def _differentiating_shares() -> Iterator[None]:
    """What a model differentiates by itself, in its forward, is a whole."""
    policy = current_dd_context().policy
    policy.differentiates_shares = True
    try:
        yield
    finally:
        policy.differentiates_shares = False
