"""Pair potentials: textbook formulas summed by brute force, LAMMPS's numbers, derivatives, cutoffs and barriers."""

from __future__ import annotations

import importlib
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from ase.io import read
from ase.neighborlist import neighbor_list
from scipy.special import erfc

from mdrun.errors import InputError, SimulationError
from mdrun.potentials import coulomb_dsf, tabulated, zbl
from mdrun.potentials.buckingham import BUCKINGHAM, barrier, buckingham
from mdrun.potentials.lennard_jones import make_lennard_jones
from mdrun.potentials.morse import morse
from mdrun.potentials.registry import load_model
from mdrun.potentials.yukawa import yukawa
from mdrun.units import COULOMB, LAMMPS_COULOMB
from tests.systems import DATA, REFERENCE_PAIRS, evaluate, pfcc, species_of

REFERENCE = DATA / "reference"
NACL = 5.64  # Å


def rock_salt(n: int = 2, rattle: float = 0.15) -> Atoms:
    atoms = bulk("NaCl", "rocksalt", a=NACL, cubic=True).repeat(n)
    atoms.set_initial_charges([1.0 if s == "Na" else -1.0 for s in atoms.symbols])
    atoms.rattle(rattle, seed=1)
    return atoms


def ternary() -> Atoms:
    """Three species, charges unlike within a species too, in a skewed cell below every cutoff."""
    atoms = pfcc(2, 2, 2, a=4.4)
    rng = np.random.default_rng(2)
    atoms.numbers = rng.choice([11, 17, 19], len(atoms))
    atoms.set_initial_charges(rng.normal(size=len(atoms)))
    atoms.set_cell([[8.8, 0, 0], [2.0, 8.8, 0], [-1.0, 1.5, 8.8]], scale_atoms=True)
    return atoms


BORN_MAYER = {  # A (eV), ρ (Å), C (eV·Å⁶)
    (11, 11): (424.097, 0.317, 1.05),
    (11, 17): (1256.31, 0.317, 7.0),
    (17, 17): (3488.998, 0.317, 72.4),
    (11, 19): (900.0, 0.33, 0.0),
    (17, 19): (1500.0, 0.33, 20.0),
    (19, 19): (1600.0, 0.34, 14.0),
}
MORSES = {pair: (0.1 + 0.02 * k, 1.1 + 0.1 * k, 3.9 - 0.2 * k) for k, pair in enumerate(BORN_MAYER)}  # D, a, r0
YUKAWAS = {pair: (14.4 * (k - 2), 0.2 + 0.1 * k) for k, pair in enumerate(BORN_MAYER)}  # A, κ
SYMBOLS = {11: "Na", 17: "Cl", 19: "K"}


def toml(names: str, values: dict, cutoff: float, shift: bool) -> str:
    text = f"cutoff = {cutoff}\nshift = {str(shift).lower()}\n"
    for (a, b), numbers in values.items():
        text += f"[pairs.{SYMBOLS[b]}-{SYMBOLS[a]}]\n"
        text += "".join(f"{name} = {number}\n" for name, number in zip(names.split(), numbers, strict=True))
    return text


# The textbook's energies, of distance; the right side of the comparisons.


def morse_energy(r, d, a, r0):
    return d * (np.exp(-2 * a * (r - r0)) - 2 * np.exp(-a * (r - r0)))


def buckingham_energy(r, a, rho, c):
    return a * np.exp(-r / rho) - c / r**6


def yukawa_energy(r, a, kappa):
    return a * np.exp(-kappa * r) / r


def screened_nuclei(r, z1, z2):
    x = r * (z1**0.23 + z2**0.23) / 0.46850
    phi = (
        0.18175 * np.exp(-3.19980 * x) + 0.50986 * np.exp(-0.94229 * x)
        + 0.28022 * np.exp(-0.40290 * x) + 0.02817 * np.exp(-0.20162 * x)
    )  # fmt: skip
    return LAMMPS_COULOMB * z1 * z2 / r * phi


def fennell_gezelter(r, q1, q2, alpha, cutoff):
    def bare(x):
        return erfc(alpha * x) / x

    slope = -bare(cutoff) / cutoff - 2 * alpha / np.sqrt(np.pi) * np.exp(-((alpha * cutoff) ** 2)) / cutoff
    return LAMMPS_COULOMB * q1 * q2 * (bare(r) - bare(cutoff) - slope * (r - cutoff))


def sum_over_pairs(atoms: Atoms, cutoff: float, energy_of) -> tuple[float, np.ndarray, np.ndarray]:
    """Energy, forces and stress from ``energy_of(r, i, j)``, its derivative taken by central differences."""
    i, j, r, vectors = neighbor_list("ijdD", atoms, cutoff)
    h = 1e-4
    slope = (
        8 * (energy_of(r + h, i, j) - energy_of(r - h, i, j))
        - (energy_of(r + 2 * h, i, j) - energy_of(r - 2 * h, i, j))
    ) / (12 * h)
    pulls = (slope / r)[:, None] * vectors
    forces = np.stack([np.bincount(i, pulls[:, k], len(atoms)) for k in range(3)], axis=1)
    return energy_of(r, i, j).sum() / 2, forces, np.einsum("na,nb->ab", pulls, vectors) / 2 / atoms.get_volume()


def of_pairs(values: dict, energy, atoms: Atoms, cutoff: float = 0.0):
    """``energy`` with the values of each pair; shifted to zero at a cutoff where one is given."""
    z = atoms.numbers

    def of(r, i, j):
        numbers = np.array([values[min(a, b), max(a, b)] for a, b in zip(z[i], z[j], strict=True)]).T
        return energy(r, *numbers) - (energy(cutoff, *numbers) if cutoff else 0.0)

    return of


@pytest.fixture
def write(tmp_path):
    def to(text: str, name: str = "table.toml") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return to


def check(atoms: Atoms, spec: str, cutoff: float, energy_of, own: float = 0.0) -> None:
    result = evaluate(atoms, load_model(spec, species_of(atoms)))
    energy, forces, stress = sum_over_pairs(atoms, cutoff, energy_of)
    assert result.energy == pytest.approx(energy + own, rel=1e-12)
    scale = max(1.0, np.abs(forces).max())
    np.testing.assert_allclose(result.forces, forces, rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose(result.stress, stress, rtol=0, atol=1e-10 * scale)


FAMILIES = {
    "morse": ("D a r0", MORSES, morse_energy),
    "buck": ("A rho C", BORN_MAYER, buckingham_energy),
    "yukawa": ("A kappa", YUKAWAS, yukawa_energy),
}


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("word", FAMILIES)
def test_three_species_are_the_textbooks_sum_over_pairs(word, shift, write):
    names, values, energy = FAMILIES[word]
    if word == "yukawa":
        values = {pair: (abs(a), kappa) for pair, (a, kappa) in values.items()}
    atoms = ternary()
    spec = f"{word}:{write(toml(names, values, 7.0, shift))}"
    check(atoms, spec, 7.0, of_pairs(values, energy, atoms, 7.0 if shift else 0.0))


@pytest.mark.parametrize(
    ("spec", "values", "energy"),
    [
        ("morse:D=0.34,a=1.36,r0=2.87,cutoff=7.7", (0.34, 1.36, 2.87), morse_energy),
        ("buck:A=3488.998,rho=0.317,C=72.4,cutoff=7.7", (3488.998, 0.317, 72.4), buckingham_energy),
        ("yukawa:A=14.4,kappa=0.7,cutoff=7.7", (14.4, 0.7), yukawa_energy),
        ("yukawa:A=-14.4,kappa=0,cutoff=7.7", (-14.4, 0.0), yukawa_energy),
    ],
)
def test_one_species_by_numbers_is_the_textbooks_sum_over_pairs(spec, values, energy):
    check(pfcc(2, 2, 2, a=4.0), spec, 7.7, lambda r, i, j: energy(r, *values))


def test_nuclei_within_the_inner_distance_repel_as_the_universal_potential_does_but_for_a_constant():
    for numbers in ([14, 14], [6, 92]):
        energies = [
            evaluate(Atoms(numbers, positions=[[0, 0, 0], [0, 0, r]]), load_model("zbl:inner=3,outer=4", species))
            .energy
            for species in [tuple(sorted(set(numbers)))] for r in (0.05, 0.5, 1.5, 3.0)
        ]  # fmt: skip
        expected = screened_nuclei(np.array([0.05, 0.5, 1.5, 3.0]), *numbers)
        np.testing.assert_allclose(np.diff(energies), np.diff(expected), rtol=1e-12)


def test_charges_are_the_papers_sum_over_pairs_and_each_atoms_own_energy():
    atoms = ternary()
    q = atoms.get_initial_charges()
    alpha, cutoff = 0.25, 8.0
    # eq. 19: what an atom's own image at the cutoff sphere, and its own screening charge, add
    at_cutoff = erfc(alpha * cutoff) / cutoff
    slope = at_cutoff / cutoff + 2 * alpha / np.sqrt(np.pi) * np.exp(-((alpha * cutoff) ** 2)) / cutoff
    own = -LAMMPS_COULOMB * (q @ q) * ((at_cutoff + slope * cutoff) / 2 + alpha / np.sqrt(np.pi))
    check(
        atoms, f"dsf:alpha={alpha},cutoff={cutoff},erfc=exact", cutoff,
        lambda r, i, j: fennell_gezelter(r, q[i], q[j], alpha, cutoff), own,
    )  # fmt: skip
    exact, polynomial = (
        evaluate(atoms, load_model(f"dsf:alpha={alpha},cutoff={cutoff},erfc={name}", species_of(atoms)))
        for name in ("exact", "lammps")
    )
    assert polynomial.energy == pytest.approx(exact.energy, rel=3e-6)
    np.testing.assert_allclose(polynomial.forces, exact.forces, rtol=0, atol=2e-6)


def test_the_energy_of_rock_salt_is_madelungs():
    atoms = rock_salt(1, rattle=0)
    energy = evaluate(atoms, load_model("dsf:alpha=0.2,cutoff=20,erfc=exact", species_of(atoms))).energy
    assert energy / 4 == pytest.approx(-1.7475645946 * COULOMB / (NACL / 2), rel=1e-5)


# LAMMPS


@pytest.mark.parametrize(
    "case", json.loads((REFERENCE / "index_pairs.json").read_text()), ids=lambda case: case["file"]
)
def test_reference_files_are_met(case):
    """To 1e-9, 1e-7 eV/Å and 1e-8 eV/Å³, or to what eight decimals of the positions leave of stiff forces."""
    atoms = read(REFERENCE / case["file"])
    model = load_model(REFERENCE_PAIRS[case["model"]["kind"]].format(**case["model"]), species_of(atoms))
    result = evaluate(atoms, model)
    # rounding moves each coordinate by 1e-8 / sqrt(12), rms
    moved = atoms.copy()
    moved.positions += np.random.default_rng(1).uniform(-5e-9, 5e-9, (len(atoms), 3))
    other = evaluate(moved, model)
    assert result.energy == pytest.approx(case["energy_eV"], rel=1e-9, abs=4 * 3e-9 * np.linalg.norm(result.forces))
    forces_slack = 1e-7 + 2 * np.abs(other.forces - result.forces).max()
    np.testing.assert_allclose(result.forces, atoms.get_forces(), rtol=0, atol=forces_slack)
    # LAMMPS gives bar, and rounds the unit of pressure, 1.6021766208e6 bar, to 1.6021765e6
    stress = atoms.get_stress(voigt=False) * 1.6021766208 / 1.6021765
    np.testing.assert_allclose(result.stress, stress, rtol=0, atol=1e-8)


# Derivatives


def lj_table(n: int = 400, first: float = 1.0, last: float = 9.0, square: bool = False, name: str = "Na-Na") -> str:
    """A LAMMPS table of a Lennard-Jones potential."""
    r = np.sqrt(np.linspace(first**2, last**2, n)) if square else np.linspace(first, last, n)
    u, f = lj(r)
    rows = "".join(f"{k} {a:.10g} {b:.16g} {c:.16g}\n" for k, (a, b, c) in enumerate(zip(r, u, f, strict=True), 1))
    return f"# UNITS: metal\n\n{name}\nN {n} {'RSQ' if square else 'R'} {first} {last}\n\n{rows}\n"


def lj(r):
    s6 = (2.5 / r) ** 6
    return 0.05 * (s6 * s6 - s6), 0.05 * (12 * s6 * s6 - 6 * s6) / r


def all_tables() -> str:
    pairs = itertools.combinations_with_replacement(SYMBOLS.values(), 2)
    return "".join(lj_table(150 + 17 * k, 0.9, 7.0 + 0.2 * k, k % 2, f"{a}-{b}") for k, (a, b) in enumerate(pairs))


MODELS = {
    "morse": lambda write: f"morse:{write(toml('D a r0', MORSES, 7.0, True))}",
    "buckingham": lambda write: f"buck:{write(toml('A rho C', BORN_MAYER, 7.0, False))}",
    "yukawa": lambda write: f"yukawa:{write(toml('A kappa', YUKAWAS, 7.0, True))}",
    "nuclei": lambda write: "zbl:inner=3,outer=5.5",
    "charges": lambda write: "dsf:alpha=0.2,cutoff=8,erfc=exact",
    "table": lambda write: f"table:{write(all_tables(), 'pairs.table')}",
    "sum": lambda write: (
        f"buck:{write(toml('A rho C', BORN_MAYER, 7.0, False))} + dsf:alpha=0.2,cutoff=8,erfc=exact + "
        "zbl:inner=1.0,outer=2.0"
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_forces_and_stress_are_the_energys_derivatives(name, write):
    atoms = ternary()
    model = load_model(MODELS[name](write), species_of(atoms))
    result = evaluate(atoms, model)
    step = 1e-5

    def slope(change) -> float:
        energies = []
        for sign in (1, -1):
            changed = atoms.copy()
            change(changed, sign * step)
            energies.append(evaluate(changed, model).energy)
        return (energies[0] - energies[1]) / (2 * step)

    scale = max(1.0, np.abs(result.forces).max())
    for atom, axis in itertools.product((0, 13, 31), range(3)):

        def move(changed, by, atom=atom, axis=axis):
            changed.positions[atom, axis] += by

        assert result.forces[atom, axis] == pytest.approx(-slope(move), abs=5e-8 * scale)
    virial = -result.stress * atoms.get_volume()
    for a, b in itertools.product(range(3), range(3)):

        def strain(changed, by, a=a, b=b):
            deformation = np.eye(3)
            deformation[a, b] += by
            changed.set_cell(changed.cell.array @ deformation, scale_atoms=True)

        assert virial[a, b] == pytest.approx(-slope(strain), abs=5e-8 * max(1.0, np.abs(virial).max()))


ROWS = {
    "morse": (morse, [49.0, 0.34, 1.36, 2.87, 0.01]),
    "buckingham": (buckingham, [49.0, 1256.31, 1 / 0.317, 7.0, 0.1, 0.01]),
    "yukawa": (yukawa, [49.0, 14.4, 0.4, 0.01]),
    "nuclei": (zbl.zbl, zbl.row(14, 8, 2.0, 5.0)),
    "charges": (coulomb_dsf.exact_dsf, coulomb_dsf.make_dsf(0.2, 7.0, 1).table[0, 0]),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_formula_serves_tensors_and_its_force_is_their_gradient(name):
    formula, row = ROWS[name]
    r2 = torch.linspace(1.0, 24.9, 200, dtype=torch.float64, requires_grad=True)
    charges = (torch.tensor(-1.3, dtype=torch.float64),) if name == "charges" else ()
    energy, force = formula(r2, torch.tensor(np.array(row)), *charges)
    (gradient,) = torch.autograd.grad(energy.sum(), r2)
    np.testing.assert_allclose(force.detach(), -2 * gradient, rtol=1e-11, atol=1e-14)


# Cutoffs, switching, shifts


def pair_energy(spec: str, r: float, numbers=(11, 11), charges=(1.0, 1.0)) -> tuple[float, float]:
    """Energy and repulsion of two atoms."""
    atoms = Atoms(numbers, positions=[[0, 0, 0], [r, 0, 0]])
    atoms.set_initial_charges(charges)
    result = evaluate(atoms, load_model(spec, species_of(atoms)))
    return result.energy, -result.forces[0, 0]


@pytest.mark.parametrize("word", FAMILIES)
def test_a_shifted_energy_ends_at_zero_and_has_the_same_force(word):
    names, values, _ = FAMILIES[word]
    numbers = ",".join(f"{n}={v}" for n, v in zip(names.split(), values[11, 11], strict=True))
    spec = f"{word}:{numbers},cutoff=6"
    plain, force = pair_energy(spec, 6 - 1e-9)
    shifted, same = pair_energy(f"{spec},shift=yes", 6 - 1e-9)
    assert abs(plain) > 1e-5
    assert shifted == pytest.approx(0, abs=1e-8)
    assert same == pytest.approx(force, rel=1e-14)
    assert pair_energy(spec, 6 + 1e-9) == (0.0, 0.0)


def test_switched_off_nuclei_are_smooth_where_switching_begins_and_ends():
    spec, h = "zbl:inner=2,outer=3", 1e-5
    outside = pair_energy(spec, 3 + h)
    inside = pair_energy(spec, 3 - h)
    assert outside == (0.0, 0.0)
    assert inside[0] == pytest.approx(0, abs=1e-10)
    assert inside[1] == pytest.approx(0, abs=1e-7)  # the slope vanishes too: of second order in h
    below, at, above = (pair_energy(spec, 2 + s * h) for s in (-1, 0, 1))
    assert above[0] - at[0] == pytest.approx(at[0] - below[0], rel=1e-3)
    assert above[1] - at[1] == pytest.approx(at[1] - below[1], rel=1e-3)


@pytest.mark.parametrize("name", ["lammps", "exact"])
def test_energy_and_force_of_charges_vanish_at_the_cutoff(name):
    own = pair_energy(f"dsf:alpha=0.2,cutoff=8,erfc={name}", 9.0)[0]
    energy, force = pair_energy(f"dsf:alpha=0.2,cutoff=8,erfc={name}", 8 - 1e-9)
    assert energy - own == pytest.approx(0, abs=3e-7 if name == "lammps" else 1e-12)
    assert force == pytest.approx(0, abs=1e-7 if name == "lammps" else 1e-9)


def test_charges_come_with_the_structure_or_the_run_does_not_start():
    atoms = rock_salt(1)
    atoms.set_initial_charges(None)
    with pytest.raises(InputError, match="every atom of the structure has charge 0"):
        evaluate(atoms, load_model("dsf:alpha=0.2,cutoff=8", species_of(atoms)))


# Buckingham's barrier


@pytest.mark.parametrize("values", [v for v in BORN_MAYER.values() if v[2]])
def test_the_barrier_is_where_the_energy_has_its_maximum(values):
    top = barrier(*values)
    r = np.linspace(0.5 * top, 7 * values[1], 2001)
    assert buckingham_energy(r, *values).argmax() == np.abs(r - top).argmin()
    assert buckingham(top * top * (1 + 1e-9), np.array([49.0, *BUCKINGHAM.row(*values), 0.0]))[1] >= 0


def test_without_dispersion_there_is_no_barrier():
    assert barrier(1000.0, 0.3, 0.0) == 0.0
    assert pair_energy("buck:A=1000,rho=0.3,C=0,cutoff=8", 0.01)[1] == pytest.approx(1000 / 0.3 * np.exp(-0.01 / 0.3))


@pytest.mark.parametrize(("a", "rho", "c"), [(0.0, 0.3, 10.0), (1.0, 0.3, 1000.0)])
def test_what_attracts_at_every_distance_is_refused(a, rho, c):
    with pytest.raises(InputError, match="attract at every distance"):
        load_model(f"buck:A={a},rho={rho},C={c},cutoff=8", (18,))


@pytest.mark.parametrize("more", ["", " + dsf:alpha=0.2,cutoff=8", " + zbl:inner=1,outer=2"])
def test_atoms_within_the_barrier_stop_the_run_and_are_named(more):
    top = barrier(3488.998, 0.317, 72.4)
    spec = f"buck:A=3488.998,rho=0.317,C=72.4,cutoff=8{more}"
    assert np.isfinite(pair_energy(spec, top * 1.001)[1])
    with pytest.raises(SimulationError, match=r"atoms 0 and 1 are .* Å apart.*Buckingham's barrier"):
        pair_energy(spec, top * 0.999)


# The documentation


def test_the_potential_that_the_documentation_adds_is_what_it_says(tmp_path, monkeypatch):
    text = (Path(__file__).parents[1] / "docs" / "pair_potentials.md").read_text()
    (tmp_path / "soft_sphere.py").write_text(text.split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    family = importlib.import_module("soft_sphere").SOFT_SPHERE
    model = family.load(None, {"epsilon": "0.1", "sigma": "3", "cutoff": "8"}, (18,))
    result = evaluate(Atoms("Ar2", positions=[[0, 0, 0], [0, 0, 2.7]]), model)
    assert result.energy == pytest.approx(0.1 * (3 / 2.7) ** 12, rel=1e-12)
    assert result.forces[1, 2] == pytest.approx(12 * result.energy / 2.7, rel=1e-12)


# Tables


@pytest.mark.parametrize("square", [False, True])
def test_the_rows_of_a_table_are_met_to_rounding(square, write):
    spec = f"table:{write(lj_table(50, square=square), 'lj.table')}"
    s = np.linspace(1, 81, 50) ** 0.5 if square else np.linspace(1, 9, 50)
    for r in s[5:-1:7]:
        energy, force = lj(r)
        assert pair_energy(spec, r) == pytest.approx((energy, force), rel=1e-11)


def test_the_error_between_the_rows_falls_with_the_fourth_power_of_their_distance(write):
    r = np.random.default_rng(1).uniform(2.2, 8.9, 20)
    errors = []
    for n in (201, 401, 801):
        spec = f"table:{write(lj_table(n), f'{n}.table')}"
        errors.append(max(abs(pair_energy(spec, x)[0] - lj(x)[0]) for x in r))
    assert errors[0] > 8 * errors[1] > 64 * errors[2]
    assert errors[2] < 1e-7


def test_a_table_serves_one_species_under_any_name_and_several_by_pair(write):
    one = f"table:{write(lj_table(name='LJ_argon'), 'one.table')}"
    assert pair_energy(one, 3.0)[0] == pytest.approx(lj(3.0)[0], rel=1e-6)
    with pytest.raises(InputError, match=r"has no section Na-Na; it has LJ_argon"):
        pair_energy(one, 3.0, (11, 17))
    with pytest.raises(InputError, match=r"has no section Cl-Cl; it has Na-Na"):
        pair_energy(f"table:{write(lj_table(), 'other.table')}", 3.0, (17, 17))


def test_atoms_nearer_than_the_first_row_stop_the_run_and_are_named(write):
    spec = f"table:{write(lj_table(first=1.5), 'lj.table')}"
    with pytest.raises(SimulationError, match=r"atoms 0 and 1 are 1.49 Å apart.*first row"):
        pair_energy(spec, 1.49)
    assert pair_energy(spec, 9.01) == (0.0, 0.0)
    assert pair_energy(f"{spec},cutoff=5", 5.01) == (0.0, 0.0)
    assert pair_energy(f"{spec},cutoff=5", 4.99)[0] == pytest.approx(lj(4.99)[0], rel=1e-4)


def test_a_table_is_read_on_tensors_too(write):
    section = tabulated.read_table_file(Path(write(lj_table(), "lj.table")))["Na-Na"]
    r2 = torch.linspace(4.0, 80.0, 300, dtype=torch.float64, requires_grad=True)
    energy, force = tabulated.tabulated(r2, torch.tensor(section.row(9.0)))
    (gradient,) = torch.autograd.grad(energy.sum(), r2)
    np.testing.assert_allclose(force.detach(), -2 * gradient, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(energy.detach(), lj(np.sqrt(r2.detach().numpy()))[0], atol=2e-6)


# Many species


@pytest.mark.parametrize("n_species", [2, 4, 5, 7])
def test_any_number_of_species_is_summed_as_pairs_by_pairs(n_species):
    """Few species are chosen by comparisons, many by loads: both must give each pair its own parameters."""
    rng = np.random.default_rng(n_species)
    numbers = np.arange(3, 3 + n_species)
    pairs = {
        pair: (rng.uniform(0.005, 0.02), rng.uniform(2.5, 3.5))
        for pair in itertools.combinations_with_replacement(range(n_species), 2)
    }
    atoms = pfcc(2, 2, 2, a=4.6)
    atoms.numbers = rng.choice(numbers, len(atoms))
    atoms.numbers[:n_species] = numbers
    atoms.rattle(0.1, seed=1)
    types = np.searchsorted(numbers, atoms.numbers)

    def energy_of(r, i, j):
        epsilon, sigma = np.array([pairs[min(a, b), max(a, b)] for a, b in zip(types[i], types[j], strict=True)]).T
        return 4 * epsilon * ((sigma / r) ** 12 - (sigma / r) ** 6)

    energy, forces, stress = sum_over_pairs(atoms, 5.0, energy_of)
    found = evaluate(atoms, make_lennard_jones(pairs, n_species, 5.0, False, "mixture"))
    assert found.energy == pytest.approx(energy, rel=1e-12)
    np.testing.assert_allclose(found.forces, forces, atol=1e-8)
    np.testing.assert_allclose(found.stress, stress, atol=1e-9)
