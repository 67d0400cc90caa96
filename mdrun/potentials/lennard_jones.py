"""Lennard-Jones 12-6: U(r) = 4 ε ((σ/r)¹² - (σ/r)⁶), cut off at r_c; shifted to zero there on request.

J. E. Lennard-Jones, Proc. R. Soc. A 106 (1924) 463, doi 10.1098/rspa.1924.0082.
"""

from __future__ import annotations

import math

from mdrun.potentials.kernels import pair_formula
from mdrun.potentials.pair_tables import NOT_NEGATIVE, PairFamily, Parameter

# ε (eV) and σ (Å): N. W. Ashcroft and N. D. Mermin, Solid State Physics (1976), table 20.2, after N. Bernardes,
# Phys. Rev. 112 (1958) 1534.
NOBLE_GASES = {"Ne": (0.0031, 2.74), "Ar": (0.0104, 3.40), "Kr": (0.0140, 3.65), "Xe": (0.0200, 3.98)}
CUTOFF_IN_SIGMA = 2.5
MIXING_RULES = {
    "lorentz-berthelot": lambda a, b: (math.sqrt(a[0] * b[0]), (a[1] + b[1]) / 2),
    "geometric": lambda a, b: (math.sqrt(a[0] * b[0]), math.sqrt(a[1] * b[1])),
}


@pair_formula
def lennard_jones(r2, p):
    """p = cutoff², 4 ε, σ², energy at the cutoff to take off."""
    inverse = 1.0 / r2
    s2 = p[2] * inverse
    s6 = s2 * s2 * s2
    repulsion = p[1] * s6 * s6
    attraction = p[1] * s6
    return repulsion - attraction - p[3], (12.0 * repulsion - 6.0 * attraction) * inverse


LENNARD_JONES = PairFamily(
    word="lj",
    title="Lennard-Jones",
    formula=lennard_jones,
    parameters=(Parameter("epsilon", "eV", NOT_NEGATIVE), Parameter("sigma", "Å")),
    row=lambda epsilon, sigma: (4 * epsilon, sigma**2),
    mixing=MIXING_RULES,
    default_mixing="lorentz-berthelot",
    known=NOBLE_GASES,
    default_cutoff=lambda pairs: CUTOFF_IN_SIGMA * max(sigma for _, sigma in pairs),
)
make_lennard_jones = LENNARD_JONES.from_pairs
load = LENNARD_JONES.load
