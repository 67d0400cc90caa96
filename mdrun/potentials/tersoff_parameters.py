"""Parameters of the Tersoff potential: LAMMPS's files, what Tersoff published for silicon and carbon, and the tables
that the kernel reads."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from mdrun.potentials.base import symbols_of
from mdrun.potentials.three_body_files import Column, Table, ThreeBodyFile, parse_three_body, read_three_body

COLUMNS = (
    Column("m", 1, 3), Column("gamma", 0), Column("lambda3"), Column("c", 0), Column("d"), Column("costheta0"),
    Column("n", 0), Column("beta", 0), Column("lambda2", 0), Column("B", 0, is_energy=True), Column("R", 0),
    Column("D", 0), Column("lambda1", 0), Column("A", 0, is_energy=True),
)  # fmt: skip
REFERENCE = 2.0  # Å: near where bonds are, exponents are small, and with them what single precision rounds off
BOND = ("A", "lambda1", "B", "lambda2", "beta", "n", "inner", "outer")
ANGLE = ("gamma", "c2_d2", "d2", "costheta0", "stretch", "m", "inner", "outer")

# T3 of J. Tersoff, Phys. Rev. B 38 (1988) 9902, table I.
SILICON = "Si Si Si 3 1 1.7322 100390 16.218 -0.59826 0.78734 1.0999e-6 1.7322 471.18 2.85 0.15 2.4799 1830.8"
# A, B, λ, μ, β, n, c, d, h, R, S of J. Tersoff, Phys. Rev. B 39 (1989) 5566, table I, with the erratum of
# B 41 (1990) 3248.
ELEMENTS_1989 = {
    "C": (1393.6, 346.74, 3.4879, 2.2119, 1.5724e-7, 0.72751, 38049.0, 4.3484, -0.57058, 1.8, 2.1),
    "Si": (1830.8, 471.18, 2.4799, 1.7322, 1.1e-6, 0.78734, 100390.0, 16.217, -0.59825, 2.7, 3.0),
}
CHI_SILICON_CARBON = 0.9776


def read_tersoff(path: Path | None, numbers: tuple[int, ...]) -> ThreeBodyFile:
    """A file, or what is built in: T3 for silicon alone, the potential of 1989 where there is carbon.

    Raises:
        InputError: the file can't be read.
    """
    if path is not None:
        return read_three_body(path, COLUMNS, "tersoff")
    text = SILICON if symbols_of(numbers) == ("Si",) else _mixed_1989()
    return parse_three_body(text, COLUMNS, "tersoff", "Tersoff's own parameters")


def _mixed_1989() -> str:
    """All triplets of silicon and carbon by the paper's mixing: λ and μ by arithmetic, the others by geometric mean."""
    lines = []
    for i, (big_a, big_b, lam, mu, beta, n, c, d, h, r, s) in ELEMENTS_1989.items():
        for j, (a_j, b_j, lam_j, mu_j, *_) in ELEMENTS_1989.items():
            for k, third in ELEMENTS_1989.items():
                # R and S of an entry are those of centre and third element, which in the pair's entry is the second.
                inner, outer = math.sqrt(r * third[-2]), math.sqrt(s * third[-1])
                chi = 1.0 if i == j else CHI_SILICON_CARBON
                values = (
                    3, 1, 0, c, d, h, n, beta, (mu + mu_j) / 2, chi * math.sqrt(big_b * b_j), (inner + outer) / 2,
                    (outer - inner) / 2, (lam + lam_j) / 2, math.sqrt(big_a * a_j),
                )  # fmt: skip
                lines.append(" ".join([i, j, k, *map(repr, values)]))
    return "\n".join(lines)


def tables_of(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """(n, n, 8) of bonds and (n, n, n, 8) of angles, columns ``BOND`` and ``ANGLE``; A and B times their exponentials
    at ``REFERENCE``.

    A bond's parameters are those of the entry whose second and third element are the same.

    Raises:
        InputError: parameters that make no potential.
    """
    second = np.arange(len(table.lines))
    is_pair = np.broadcast_to(second[:, None] == second[None, :], table.lines.shape)
    r, half, m = table["R"], table["D"], table["m"]
    table.require((m == 1) | (m == 3), "m must be 1 or 3")
    table.require(half <= r, "D must not be greater than R")
    # R = D = 0 switches a triplet off; with D alone zero the energy would have a step.
    is_on = r > 0
    table.require(~is_on | (half > 0), "D must be positive")
    table.require(~is_on | (table["d"] != 0) | (table["c"] == 0), "d must not be zero")
    bonds_order = is_pair & is_on & (table["B"] > 0) & (table["beta"] > 0)
    table.require(~bonds_order | (table["n"] > 0), "n must be positive")
    d2 = np.where(table["d"] != 0, table["d"], 1.0) ** 2
    inner, outer = np.where(is_on, r - half, -1.0), np.where(is_on, r + half, 0.0)
    angle = [table["gamma"], table["c"] ** 2 / d2, d2, table["costheta0"], table["lambda3"] ** m, m, inner, outer]
    repulsion, attraction = (
        table[energy] * np.exp(-table[decay] * REFERENCE) for energy, decay in (("A", "lambda1"), ("B", "lambda2"))
    )
    columns = [repulsion, table["lambda1"], attraction, table["lambda2"]]
    columns += [np.where(table["n"] > 0, table["beta"], 0.0), np.where(table["n"] > 0, table["n"], 1.0), inner, outer]
    bond = np.ascontiguousarray(np.stack(columns, axis=-1)[:, second, second])
    return bond, np.stack(angle, axis=-1)
