"""The four verbs inside of a force model, with their gradients; what each rank saw goes home row by row."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.potentials.base import Forces
from mdrun.scope import Scope
from mdrun.verbs import refresh_neighbors, scatter_to_owners, system_sum, to_local
from tests.ranks.cases import PROBED
from tests.ranks.jobs.gathering import gathered, on_each_rank
from tests.systems import state_of

N_STRUCTURES = 3


def feature(ids: Tensor) -> Tensor:
    """(n, 2) something that tells atoms apart."""
    phase = ids.double()
    return torch.stack([torch.sin(phase + 0.5), torch.cos(2.0 * phase)], dim=1)


class Probe:
    """A force model that does nothing but try the verbs.

    Attributes:
        rows: by name, arrays with a row for each padded row of this rank.
        owned: likewise, for each owned row.
        totals: by name, arrays that every rank should hold alike.
    """

    name = "probe"
    cutoff = 8.5

    def __init__(self) -> None:
        self.rows: dict[str, Tensor] = {}
        self.owned: dict[str, Tensor] = {}
        self.totals: dict[str, Tensor] = {}
        self.refusals = 0

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        self.noise = torch.Generator().manual_seed(1000 + domain.comm.rank)
        is_owned = torch.arange(domain.n_padded) < domain.n_owned
        self.rows |= {"ids": domain.ids, "is_owned": is_owned}
        self._refresh(domain)
        self._scatter(domain)
        self._sum(domain)
        self._wrong_rows(domain)
        return Forces(torch.zeros((domain.n_owned, 3), dtype=torch.float64), 0.0, torch.zeros((3, 3)))

    def _random(self, n: int) -> Tensor:
        return torch.rand((n, 2), generator=self.noise, dtype=torch.float64) - 0.5

    def _refresh(self, domain: Domain) -> None:
        n, own_ids = domain.n_owned, domain.ids[: domain.n_owned]
        x = feature(own_ids)
        stale = torch.cat([x, torch.full((domain.n_padded - n, 2), torch.nan, dtype=torch.float64)])
        self.rows["refreshed"] = refresh_neighbors(x)
        self.rows["refreshed_stale"] = refresh_neighbors(stale)
        self.rows["refreshed_local"] = to_local(refresh_neighbors(x))
        self.rows["refreshed_single"] = refresh_neighbors(x.float())
        self.rows["refreshed_ids"] = refresh_neighbors(own_ids)
        self.rows["refreshed_tensors"] = refresh_neighbors(x[:, :, None] * x[:, None, :]).flatten(1)

        y, v = self._random(domain.n_padded), self._random(n)
        x.requires_grad_()
        (first,) = torch.autograd.grad((refresh_neighbors(x) * y).sum(), x)
        # E = Σ y (Rx)³: first and second derivative through the verb and through its adjoint
        (slope,) = torch.autograd.grad((y * refresh_neighbors(x) ** 3).sum(), x, create_graph=True)
        (curvature,) = torch.autograd.grad((slope * v).sum(), x)
        self.rows["weights"] = y
        self.owned |= {"directions": v, "refresh_adjoint": first, "slope": slope, "curvature": curvature}

    def _scatter(self, domain: Domain) -> None:
        partial, z, w = (self._random(domain.n_padded) for _ in range(3))
        partial.requires_grad_()
        out = scatter_to_owners(partial)
        (adjoint,) = torch.autograd.grad((out * z).sum(), partial)
        (slope,) = torch.autograd.grad((z * scatter_to_owners(partial) ** 2).sum(), partial, create_graph=True)
        (curvature,) = torch.autograd.grad((slope * w).sum(), partial)
        self.rows |= {"partial": partial, "scattered": out, "scatter_weights": z, "scatter_adjoint": adjoint}
        self.rows |= {"scatter_directions": w, "scatter_slope": slope, "scatter_curvature": curvature}

    def _sum(self, domain: Domain) -> None:
        values, w = self._random(domain.n_padded).requires_grad_(), self._random(domain.n_padded)
        index = domain.ids % N_STRUCTURES
        sums = system_sum(values, index, N_STRUCTURES)
        (slope,) = torch.autograd.grad((sums**2).sum(), values, create_graph=True)
        (curvature,) = torch.autograd.grad((slope * w).sum(), values)
        owned_only = system_sum(values[: domain.n_owned], index[: domain.n_owned], N_STRUCTURES)
        self.rows |= {"values": values, "sum_slope": slope, "sum_directions": w, "sum_curvature": curvature}
        self.totals |= {"sums": sums, "sums_of_owned": owned_only}

    def _wrong_rows(self, domain: Domain) -> None:
        """Refused before anything is sent, so no other rank is left waiting."""
        too_many = torch.zeros((domain.n_padded + 1, 2))
        index = torch.zeros(domain.n_padded + 1, dtype=torch.int64)
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


def compute(comm: Comm) -> dict[str, np.ndarray]:
    found = {}
    for name, build in PROBED.items():
        atoms = build()
        state, probe = state_of(atoms, comm), Probe()
        domain = Domain(comm, probe.cutoff, skin=0.5)
        with Scope(probe, domain, len(atoms)) as scope:
            domain.follow(state)
            scope(domain, totals=True)
        found |= {f"{name}/rows/{key}": gathered(comm, value) for key, value in probe.rows.items()}
        found |= {f"{name}/owned/{key}": gathered(comm, value) for key, value in probe.owned.items()}
        found |= {f"{name}/totals/{key}": gathered(comm, value[None]) for key, value in probe.totals.items()}
        found[f"{name}/n_owned"] = on_each_rank(comm, domain.n_owned, probe.refusals)
    return found
