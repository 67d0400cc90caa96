"""The Tersoff potential, J. Tersoff, Phys. Rev. B 37 (1988) 6991, doi 10.1103/PhysRevB.37.6991, and B 39 (1989) 5566,
doi 10.1103/PhysRevB.39.5566, for any number of species, with the parameters of LAMMPS's ``pair_style tersoff``:

    E = ½ Σ_i Σ_{j≠i} f_C(r_ij) [A exp(-λ1 r_ij) - b_ij B exp(-λ2 r_ij)],   b_ij = (1 + (β ζ_ij)^n)^(-1/2n),
    ζ_ij = Σ_{k≠i,j} f_C(r_ik) g(θ_ijk) exp((λ3 (r_ij - r_ik))^m),   g = γ [1 + c²/d² - c²/(d² + (cos θ0 - cos θ)²)].

Each centre's energy pushes the atoms around it; the pushes are kept pair by pair, then every owned atom collects those
that its neighbours hold for it. No thread writes another's row; what falls to ghosts is summed into their owners.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numba
import numpy as np
import torch

from mdrun.domain import Domain
from mdrun.exchanges import FORCES
from mdrun.lookup import choice_among
from mdrun.potentials.base import Forces
from mdrun.potentials.kernels import virial_tensor
from mdrun.potentials.precision import DOUBLE, Precision
from mdrun.potentials.short_list import ShortList
from mdrun.potentials.tersoff_kernels import MOST_STRETCH, collect, hand_to_ghosts, push_from_centres
from mdrun.potentials.tersoff_parameters import ANGLE, BOND, read_tersoff, tables_of
from mdrun.potentials.three_body_files import ThreeBodyFile
from mdrun.verbs import sum_into_owners


@dataclass
class Tersoff:
    """See the module's text.

    Attributes:
        symbols: labels that the parameters cover.
        bond: (n_types, n_types, 8) of [i, j], columns ``BOND``.
        angle: (n_types, n_types, n_types, 8) of [i, j, k], columns ``ANGLE``.
    """

    is_compiled = True

    name: str
    symbols: tuple[str, ...]
    bond: np.ndarray
    angle: np.ndarray
    precision: Precision = field(default=DOUBLE, kw_only=True)

    def __post_init__(self) -> None:
        # A neighbour matters to a centre as the end of a bond or as the third atom of another bond's angle.
        self.short_list = ShortList(
            np.maximum(self.bond[..., BOND.index("outer")], self.angle[..., ANGLE.index("outer")].max(axis=1)) ** 2
        )

    @property
    def cutoff(self) -> float:
        """Å, the longest of all pairs."""
        return float(self.short_list.reach2.max()) ** 0.5

    @classmethod
    def load(cls, path: Path | None, numbers: tuple[int, ...], labels: dict[str, str] | None = None) -> Tersoff:
        """For the species ``numbers`` of a structure, from a file or, without one, as published for Si and C.

        Args:
            labels: the file's label of a chemical symbol, where it is not the symbol itself.

        Raises:
            InputError: the file can't be read, or its parameters don't make a potential.
            UnknownSpecies: it lacks a species.
        """
        name = "Tersoff" if path is None else f"Tersoff, {path.name}"
        return cls.from_entries(read_tersoff(path, numbers), numbers, labels, name)

    @classmethod
    def from_entries(
        cls, entries: ThreeBodyFile, numbers: tuple[int, ...], labels: dict[str, str] | None, name: str
    ) -> Tersoff:
        bond, angle = tables_of(entries.table(name, numbers, labels or {}))
        symbols = tuple(dict.fromkeys(triplet[0] for triplet in entries.entries))
        model = cls(name, symbols, bond, angle)
        model.name = f"{name}, cutoff {model.cutoff:.4g} Å"
        return model

    def __call__(self, domain: Domain, totals: bool) -> Forces:
        number, zero, n_chunks = self.precision.terms, self.precision.sums(0), numba.get_num_threads()
        short, n_short = self.short_list.pick(domain)
        bond: np.ndarray = self.bond.astype(number, copy=False)
        angle: np.ndarray = self.angle.astype(number, copy=False)
        of_one, of_two, of_three = (choice_among(len(bond) ** power) for power in (1, 2, 3))
        pushes: np.ndarray = np.empty((domain.n_owned, 3, short.shape[1]), number)
        forces = torch.zeros((domain.n_padded, 3), dtype=torch.float64)
        sums = push_from_centres(
            domain.packed_in(number).numpy(), short, n_short, bond, angle, of_one, of_two, of_three,
            MOST_STRETCH[number], pushes, zero, totals, n_chunks,
        )  # fmt: skip
        collect(short, n_short, pushes, forces.numpy(), zero, n_chunks)
        hand_to_ghosts(short, n_short, pushes, forces.numpy())
        owned = sum_into_owners(forces, FORCES)[: domain.n_owned]
        if not totals:
            return Forces(owned)
        return Forces(owned, float(sums[0]), virial_tensor(sums[1:]))
