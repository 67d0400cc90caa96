"""A structure file, read and checked on one rank before any work is done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mdrun.errors import InputError
from mdrun.integrate.bonds import Bonds, replicated
from mdrun.structures.frame import asking_ase, constraints_of
from mdrun.structures.readers import read_frame

if TYPE_CHECKING:
    from ase import Atoms

    from mdrun.structures.frame import Place

MOST_ATOMS = 2**31 - 1  # neighbours are kept as int32
# Columns that mean something elsewhere but that ASE keeps as strangers, and the name that it would have understood.
MASS_LIKE = {"mass", "atomic_mass", "atomic_masses", "atom_mass", "weight"}
VELOCITY_LIKE = {"vel", "velo", "velos", "velocity", "velocities", "v", "vx", "vy", "vz", "momentum", "p"}
FIXED_LIKE = {"fix", "fixed", "frozen", "move", "mobile", "moving", "constraint", "constraints", "selective_dynamics"}
CHARGE_LIKE = {"q", "charge", "charges"}
STALE = ("virial", "stress", "energy", "free_energy", "forces", "stresses", "energies", "magmoms", "charges", "dipole")


@dataclass(frozen=True, eq=False)
class Structure:
    """What a run starts from. Rows are in the order of the file, replicas after it.

    Attributes:
        path: the file as the user named it.
        atoms: template for output, with every per-atom array, constraints and no calculator; positions unwrapped.
        masses: (n,) amu.
        charges: (n,) e.
        mobile: (n, 3) components that may move.
        bonds: of fixed length.
        has_velocities: the file gave momenta.
        notes: what the user should hear once.
    """

    path: str
    atoms: Atoms
    masses: np.ndarray
    charges: np.ndarray
    mobile: np.ndarray
    bonds: Bonds
    has_velocities: bool
    notes: tuple[str, ...]

    @property
    def n_atoms(self) -> int:
        return len(self.atoms)

    @property
    def species(self) -> tuple[int, ...]:
        """Distinct atomic numbers, ascending."""
        return tuple(int(z) for z in np.unique(self.atoms.numbers))

    @property
    def formula(self) -> str:
        """Hill's order, cut where it becomes a paragraph."""
        formula = str(self.atoms.get_chemical_formula(mode="hill"))
        return formula if len(formula) <= 40 else formula[:39] + "…"


def load_structure(
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
    index: int | None = None,
    replicate: Sequence[int] = (1, 1, 1),
    species: Sequence[str] | None = None,
    freeze: str | None = None,
    constrain_bonds: str | None = None,
) -> Structure:
    """Read one frame of a structure file and refuse it unless a simulation can start from it.

    Args:
        path: anything that ASE reads.
        format: ASE's name of the format; found by content and name where None.
        index: frame, negative from the end; the last one where None.
        replicate: copies along each axis, 1 along open ones. Every copy gets the same momenta.
        species: elements of types 1, 2, .. in a LAMMPS file that does not say them.
        freeze: atoms to fix beside those that the file fixes, of all copies; see ``mdrun.structures.selection``.
        constrain_bonds: kinds of bonds that keep their length beside those that the file names.

    Raises:
        InputError: in one paragraph with file, atom and value.
    """
    # Numba and torch come with the checks; whoever only imports this module does not wait for them.
    from mdrun.structures import checks
    from mdrun.structures.bonds import bonds_of_file, bonds_of_kinds, merged
    from mdrun.structures.selection import select

    path = os.fspath(path)
    copies = _copies(replicate)
    frame = read_frame(path, format, index, species)
    atoms, place, notes = frame.atoms, frame.place, list(frame.notes)
    results = dict(getattr(atoms.calc, "results", {}))
    atoms.calc = None
    checks.check_numbers(atoms, place)
    notes += _strangers(atoms, results, place)
    for stale in STALE:
        atoms.arrays.pop(stale, None)
        atoms.info.pop(stale, None)

    masses, charges = _per_atom(atoms, place)
    checks.check_finite(atoms, atoms.positions, "position", place, limit=checks.FARTHEST)
    checks.check_finite(atoms, masses, "mass", place)
    checks.check_finite(atoms, charges, "charge", place)
    if "momenta" in atoms.arrays:
        checks.check_finite(atoms, atoms.arrays["momenta"], "momentum", place)
    checks.check_masses(atoms, masses, place)
    checks.check_cell(atoms.cell.array, atoms.pbc, place)
    with asking_ase(path):  # constraints may hold anything
        mobile = mobile_components(atoms, place)
        bonds = bonds_of_file(atoms, place)
    if constrain_bonds is not None:
        bonds = merged(bonds, bonds_of_kinds(atoms, constrain_bonds, place))
    notes += checks.check_overlaps(atoms, place)

    for axis, n in enumerate(copies):
        if n > 1 and not atoms.pbc[axis]:
            raise InputError(f"--replicate: axis {'abc'[axis]} of {place} is open and cannot be repeated {n} times.")
    n_copies = int(np.prod(copies, dtype=object))
    if len(atoms) * n_copies > MOST_ATOMS:
        raise InputError(f"--replicate: {len(atoms) * n_copies} atoms are more than {MOST_ATOMS}.")
    atoms.set_constraint()
    if n_copies > 1:
        bonds = replicated(bonds, len(atoms), copies)
        atoms *= copies
    masses, charges = np.tile(masses, n_copies), np.tile(charges, n_copies)
    mobile = np.tile(mobile, (n_copies, 1))
    if freeze is not None:
        mobile[select(freeze, atoms, "--freeze")] = False
    notes += _rest_the_fixed(atoms, mobile, place)
    atoms.set_constraint(constraints_of(mobile))
    return Structure(path, atoms, masses, charges, mobile, bonds, "momenta" in atoms.arrays, tuple(notes))


def _copies(replicate: Sequence[int]) -> tuple[int, int, int]:
    values = tuple(replicate)
    if len(values) != 3 or not all(isinstance(n, (int, np.integer)) and n >= 1 for n in values):
        shown = " ".join(map(str, values))
        raise InputError(f"--replicate takes three positive whole numbers, one for each axis; got {shown}.")
    return int(values[0]), int(values[1]), int(values[2])


def _strangers(atoms: Atoms, results: dict[str, Any], place: Place) -> list[str]:
    """Sentences about columns that look as if they should count but do not."""
    notes = []
    for likes, proper, meaning in (
        (MASS_LIKE | {"masses"}, "masses", "masses in amu"),
        (VELOCITY_LIKE | {"momenta"}, "momenta", "momenta in sqrt(eV·u)"),
        (FIXED_LIKE, "move_mask", "T for atoms that move and F for fixed ones"),
        (CHARGE_LIKE | {"initial_charges"}, "initial_charges", "charges in e"),
    ):
        names = [*atoms.arrays, *(name for name in results if np.ndim(results[name]) > 0)]
        odd = [name for name in names if name.lower() in likes and name != proper]
        if odd:
            one, are = ("column", "is") if len(odd) == 1 else ("columns", "are")
            notes.append(f"{place}: {one} {', '.join(odd)} {are} not used; '{proper}' would be read ({meaning})")
    occupancy = atoms.info.get("occupancy")
    sites = occupancy.values() if isinstance(occupancy, dict) else ()
    if any(isinstance(shares, dict) and list(shares.values()) != [1] for shares in sites):
        notes.append(f"{place}: some sites are shared or partly occupied; each is taken as one whole atom")
    return notes


def _per_atom(atoms: Atoms, place: Place) -> tuple[np.ndarray, np.ndarray]:
    """Masses (n,) amu and charges (n,) e; the shapes of the columns that a run uses are checked."""
    for name, shape in (("masses", ()), ("initial_charges", ()), ("momenta", (3,))):
        values = atoms.arrays.get(name)
        if values is None:
            continue
        if values.shape[1:] != shape or values.dtype.kind not in "fiub":
            raise InputError(
                f"{place}: column {name} must hold {shape[0] if shape else 1} number(s) for each atom, "
                f"not {'x'.join(map(str, values.shape[1:])) or 1} of type {values.dtype}."
            )
        atoms.arrays[name] = np.ascontiguousarray(values, dtype=np.float64)
    return atoms.get_masses().astype(np.float64), atoms.get_initial_charges().astype(np.float64)


def mobile_components(atoms: Atoms, place: Place) -> np.ndarray:
    """(n, 3) components that no constraint of the file fixes.

    Raises:
        InputError: a constraint that does not fix Cartesian components.
    """
    from ase.constraints import FixAtoms, FixBondLengths, FixCartesian, FixScaled

    mobile = np.ones((len(atoms), 3), dtype=bool)
    for constraint in atoms.constraints:
        if isinstance(constraint, FixBondLengths):
            continue
        if isinstance(constraint, FixAtoms):
            fixed = np.ones(3, dtype=bool)
        elif isinstance(constraint, FixCartesian):
            fixed = np.asarray(constraint.mask, dtype=bool)
        elif isinstance(constraint, FixScaled):
            fixed = _fixed_components(atoms.cell.array, np.asarray(constraint.mask, dtype=bool), place)
        else:
            raise InputError(
                f"{place} has a constraint of the kind {type(constraint).__name__}; only fixed atoms, fixed "
                "Cartesian components and fixed bond lengths are supported. Remove it from the file."
            )
        rows = np.asarray(constraint.index)
        if not ((rows >= 0) & (rows < len(atoms))).all():
            raise InputError(f"{place} fixes an atom that it does not have; its atoms are 0 to {len(atoms) - 1}.")
        mobile[rows] &= ~fixed
    return mobile


def _fixed_components(cell: np.ndarray, mask: np.ndarray, place: Place) -> np.ndarray:
    """Cartesian components (3,) that stand still where the fractional coordinates in ``mask`` do.

    A fractional coordinate is fixed if motion is at right angles to its reciprocal vector; the fixed ones together
    are Cartesian components if the projector on their reciprocal vectors is diagonal.
    """
    if not mask.any():
        return mask
    fixed, projector = mask, np.full((3, 3), np.nan)
    if np.linalg.matrix_rank(cell) == 3:
        basis, _ = np.linalg.qr(np.linalg.inv(cell)[:, mask])
        projector = basis @ basis.T
        fixed = np.diag(projector) > 0.5
    if not np.allclose(projector, np.diag(fixed), atol=1e-8):
        raise InputError(
            f"{place} fixes atoms along cell vectors that are not along x, y or z; that is not supported. "
            "Fix the whole atom, or turn the cell."
        )
    return fixed


def _rest_the_fixed(atoms: Atoms, mobile: np.ndarray, place: Place) -> list[str]:
    """Momenta of fixed components would count as temperature: they are set to zero."""
    if "momenta" not in atoms.arrays:
        return []
    moving = (atoms.arrays["momenta"] != 0) & ~mobile
    atoms.arrays["momenta"][~mobile] = 0.0
    n = int(moving.any(axis=1).sum())
    return [f"{place}: {n} fixed atoms had momenta along fixed components, which are set to zero"] if n else []
