"""``structure.npz``: the structure as a run read it, so that it goes on whatever becomes of the file that it was in.

Arrays: ``column_0``, .. of each atom and ``info_12``, .. of the frame, whose names ``meta`` has; ``cell``, ``pbc``,
``mobile``, ``masses`` and ``charges`` as ``Structure`` has them; ``pairs``, ``shifts`` and ``lengths`` of its bonds.
Columns of words are objects in memory, and none in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mdrun import npz
from mdrun.errors import InputError
from mdrun.integrate.bonds import Bonds, make_bonds
from mdrun.npz import Damaged
from mdrun.structures import Structure
from mdrun.structures.frame import Place, constraints_of

if TYPE_CHECKING:
    from ase import Atoms

FORMAT = 2
KINDS = "biufcSU"  # NumPy's, of what may stand in a column or in info
FARTHEST_IMAGE = 2**31  # cells
PLAIN = (bool, int, float, str, type(None))


class Unkeepable(ValueError):
    """Something in a structure that no file without pickle has a place for; the text says what."""


@dataclass(frozen=True, eq=False)
class Kept:
    """Attributes:
    digest: of the file that the structure was read from, see ``mdrun.digests``.
    reading: how it was read, by the options' names, as JSON has their values.
    """

    structure: Structure
    digest: str
    reading: dict[str, Any]


def keep(path: Path, structure: Structure, digest: str, reading: Mapping[str, Any]) -> None:
    """Write it, forced to the disk.

    Raises:
        Unkeepable: before anything is written.
        OSError: it can't be written.
    """
    atoms, bonds = structure.atoms, structure.bonds
    arrays = {
        "cell": np.asarray(atoms.cell.array, dtype=np.float64),
        "pbc": np.asarray(atoms.pbc, dtype=bool),
        "mobile": structure.mobile,
        "masses": structure.masses,
        "charges": structure.charges,
        "pairs": bonds.pairs,
        "shifts": bonds.shifts,
        "lengths": bonds.lengths,
    }
    columns = atoms.arrays
    words = [name for name, values in columns.items() if values.dtype.hasobject]  # as ASE reads them
    for number, (name, values) in enumerate(columns.items()):
        arrays[f"column_{number}"] = kept = values.astype(str) if name in words else values
        is_whole = name not in words or (set(map(type, values.flat)) == {str} and (kept.astype(object) == values).all())
        if not isinstance(name, str) or kept.dtype.kind not in KINDS or not is_whole:
            raise Unkeepable(f"column {str(name)[:40]} is of type {values.dtype}")
    info = [[_encoded(name, arrays), _encoded(value, arrays)] for name, value in atoms.info.items()]
    meta = {
        "format": FORMAT,
        "digest": digest,
        "reading": dict(reading),
        "columns": list(columns),
        "words": words,
        "info": info,
        "has_velocities": structure.has_velocities,
    }
    npz.write(path, meta, arrays)


def read_kept(path: Path) -> Kept:
    """Read as untrusted: what it gives can be run, whoever wrote it.

    Raises:
        Damaged: the file is not whole, or holds no structure.
        InputError: it is one of another version.
    """
    meta, arrays = npz.read(path, "structure", FORMAT)
    try:
        _demand(isinstance(meta, dict), "its description holds no names")
        _demand(isinstance(meta.get("digest"), str), "it does not tell what file it was")
        _demand(isinstance(meta.get("reading"), dict), "it does not tell how the file was read")
        atoms = _atoms(meta, arrays)
        n = len(atoms)
        mobile = _of(arrays, "mobile", "b", (n, 3))
        masses, charges = _of(arrays, "masses", "f", (n,)), _of(arrays, "charges", "f", (n,))
        _check(atoms, masses, charges, Place(str(path)))
        bonds = _bonds(arrays, n)
        has_velocities = "momenta" in atoms.arrays
        _demand(meta.get("has_velocities") is has_velocities, "its momenta are missing")
    except InputError as error:
        raise Damaged(str(error)) from error
    except Exception as error:  # of ASE and NumPy, which trip over many things
        fault = str(error)[:200].rstrip(".") or type(error).__name__
        raise Damaged(f"{path} holds no structure to go on with: {fault}.") from error
    atoms.set_constraint(constraints_of(mobile))
    structure = Structure(str(path), atoms, masses, charges, mobile, bonds, has_velocities, ())
    return Kept(structure, meta["digest"], meta["reading"])


def _atoms(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Atoms:
    from ase import Atoms

    names, info = meta["columns"], meta["info"]
    _demand(isinstance(names, list) and all(isinstance(name, str) for name in names), "its columns have no names")
    _demand(len(set(names)) == len(names) and {"numbers", "positions"} <= set(names), "its columns are not those")
    columns = {name: arrays[f"column_{number}"] for number, name in enumerate(names)}
    n = len(columns["numbers"])
    for name, values in columns.items():
        _demand(values.dtype.kind in KINDS, f"column {name[:40]} is of type {values.dtype}")
        _demand(values.ndim > 0 and len(values) == n, f"column {name[:40]} has shape {values.shape}")
    numbers = columns["numbers"]
    _demand(numbers.ndim == 1 and numbers.dtype.kind in "iu", "its atomic numbers are none")
    for name, shape in (("positions", (n, 3)), ("momenta", (n, 3)), ("masses", (n,)), ("initial_charges", (n,))):
        if name in columns:
            _of(columns, name, "f", shape)
    for name in meta["words"]:
        _demand(columns[name].dtype.kind == "U", f"column {name[:40]} is of no words")
        columns[name] = columns[name].astype(object)
    _demand(isinstance(info, list), "its info is no list")
    atoms = Atoms(cell=_of(arrays, "cell", "f", (3, 3)), pbc=_of(arrays, "pbc", "b", (3,)))
    atoms.arrays = columns
    atoms.info = {_decoded(name, arrays): _decoded(value, arrays) for name, value in info}
    return atoms


def _check(atoms: Atoms, masses: np.ndarray, charges: np.ndarray, place: Place) -> None:
    """As a structure's file is checked; atoms may have come close meanwhile, and that these did not is known."""
    from mdrun.structures import checks

    checks.check_numbers(atoms, place)
    checks.check_finite(atoms, atoms.positions, "position", place, limit=checks.FARTHEST)
    for values, what in ((masses, "mass"), (charges, "charge")):
        checks.check_finite(atoms, values, what, place)
    if "momenta" in atoms.arrays:
        checks.check_finite(atoms, atoms.arrays["momenta"], "momentum", place)
    checks.check_masses(atoms, masses, place)
    checks.check_cell(atoms.cell.array, atoms.pbc, place)


def _bonds(arrays: dict[str, np.ndarray], n_atoms: int) -> Bonds:
    lengths = _of(arrays, "lengths", "f", (None,))
    pairs, shifts = _of(arrays, "pairs", "i", (len(lengths), 2)), _of(arrays, "shifts", "i", (len(lengths), 3))
    is_there = (pairs >= 0) & (pairs < n_atoms)
    _demand(bool(is_there.all()) and bool((pairs[:, 0] != pairs[:, 1]).all()), "its bonds are between no atoms of it")
    _demand(bool((np.abs(shifts) < FARTHEST_IMAGE).all()), "its bonds reach too far")
    _demand(bool(np.isfinite(lengths).all() and (lengths > 0).all()), "its bonds have no lengths")
    return make_bonds(pairs, shifts, lengths)


def _of(arrays: dict[str, np.ndarray], name: str, kind: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """The array of that name, of a kind of NumPy's and 8 bytes wide but for flags; None in ``shape`` for any length."""
    values = arrays[name]
    fits = values.ndim == len(shape) and all(b in (a, None) for a, b in zip(values.shape, shape, strict=True))
    is_kind = values.dtype.kind == kind and values.dtype.isnative and (kind == "b" or values.itemsize == 8)
    _demand(fits and is_kind, f"{name} is of type {values.dtype} and shape {values.shape}")
    return values


def _encoded(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """As JSON has it: what it lacks in a list that begins with the kind, arrays and NumPy's numbers beside it."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in KINDS:
        name = f"info_{len(arrays)}"
        arrays[name] = np.asarray(value)
        return ["array" if isinstance(value, np.ndarray) else "number", name]
    if type(value) in (list, tuple):
        return [type(value).__name__, *(_encoded(item, arrays) for item in value)]
    if type(value) is dict:
        return ["dict", *([_encoded(k, arrays), _encoded(v, arrays)] for k, v in value.items())]
    if type(value).__name__ == "Spacegroup":  # ASE's, which takes a while to import
        return ["spacegroup", value.no, value.setting]
    raise Unkeepable(f"it holds a {type(value).__name__} among what it says of the whole frame")


def _decoded(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if type(value) in PLAIN:
        return value
    kind, *rest = value
    if kind in ("array", "number"):
        values = arrays[rest[0]]
        _demand(values.dtype.kind in KINDS and (kind == "array" or values.ndim == 0), "its info is of no known type")
        return values if kind == "array" else values[()]
    if kind == "spacegroup":
        from ase.spacegroup import Spacegroup

        number, setting = rest
        _demand(type(number) is int and type(setting) is int, "its space group is none")
        return Spacegroup(number, setting)
    if kind == "dict":
        return {_decoded(k, arrays): _decoded(v, arrays) for k, v in rest}
    _demand(kind in ("list", "tuple"), "its info is of no known type")
    items = [_decoded(item, arrays) for item in rest]
    return items if kind == "list" else tuple(items)


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
