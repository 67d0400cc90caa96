"""What is computed in which precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Precision:
    """Of a force model on a CPU; positions, momenta and what the ranks add up stay in float64 always.

    Attributes:
        terms: what each pair or triplet is computed in. In float32, from coordinates relative to the middle of the
            rank's atoms.
        sums: what an atom's force and energy are summed in. Where pairs are computed in whole vectors, the few terms
            that meet in one lane are added as terms first.
    """

    name: str
    terms: type
    sums: type


PRECISIONS = {
    p.name: p
    for p in (
        Precision("double", np.float64, np.float64),
        Precision("mixed", np.float32, np.float64),
        Precision("single", np.float32, np.float32),
    )
}
DOUBLE = PRECISIONS["double"]
