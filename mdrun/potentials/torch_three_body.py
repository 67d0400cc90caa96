"""Stillinger-Weber and Tersoff by torch: a centre's energy as it stands in ``stillinger_weber`` and ``tersoff``, from
the tables made there."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from mdrun.potentials import stillinger_weber as sw
from mdrun.potentials import tersoff_kernels as tk
from mdrun.potentials.stillinger_weber import StillingerWeber
from mdrun.potentials.tersoff import Tersoff
from mdrun.potentials.torch_centres import TorchCentres, parameters


def torch_stillinger_weber(model: StillingerWeber) -> TorchCentres:
    """The same model by torch."""
    n = len(model.angle)
    tables = (model.pair, model.angle.reshape(n * n, n, -1))
    return TorchCentres(model.name, model.short_list.reach2, stillinger_weber, tables)


def torch_tersoff(model: Tersoff) -> TorchCentres:
    """The same model by torch."""
    n = len(model.bond)
    # the logarithm of β in its place, so that no power of a small number is taken
    bond = model.bond.copy()
    with np.errstate(divide="ignore"):
        bond[..., tk.BETA] = np.log(bond[..., tk.BETA])
    return TorchCentres(model.name, model.short_list.reach2, tersoff, (bond, model.angle.reshape(n * n, n, -1)))


def _cosines(u: Tensor) -> Tensor:
    """(n, width, width) of the angles between neighbours."""
    return (u[:, :, None] * u[:, None]).sum(dim=3)


def _others(is_near: Tensor) -> Tensor:
    """(n, width, width) whether [:, j, k] are two neighbours."""
    width = is_near.shape[1]
    is_same = torch.eye(width, dtype=torch.bool, device=is_near.device)
    return is_near[:, :, None] & is_near[:, None] & ~is_same


def stillinger_weber(
    u: Tensor, r: Tensor, is_near: Tensor, mine: Tensor, theirs: Tensor, pair: Tensor, angle: Tensor, sums: torch.dtype
) -> Tensor:
    """(n,) energies of centres, half of each pair's among them: see ``torch_centres.Energy``."""
    p = parameters(pair, mine, theirs)
    depth = 1.0 / (r - p[sw.SINGULAR]).clamp(max=-sw.CLOSEST)
    log = torch.log(p[sw.SIGMA] / r)
    shape = p[sw.HARDNESS] * torch.exp(p[sw.P] * log) - p[sw.STRENGTH] * torch.exp(p[sw.Q] * log)
    pairs = torch.where(is_near, shape * torch.exp(p[sw.SIGMA] * depth), 0.0)
    g = torch.exp(p[sw.GAMMA_SIGMA] * depth)
    a = parameters(angle, (mine * len(pair) + theirs)[:, :, None], theirs[:, None])
    bends = a[0] * g[:, :, None] * g[:, None] * (_cosines(u) - a[1]).square()
    angles = torch.where(_others(is_near), bends, 0.0)
    return 0.5 * (pairs.sum(dim=1, dtype=sums) + angles.sum(dim=(1, 2), dtype=sums))


def tersoff(
    u: Tensor, r: Tensor, is_near: Tensor, mine: Tensor, theirs: Tensor, bond: Tensor, angle: Tensor, sums: torch.dtype
) -> Tensor:
    """(n,) energies of centres: see ``torch_centres.Energy``; ``bond`` holds the logarithm of β."""
    a = parameters(angle, (mine * len(bond) + theirs)[:, :, None], theirs[:, None])
    square = (a[tk.COS_0] - _cosines(u)).square()
    g = a[tk.GAMMA] * (1.0 + a[tk.C2_D2] * square / (a[tk.D2] + square))
    difference = r[:, :, None] - r[:, None]
    cube = difference * torch.where(a[tk.M] == 3.0, difference.square(), 1.0)
    most = tk.MOST_STRETCH[np.float32 if r.dtype == torch.float32 else np.float64]
    stretch = torch.exp((a[tk.STRETCH] * cube).clamp(-most, most))
    third = _cutoff_function(r[:, None], a[tk.INNER], a[tk.OUTER])
    zeta = torch.where(_others(is_near), third * g * stretch, 0.0).sum(dim=2)

    p = parameters(bond, mine, theirs)
    is_alone = zeta == 0.0  # without a third atom there is nothing to feel
    power = p[tk.N] * (p[tk.BETA] + torch.log(torch.where(is_alone, 1.0, zeta)))  # log of (βζ)^n
    order = torch.exp(torch.nn.functional.softplus(power, threshold=40.0) / (-2.0 * p[tk.N]))
    x = tk.REFERENCE - r
    attraction = torch.where(is_alone, 1.0, order) * p[tk.B] * torch.exp(p[tk.LAMBDA_2] * x)
    bonds = _cutoff_function(r, p[tk.BOND_INNER], p[tk.BOND_OUTER]) * (
        p[tk.A] * torch.exp(p[tk.LAMBDA_1] * x) - attraction
    )
    return 0.5 * torch.where(is_near, bonds, 0.0).sum(dim=1, dtype=sums)


def _cutoff_function(r: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
    """f_C, 1 up to ``inner`` and 0 from ``outer`` on."""
    taper = 0.5 - 0.5 * torch.sin(math.pi / (outer - inner) * (r - 0.5 * (inner + outer)))
    return torch.where(r <= inner, 1.0, torch.where(r >= outer, 0.0, taper))
