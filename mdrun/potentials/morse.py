"""Morse: U(r) = D (exp(-2 a (r - r0)) - 2 exp(-a (r - r0))).

P. M. Morse, Phys. Rev. 34 (1929) 57, eq. 4, doi 10.1103/PhysRev.34.57, with its zero at infinite distance.
"""

from __future__ import annotations

from mdrun.potentials.arithmetic import exp, sqrt
from mdrun.potentials.kernels import pair_formula
from mdrun.potentials.pair_tables import NOT_NEGATIVE, PairFamily, Parameter


@pair_formula
def morse(r2, p):
    """p = cutoff², D, a, r0, energy at the cutoff to take off."""
    r = sqrt(r2)
    decay = exp(p[2] * (p[3] - r))
    attraction = p[1] * decay
    repulsion = attraction * decay
    return repulsion - 2.0 * attraction - p[4], 2.0 * p[2] * (repulsion - attraction) / r


MORSE = PairFamily(
    word="morse",
    title="Morse",
    formula=morse,
    parameters=(Parameter("D", "eV", NOT_NEGATIVE), Parameter("a", "1/Å"), Parameter("r0", "Å")),
)
