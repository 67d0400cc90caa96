"""The embedded-atom method by torch, from the tables of ``eam``: two passes, the slopes refreshed between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from mdrun.compiler import compiled
from mdrun.domain import Domain
from mdrun.potentials.base import Forces
from mdrun.potentials.eam import EAM
from mdrun.potentials.torch_pairs import DTYPES, as_forces, forces_and_sums, no_forces, offsets
from mdrun.verbs import refresh_neighbors


class TorchEAM:
    """See ``mdrun.potentials.eam``; the embedding's tables are in float64 always."""

    is_compiled = True

    def __init__(self, eam: EAM) -> None:
        self.name, self.cutoff = eam.name, eam.cutoff
        self.precision = eam.precision
        self._eam = eam
        self._tables: tuple[Tensor, ...] = ()

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        eam, device, sums = self._eam, domain.backend.device, DTYPES[self.precision.sums]
        packed = domain.packed_in(self.precision.terms)
        if not self._tables:
            by_distance = (eam.density, eam.r_phi, np.array([1 / eam.d_r, eam.cutoff**2]))
            by_density = (eam.embedding, np.array(1 / eam.d_rho))
            self._tables = (
                *(torch.from_numpy(t).to(packed) for t in by_distance),
                *(torch.from_numpy(t).to(device) for t in by_density),
            )
        density, r_phi, scales, embedding, per_rho = self._tables
        slope, embedded = packed.new_empty(0, dtype=torch.float64), None
        if domain.n_owned:
            slope, embedded = _embed(sums, device)(packed, domain.neighbors, density, scales, embedding, per_rho)
        slopes = refresh_neighbors(slope, "slopes").to(packed.dtype)  # a collective: ranks without atoms take part
        if embedded is None:
            return no_forces(packed, totals)
        result = as_forces(*_push(sums, totals, device)(packed, domain.neighbors, density, r_phi, slopes, scales))
        if result.energy is not None:
            result.energy += float(embedded)
        return result


def _interval(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """As in ``eam``: below the grid the first cubic goes on, above it the last value holds; a NaN stays one."""
    m = torch.nan_to_num(x, nan=0.0).clamp(0, n - 2).long()
    return m, (x - m).clamp(max=1.0)


def _value(cubics: Tensor, m: Tensor, p: Tensor) -> Tensor:
    return ((cubics[m, 0] * p + cubics[m, 1]) * p + cubics[m, 2]) * p + cubics[m, 3]


def _slope(cubics: Tensor, m: Tensor, p: Tensor) -> Tensor:
    return (3.0 * cubics[m, 0] * p + 2.0 * cubics[m, 1]) * p + cubics[m, 2]


def _pairs_of_types(packed: Tensor, near: Tensor, n_types: int) -> tuple[Tensor, Tensor]:
    """(n, width) each: the number of the pair (i, j) in a table of pairs, and that of (j, i)."""
    mine, theirs = packed[: len(near), 3, None].long(), packed[near, 3].long()
    return mine * n_types + theirs, theirs * n_types + mine


@cache
def _embed(sums: torch.dtype, device: torch.device) -> Callable:
    def embed(
        packed: Tensor, neighbors: Tensor, density: Tensor, scales: Tensor, embedding: Tensor, per_rho: Tensor
    ) -> tuple[Tensor, Tensor]:
        """F'(ρ) of the owned atoms, and the sum of their F."""
        near = neighbors.long()
        n_r, n_rho = density.shape[2], embedding.shape[1]
        r2 = offsets(packed, near)[3]
        m, p = _interval(torch.sqrt(r2) * scales[0], n_r)
        here, _ = _pairs_of_types(packed, near, density.shape[0])
        contributions = _value(density.view(-1, 4), here * n_r + m, p)
        # not where r2 is NaN, which must reach the forces
        rho = torch.where(r2 >= scales[1], 0.0, contributions).sum(dim=1, dtype=sums).double()
        m, p = _interval(rho * per_rho, n_rho)
        m = packed[: len(near), 3].long() * n_rho + m
        cubics = embedding.view(-1, 4)
        slope = torch.where(torch.isfinite(rho), _slope(cubics, m, p) * per_rho, torch.nan)
        beyond = (rho - (n_rho - 1) / per_rho).clamp(min=0.0)  # a straight line beyond the table
        return slope, (_value(cubics, m, p) + slope * beyond).sum()

    return compiled(embed, device)


@cache
def _push(sums: torch.dtype, totals: bool, device: torch.device) -> Callable:
    def push(
        packed: Tensor, neighbors: Tensor, density: Tensor, r_phi: Tensor, slopes: Tensor, scales: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        near = neighbors.long()
        n_r = density.shape[2]
        dx, dy, dz, r2 = offsets(packed, near)
        r = torch.sqrt(r2)
        m, p = _interval(r * scales[0], n_r)
        here, there = _pairs_of_types(packed, near, density.shape[0])
        phi = _value(r_phi.view(-1, 4), here * n_r + m, p) / r
        d_r_phi = _slope(r_phi.view(-1, 4), here * n_r + m, p) * scales[0]
        d_here = _slope(density.view(-1, 4), here * n_r + m, p) * scales[0]
        d_there = _slope(density.view(-1, 4), there * n_r + m, p) * scales[0]
        theirs = slopes[near.clamp(max=len(slopes) - 1)]
        # force over r on j: -dE/dr / r
        f = -(slopes[: len(near), None] * d_here + theirs * d_there + (d_r_phi - phi) / r) / r
        is_far = r2 >= scales[1]
        return forces_and_sums(torch.where(is_far, 0.0, f), torch.where(is_far, 0.0, phi), dx, dy, dz, sums, totals)

    return compiled(push, device)
