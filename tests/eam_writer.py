"""EAM files of any format from polynomials, which the interpolation of mdrun and LAMMPS reproduces to rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers
from ase.neighborlist import neighbor_list
from numpy.polynomial import Polynomial as Poly

FUNCFL_COULOMB = 27.2 * 0.529  # eV·Å, as the format is meant


@dataclass
class Polynomials:
    """A made-up potential, exact.

    Attributes:
        embedding: F of each element's density.
        density: [a][b] what an atom of a contributes at a site of b.
        r_phi: [a][b] r times the pair energy, symmetric.
    """

    symbols: Sequence[str]
    embedding: Sequence[Poly]
    density: Sequence[Sequence[Poly]]
    r_phi: Sequence[Sequence[Poly]]
    cutoff: float = 5.0
    n_rho: int = 60
    d_rho: float = 1.0
    n_r: int = 60
    d_r: float = 0.1
    words_a_line: int = 5
    first_line: str = "made up"
    exponent: str = "e"
    grid_end: str = ""
    comments: Sequence[str] = field(default=("# second", ""))

    def _block(self, *functions: Poly, of: str = "r") -> str:
        grid = np.arange(self.n_r) * self.d_r if of == "r" else np.arange(self.n_rho) * self.d_rho
        words = [f"{v:.17e}".replace("e", self.exponent) for f in functions for v in f(grid)]
        rows = [words[k : k + self.words_a_line] for k in range(0, len(words), self.words_a_line)]
        return "".join(" ".join(row) + "\n" for row in rows)

    def _grid(self) -> str:
        return f"{self.n_rho} {self.d_rho!r} {self.n_r} {self.d_r!r} {self.cutoff!r}{self.grid_end}\n"

    def setfl(self, finnis_sinclair: bool) -> str:
        """Text of an ``eam.alloy`` file, or of an ``eam.fs`` file."""
        n = len(self.symbols)
        text = "\n".join([self.first_line, *self.comments]) + f"\n{n} {' '.join(self.symbols)}\n" + self._grid()
        for a, symbol in enumerate(self.symbols):
            text += f"{atomic_numbers[symbol]} 50.0 3.6 fcc\n" + self._block(self.embedding[a], of="rho")
            text += "".join(self._block(self.density[a][b]) for b in (range(n) if finnis_sinclair else [a]))
        return text + "".join(self._block(self.r_phi[a][b]) for a in range(n) for b in range(a + 1))

    def funcfl(self, charge: Poly) -> str:
        """Text of a one-element file whose r φ is 27.2 · 0.529 charge²."""
        head = f"{self.first_line}\n{atomic_numbers[self.symbols[0]]} 50.0 3.6 fcc\n"
        blocks = self._block(charge) + self._block(self.density[0][0])
        return head + self._grid() + self._block(self.embedding[0], of="rho") + blocks

    def exact(self, atoms: Atoms) -> tuple[float, np.ndarray, np.ndarray]:
        """Energy, forces and virial by a sum over pairs with the polynomials themselves."""
        i, j, d, vectors = neighbor_list("ijdD", atoms, self.cutoff)
        kinds = [self.symbols.index(s) for s in atoms.get_chemical_symbols()]
        rho, energy = np.zeros(len(atoms)), 0.0
        for a, b, r in zip(i, j, d, strict=True):
            rho[a] += self.density[kinds[b]][kinds[a]](r)
            energy += self.r_phi[kinds[a]][kinds[b]](r) / r / 2
        energy += sum(self.embedding[kinds[a]](rho[a]) for a in range(len(atoms)))
        slope = [self.embedding[kinds[a]].deriv()(rho[a]) for a in range(len(atoms))]
        forces, virial = np.zeros((len(atoms), 3)), np.zeros((3, 3))
        for a, b, r, vector in zip(i, j, d, vectors, strict=True):
            ka, kb = kinds[a], kinds[b]
            z = self.r_phi[ka][kb]
            d_energy = z.deriv()(r) / r - z(r) / r**2
            d_energy += slope[a] * self.density[kb][ka].deriv()(r) + slope[b] * self.density[ka][kb].deriv()(r)
            forces[a] += d_energy * vector / r
            virial -= np.outer(vector, vector) * d_energy / r / 2
        return energy, forces, virial


def made_up(symbols: Sequence[str], finnis_sinclair: bool = False, seed: int = 1) -> Polynomials:
    """Smooth, different for every element and pair; densities depend on both species in Finnis-Sinclair form only."""
    rng = np.random.default_rng(seed)
    n = len(symbols)
    to_cutoff = Poly([5.0, -1.0])  # 5 - r
    own = [(0.05 + 0.1 * rng.random()) * to_cutoff**2 + 0.02 * rng.random() * to_cutoff**3 for _ in range(n)]
    density = [[own[a] * (1 + 0.5 * rng.random()) if finnis_sinclair else own[a] for _ in range(n)] for a in range(n)]
    r_phi = [[Poly([0.0])] * n for _ in range(n)]
    for a in range(n):
        for b in range(a + 1):
            r_phi[a][b] = r_phi[b][a] = 0.3 * rng.random() * to_cutoff**3 - 0.2 * rng.random() * to_cutoff**2
    embedding = [Poly([0.1, -0.3, 0.02, 0.001]) * (0.5 + rng.random()) for _ in range(n)]
    return Polynomials(symbols, embedding, density, r_phi)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
