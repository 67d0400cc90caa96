"""The random numbers of ``philox`` on whatever device the atoms are, with the same bits on CPUs and GPUs.

Sums and products of floats are separate operations of torch here, each exactly rounded: compiled together they would be
contracted, and the bits would change. Only torch's square root on a CPU, which is MKL's, is off by a last bit at times.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mdrun import philox

LOW32, LOW30, LOW16 = 2**32 - 1, 2**30 - 1, 2**16 - 1


def normals(seed: int, stream: int, step: int, ids: Tensor) -> Tensor:
    """As ``philox.normals``, (n, 3) on the device of ``ids`` (n,)."""
    return philox.normals(seed, stream, step, ids) if ids.is_cpu else by_torch(seed, stream, step, ids)


def by_torch(seed: int, stream: int, step: int, ids: Tensor) -> Tensor:
    """The same by torch's operations, for arguments within the ranges of ``philox.normals``."""
    same = torch.zeros_like(ids)
    w0, w1, w2, w3 = _rounds(
        ids & LOW32, (ids >> 32 & LOW16) | stream << 16, same + (step & LOW32), same + (step >> 32),
        seed & LOW32, seed >> 32,
    )  # fmt: skip
    radius, (cosine, sine) = _radius(w0), _direction(w1)
    return torch.stack([radius * cosine, radius * sine, _radius(w2) * _direction(w3)[0]], dim=1)


def _rounds(c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor, k0: int, k1: int) -> tuple[Tensor, ...]:
    for _ in range(10):
        # int64 wraps around to the same 64 bits; a shift that brings sign bits in is masked
        product_0, product_1 = int(philox.MULTIPLIER_0) * c0, int(philox.MULTIPLIER_1) * c2
        c0, c1, c2, c3 = (
            (product_1 >> 32 & LOW32) ^ c1 ^ k0,
            product_1 & LOW32,
            (product_0 >> 32 & LOW32) ^ c3 ^ k1,
            product_0 & LOW32,
        )
        k0, k1 = k0 + int(philox.WEYL_0) & LOW32, k1 + int(philox.WEYL_1) & LOW32
    return c0, c1, c2, c3


def _radius(word: Tensor) -> Tensor:
    """As in ``philox``, operation by operation."""
    bits = (word + 1).double().view(torch.int64)
    exponent = (bits - philox.SQRT_HALF_BITS) >> 52
    m = (bits - (exponent << 52)).view(torch.float64)
    t = (m - 1.0) / (m + 1.0)
    log = (exponent.double() - 32.0) * philox.LN2 + 2.0 * t * philox.artanh_series(t)
    return torch.sqrt((-2.0 * log).clamp(min=0.0))


def _direction(word: Tensor) -> tuple[Tensor, Tensor]:
    """As in ``philox``, operation by operation."""
    p = philox
    quarters = word >> 30
    angle = ((word & LOW30).double() - p.HALF_RANGE) * p.QUARTER_TURN
    a2 = angle * angle
    sine, cosine = p.S15 * a2, p.C16 * a2
    for s in (p.S13, p.S11, p.S9, p.S7, p.S5, p.S3):
        sine = a2 * (s + sine)
    for c in (p.C14, p.C12, p.C10, p.C8, p.C6, p.C4, p.C2):
        cosine = a2 * (c + cosine)
    sine, cosine = angle * (1.0 + sine), 1.0 + cosine
    odd, half = (quarters & 1).bool(), (quarters & 2).bool()
    turned_cosine, turned_sine = torch.where(odd, -sine, cosine), torch.where(odd, cosine, sine)
    return torch.where(half, -turned_cosine, turned_cosine), torch.where(half, -turned_sine, turned_sine)
