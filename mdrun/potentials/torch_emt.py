"""Effective medium theory by torch, from the tables of ``emt``: two passes, the slopes refreshed between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from mdrun.compiler import compiled
from mdrun.domain import Domain
from mdrun.potentials.arithmetic import LN2
from mdrun.potentials.base import Forces
from mdrun.potentials.emt import (
    BETA_ETA2,
    E0,
    EMT,
    END,
    G_DECAY,
    H_DECAY,
    INVERSE_12_GAMMA1,
    KAPPA,
    LAMBDA,
    MIDPOINT,
    N0,
    REFERENCE,
    SIX_V0,
    SLOPE,
    G,
    H,
    Q,
)
from mdrun.potentials.precision import DOUBLE
from mdrun.potentials.torch_pairs import DTYPES, as_forces, forces_and_sums, no_forces, offsets
from mdrun.verbs import refresh_neighbors


class TorchEMT:
    """See ``mdrun.potentials.emt``; the embedding energy is in float64 always."""

    is_compiled = True

    def __init__(self, emt: EMT) -> None:
        self.name, self.cutoff = emt.name, emt.cutoff
        self.precision = DOUBLE
        self._emt = emt
        self._tables: tuple[Tensor, ...] = ()

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        emt, device, sums = self._emt, domain.backend.device, DTYPES[self.precision.sums]
        packed = domain.packed_in(self.precision.terms)
        if not self._tables:
            by_distance = (torch.from_numpy(t).to(packed) for t in (emt.logistic, emt.pairs))
            self._tables = (*by_distance, torch.from_numpy(emt.atoms).to(device))
        logistic, pairs, atoms = self._tables
        slope, embedded = packed.new_empty(0, dtype=torch.float64), None
        if domain.n_owned:
            slope, embedded = _embed(sums, device)(packed, domain.neighbors, logistic, pairs, atoms)
        slopes = refresh_neighbors(slope, "slopes").to(packed.dtype)  # a collective: ranks without atoms take part
        if embedded is None:
            return no_forces(packed, totals)
        result = as_forces(*_push(sums, totals, device)(packed, domain.neighbors, logistic, pairs, slopes))
        if result.energy is not None:
            result.energy += float(embedded)
        return result


def _types(packed: Tensor, near: Tensor, n_types: int) -> tuple[Tensor | int, Tensor | int]:
    """(n, 1) of the first n rows and (n, width) of the rows ``near`` them, to index tables of species with."""
    return (packed[: len(near), 3, None].long(), packed[near, 3].long()) if n_types > 1 else (0, 0)


def _within(packed: Tensor, near: Tensor, logistic: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor, Tensor]:
    """dx, dy, dz; whether a pair is beyond the cutoff; r, which is the cutoff there; 1 / w."""
    *d, r2 = offsets(packed, near)
    is_far = r2 >= logistic[END] * logistic[END]
    r = torch.where(is_far, logistic[END], torch.sqrt(r2))  # keeps the exponents within range
    return tuple(d), is_far, r, 1.0 + torch.exp2(logistic[SLOPE] * (r - logistic[MIDPOINT]))


@cache
def _embed(sums: torch.dtype, device: torch.device) -> Callable:
    def embed(
        packed: Tensor, neighbors: Tensor, logistic: Tensor, pairs: Tensor, atoms: Tensor
    ) -> tuple[Tensor, Tensor]:
        """dE_c/dσ1 / n0 of the owned atoms, and the sum of their E_c - E0."""
        near = neighbors.long()
        a, b = _types(packed, near, len(pairs))
        _, is_far, r, inverse_w = _within(packed, near, logistic)
        g = pairs[b, G] * torch.exp2(pairs[b, G_DECAY] * (REFERENCE - r)) / inverse_w
        density = torch.where(is_far, 0.0, g).sum(dim=1, dtype=sums).double()
        p = atoms[a if isinstance(a, int) else a[:, 0]].movedim(-1, 0)
        s = -torch.log(density / p[N0] * p[INVERSE_12_GAMMA1]) / p[BETA_ETA2]
        cohesion = p[E0] * torch.exp(-p[LAMBDA] * s)
        repulsion = p[SIX_V0] * torch.exp(-p[KAPPA] * s)
        slope_in_s = -p[LAMBDA] * p[LAMBDA] * s * cohesion - p[KAPPA] * repulsion
        is_alone = density == 0.0  # E_c vanishes, and so does its slope
        energy = torch.where(is_alone, 0.0, cohesion * (1.0 + p[LAMBDA] * s) + repulsion) - p[E0]
        return torch.where(is_alone, 0.0, -slope_in_s / (p[BETA_ETA2] * density)), energy.sum()

    return compiled(embed, device)


@cache
def _push(sums: torch.dtype, totals: bool, device: torch.device) -> Callable:
    def push(
        packed: Tensor, neighbors: Tensor, logistic: Tensor, pairs: Tensor, slopes: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        near = neighbors.long()
        a, b = _types(packed, near, len(pairs))
        (dx, dy, dz), is_far, r, inverse_w = _within(packed, near, logistic)
        w = 1.0 / inverse_w
        w_decay = logistic[SLOPE] * (1.0 - w)
        theirs = slopes[near.clamp(max=len(slopes) - 1)]
        x = REFERENCE - r
        here = slopes[: len(near), None] * pairs[b, G] * torch.exp2(pairs[b, G_DECAY] * x)
        there = theirs * pairs[a, G] * torch.exp2(pairs[a, G_DECAY] * x)
        own = pairs[a, Q] * pairs[b, H] * torch.exp2(pairs[b, H_DECAY] * x)
        other = pairs[b, Q] * pairs[a, H] * torch.exp2(pairs[a, H_DECAY] * x)
        f = here * (w_decay + pairs[b, G_DECAY]) + there * (w_decay + pairs[a, G_DECAY])
        f = f - own * (w_decay + pairs[b, H_DECAY]) - other * (w_decay + pairs[a, H_DECAY])
        f = LN2 * w / r * f  # -dE/dr / r of both atoms' energies
        u = -w * (own + other)
        return forces_and_sums(torch.where(is_far, 0.0, f), torch.where(is_far, 0.0, u), dx, dy, dz, sums, totals)

    return compiled(push, device)
