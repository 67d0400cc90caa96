"""Yukawa, a screened Coulomb repulsion: U(r) = A exp(-κ r) / r.

H. Yukawa, Proc. Phys.-Math. Soc. Japan 17 (1935) 48; the form of LAMMPS's ``pair_style yukawa``.
"""

from __future__ import annotations

from mdrun.potentials.arithmetic import exp, sqrt
from mdrun.potentials.kernels import pair_formula
from mdrun.potentials.pair_tables import ANY, NOT_NEGATIVE, PairFamily, Parameter


@pair_formula
def yukawa(r2, p):
    """p = cutoff², A, κ, energy at the cutoff to take off."""
    r = sqrt(r2)
    inverse = 1.0 / r
    energy = p[1] * exp(-p[2] * r) * inverse
    return energy - p[3], energy * (p[2] + inverse) * inverse


YUKAWA = PairFamily(
    word="yukawa",
    title="Yukawa",
    formula=yukawa,
    parameters=(Parameter("A", "eV·Å", ANY), Parameter("kappa", "1/Å", NOT_NEGATIVE)),
)
