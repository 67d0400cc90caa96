"""The four verbs inside of a force model, with their gradients; what each rank saw goes home row by row.

By the halo's rows, as a force model sees them, and by the nodes of each strategy, as an energy model does.
"""

from __future__ import annotations

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from mdrun import current_dd_context
from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.graph import Graph
from mdrun.potentials.base import Forces
from mdrun.potentials.graph_model import GraphModel
from mdrun.scope import Scope
from mdrun.strategies.choice import choose_strategy
from mdrun.verbs import refresh_neighbors, scatter_to_owners, system_sum, to_local
from tests.ranks.cases import PROBED
from tests.ranks.jobs.gathering import gathered, on_each_rank
from tests.systems import species_of, state_of

N_STRUCTURES = 3


def feature(ids: Tensor) -> Tensor:
    """(n, 2) something that tells atoms apart."""
    phase = ids.double()
    return torch.stack([torch.sin(phase + 0.5), torch.cos(2.0 * phase)], dim=1)


class Probe:
    """A model that does nothing but try the verbs.

    Attributes:
        rows: by name, arrays with a row for each padded row of this rank.
        owned: likewise, for each owned row.
        totals: by name, arrays that every rank should hold alike.
    """

    name = "probe"
    cutoff, n_layers = 8.5, 1

    def __init__(self) -> None:
        self.rows: dict[str, Tensor] = {}
        self.owned: dict[str, Tensor] = {}
        self.totals: dict[str, Tensor] = {}
        self.refusals = self.n_owned = 0

    def try_all(self, ids: Tensor, owned: slice, rank: int) -> None:
        """With ``ids`` (n_padded,) of all rows, and where those are that this rank owns."""
        self.noise = torch.Generator().manual_seed(1000 + rank)
        self.ids, self.owned_rows, self.n_padded = ids, owned, len(ids)
        self.n_owned = owned.stop - owned.start
        is_owned = torch.zeros(len(ids), dtype=torch.bool)
        is_owned[owned] = True
        self.rows |= {"ids": ids, "is_owned": is_owned}
        self._refresh()
        self._scatter()
        self._sum()
        self._wrong_rows()

    def _random(self, n: int) -> Tensor:
        return torch.rand((n, 2), generator=self.noise, dtype=torch.float64) - 0.5

    def _refresh(self) -> None:
        n, own_ids = self.n_owned, self.ids[self.owned_rows]
        x = feature(own_ids)
        stale = torch.full((self.n_padded, 2), torch.nan, dtype=torch.float64)
        stale[self.owned_rows] = x
        self.rows["refreshed"] = refresh_neighbors(x)
        self.rows["refreshed_stale"] = refresh_neighbors(stale)
        self.rows["refreshed_local"] = to_local(refresh_neighbors(x))
        self.rows["refreshed_single"] = refresh_neighbors(x.float())
        self.rows["refreshed_ids"] = refresh_neighbors(own_ids)
        self.rows["refreshed_tensors"] = refresh_neighbors(x[:, :, None] * x[:, None, :]).flatten(1)

        y, v = self._random(self.n_padded), self._random(n)
        x.requires_grad_()
        (first,) = torch.autograd.grad((refresh_neighbors(x) * y).sum(), x)
        # E = Σ y (Rx)³: first and second derivative through the verb and through its adjoint
        (slope,) = torch.autograd.grad((y * refresh_neighbors(x) ** 3).sum(), x, create_graph=True)
        (curvature,) = torch.autograd.grad((slope * v).sum(), x)
        self.rows["weights"] = y
        self.owned |= {"directions": v, "refresh_adjoint": first, "slope": slope, "curvature": curvature}

    def _scatter(self) -> None:
        partial, z, w = (self._random(self.n_padded) for _ in range(3))
        partial.requires_grad_()
        out = scatter_to_owners(partial)
        (adjoint,) = torch.autograd.grad((out * z).sum(), partial)
        (slope,) = torch.autograd.grad((z * scatter_to_owners(partial) ** 2).sum(), partial, create_graph=True)
        (curvature,) = torch.autograd.grad((slope * w).sum(), partial)
        self.rows |= {"partial": partial, "scattered": out, "scatter_weights": z, "scatter_adjoint": adjoint}
        self.rows |= {"scatter_directions": w, "scatter_slope": slope, "scatter_curvature": curvature}

    def _sum(self) -> None:
        values, w = self._random(self.n_padded).requires_grad_(), self._random(self.n_padded)
        index = self.ids % N_STRUCTURES
        sums = system_sum(values, index, N_STRUCTURES)
        (slope,) = torch.autograd.grad((sums**2).sum(), values, create_graph=True)
        (curvature,) = torch.autograd.grad((slope * w).sum(), values)
        owned_only = system_sum(values[self.owned_rows], index[self.owned_rows], N_STRUCTURES)
        self.rows |= {"values": values, "sum_slope": slope, "sum_directions": w, "sum_curvature": curvature}
        self.totals |= {"sums": sums, "sums_of_owned": owned_only}

    def _wrong_rows(self) -> None:
        """Refused before anything is sent, so no other rank is left waiting."""
        too_many = torch.zeros((self.n_padded + 1, 2))
        index = torch.zeros(self.n_padded + 1, dtype=torch.int64)
        for call in (
            lambda: refresh_neighbors(too_many),
            lambda: scatter_to_owners(too_many),
            lambda: system_sum(too_many, index, 1),
            lambda: system_sum(too_many[:-1], index, 1),
        ):
            try:
                call()
            except ValueError:
                self.refusals += 1


class RowProbe(Probe):
    """As a force model: rows of the domain."""

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        self.try_all(domain.ids, slice(0, domain.n_owned), domain.comm.rank)
        return Forces(torch.zeros((domain.n_owned, 3), dtype=torch.float64), 0.0, torch.zeros((3, 3)))


class NodeProbe(Probe):
    """As an energy model: nodes of a graph."""

    def forward(self, graph: Graph) -> Tensor:
        self.try_all(graph.ids, graph.owned, current_dd_context().rank)
        return graph.vectors.new_zeros(graph.n_owned)


STRATEGIES = ("halo", "partition", "replicate")
KINDS = ("rows", *STRATEGIES)


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    for name, build in PROBED.items():
        for kind in KINDS:
            found |= {f"{name}/{kind}/{key}": value for key, value in _probed(build(), kind, comm).items()}
    return found


def _probed(atoms: Atoms, kind: str, comm: Comm) -> dict[str, np.ndarray]:
    probe: Probe = RowProbe() if kind == "rows" else NodeProbe()
    model = probe if kind == "rows" else GraphModel(probe, species_of(atoms), "probe")
    state, domain = state_of(atoms, comm), Domain(comm, probe.cutoff, skin=0.5)
    with Scope(model, domain, len(atoms), choose_strategy("halo" if kind == "rows" else kind, model)) as scope:
        domain.follow(state)
        scope(domain, totals=True)
    return {
        **{f"rows/{key}": gathered(comm, value) for key, value in probe.rows.items()},
        **{f"owned/{key}": gathered(comm, value) for key, value in probe.owned.items()},
        **{f"totals/{key}": gathered(comm, value[None]) for key, value in probe.totals.items()},
        "n_owned": on_each_rank(comm, probe.n_owned, probe.refusals),
    }
