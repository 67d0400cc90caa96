"""LAMMPS data files and text dumps: types become elements by what the file or the user says, never by number."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from io import StringIO
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from mdrun.errors import InputError
from mdrun.structures.frame import Frame, Part, asking_ase, opened, read_with_ase

if TYPE_CHECKING:
    from ase import Atoms

UNITS_READ = ("metal", "real")
MOST_LINE = 4096  # characters


def read_lammps_data(path: str, index: int | None, species: Sequence[str] | None) -> Frame:
    """Elements by ``species``, else by type labels, else by masses; never by type number as ASE would."""
    from ase.data import chemical_symbols

    with asking_ase(path):
        header, sections, n_lines = _scan_lammps_data(path)
        masses = {kind: float(mass) for kind, mass in sections["Masses"].items()}
    n_atoms, n_types = header.get("atoms", 0), header.get("types", 0)
    if n_atoms > n_lines:
        raise InputError(f"{path} declares {n_atoms} atoms but has only {n_lines} lines.")
    if "box" not in header:
        raise InputError(f"{path} gives no box (lines like '0 20 xlo xhi').")
    numbers, note = _lammps_elements(path, species, sections["Atom Type Labels"], masses)
    for kind in range(1, n_types + 1):
        if kind not in numbers:
            source = "--species" if species else "the file"
            raise InputError(f"{path} has {n_types} atom types, but {source} names no element for type {kind}.")
    # ASE sorts ids without sorting the labels along with them, so the order is made here.
    frame = read_with_ase(
        path, "lammps-data", index, Z_of_type=numbers, sort_by_id=False, units=_known_units(path, header["units"])
    )
    ids = frame.atoms.arrays["id"]
    if len(np.unique(ids)) < len(ids):
        raise InputError(f"{path}: two atoms have the same id. Check the program that wrote the file.")
    for topology in ("bonds", "angles", "dihedrals"):
        frame.atoms.arrays.pop(topology, None)
    frame.atoms = frame.atoms[np.argsort(ids)]
    if masses:  # ASE's conversion of units has changed their last digits
        frame.atoms.set_masses([masses[kind] for kind in frame.atoms.arrays["type"].tolist()])
    frame.notes.append(note)
    for kind, mass in masses.items():
        usual = _usual_masses()[numbers[kind]] if kind in numbers else mass
        if abs(mass - usual) > 0.5:
            frame.notes.append(
                f"{path}: type {kind} is {chemical_symbols[numbers[kind]]}, but its mass is {mass:g} "
                f"and not {usual:g} amu; the mass of the file is used"
            )
    return frame


def _scan_lammps_data(path: str) -> tuple[dict[str, Any], dict[str, dict[int, str]], int]:
    """Counts and unit of the header, the short sections that name types, and the number of lines."""
    header: dict[str, Any] = {"units": "metal"}
    sections: dict[str, dict[int, str]] = {"Masses": {}, "Atom Type Labels": {}}
    section, n_lines = "", 0
    with opened(path) as fd:
        for n_lines, raw in enumerate(fd, 1):
            if len(raw) > MOST_LINE:  # ASE's search for words in it would take the square of its length
                raise InputError(f"{path}, line {n_lines}: it has {len(raw)} characters, more than {MOST_LINE}.")
            if section and section not in sections and not raw[:1].isalpha():
                continue
            bare, _, comment = raw.decode("utf-8", "replace").partition("#")
            if n_lines == 1:  # the title, where write_data says the units
                said = re.search(r"units\s*=\s*(\w+)", bare + comment)
                header["units"] = said[1] if said else "metal"
                continue
            words = bare.split()
            if not words:
                continue
            if words[0][0].isupper():
                section = " ".join(words)
            elif section in sections and len(words) > 1:
                sections[section][int(words[0])] = words[1]
            elif not section and words[1:] == ["atoms"]:
                header["atoms"] = int(words[0])
            elif not section and words[1:] == ["atom", "types"]:
                header["types"] = int(words[0])
            elif not section and words[-1] in ("xhi", "avec"):
                header["box"] = True
    return header, sections, n_lines


def _lammps_elements(
    path: str, species: Sequence[str] | None, labels: dict[int, str], masses: dict[int, float]
) -> tuple[dict[int, int], str]:
    """Atomic number of each type, and the sentence that says where it comes from."""
    from ase.data import atomic_numbers, chemical_symbols

    if species:
        named, source = dict(enumerate(species, 1)), "--species"
        for symbol in species:
            if atomic_numbers.get(symbol, 0) == 0:
                raise InputError(f"--species: '{symbol}' is no chemical element.")
        numbers = {kind: atomic_numbers[symbol] for kind, symbol in named.items()}
    elif labels and all(atomic_numbers.get(label, 0) for label in labels.values()):
        numbers, source = {kind: atomic_numbers[label] for kind, label in labels.items()}, "their labels"
    elif masses:
        usual, source, numbers = _usual_masses(), "their masses", {}
        for kind, mass in masses.items():
            nearest = int(np.argmin(np.abs(usual - mass)))
            if not abs(usual[nearest] - mass) < 0.5:
                raise InputError(
                    f"{path}: type {kind} has mass {mass:g}, which is that of no element. "
                    "Name the elements of types 1, 2, .. with --species, for example --species Ar,O."
                )
            numbers[kind] = nearest
    else:
        raise InputError(
            f"{path} does not say which elements its atom types are: it has neither masses nor labels. "
            "Name those of types 1, 2, .. with --species, for example --species Ar,O."
        )
    listed = ", ".join(f"{kind} = {chemical_symbols[z]}" for kind, z in sorted(numbers.items()))
    return numbers, f"{path}: elements of the atom types by {source}: {listed}; boundaries taken as periodic"


def _usual_masses() -> np.ndarray:
    """Standard atomic weights by atomic number; far from any mass for 0, which is no element."""
    from ase.data import atomic_masses

    return np.concatenate([[-1e9], atomic_masses[1:]])


def _known_units(path: str, units: str) -> str:
    if units not in UNITS_READ:
        raise InputError(f"{path} is in LAMMPS units '{units}'; only {' and '.join(UNITS_READ)} are read.")
    return units


def dump_options(path: str, species: Sequence[str] | None) -> dict[str, Any]:
    """What ASE must be told about a text dump; types alone would become H, He, ..."""
    columns: list[str] | None = None
    units, most, n_lines = "metal", 0, 0
    with asking_ase(path), opened(path) as fd:
        for raw in fd:
            n_lines += 1
            if not raw.startswith(b"ITEM:"):
                continue
            line = raw.decode("utf-8", "replace")
            if line.startswith("ITEM: UNITS"):
                units = next(fd).decode("utf-8", "replace").strip()
            elif line.startswith("ITEM: NUMBER OF ATOMS"):
                most = max(most, int(next(fd)))
            elif line.startswith("ITEM: ATOMS") and columns is None:
                columns = line.split()[2:]
    if most > n_lines:  # ASE would count to it
        raise InputError(f"{path} declares {most} atoms but has only {n_lines} lines.")
    columns = columns or []
    options: dict[str, Any] = {"units": _known_units(path, units)}
    named = "element" in columns or "mass" in columns
    if species and named:
        raise InputError(f"{path} names its elements itself. Leave --species out.")
    if not species and not named:
        raise InputError(
            f"{path} does not say which elements its atom types are. "
            "Name those of types 1, 2, .. with --species, for example --species Ar,O."
        )
    return options | ({"specorder": list(species)} if species else {})


def parts_of_dump(path: str, species: Sequence[str] | None) -> Iterator[Part]:
    """The frames of a text dump, one after the other; the file is open until the last was asked for.

    Raises:
        InputError: units or elements are not known.
    """
    options = dump_options(path, species)
    with open(path, "rb") as ahead, open(path, "rb") as fd:
        begin = n_atoms = 0
        for raw in ahead:
            if raw.startswith(b"ITEM: NUMBER OF ATOMS"):
                count = next(ahead, b"").strip()
                n_atoms = int(count) if count.isdigit() else sys.maxsize
            if not raw.startswith(b"ITEM: ATOMS"):
                continue
            n_rows = sum(1 for _ in islice(ahead, n_atoms))
            end, cut_off = ahead.tell(), f"it holds {n_rows} of {n_atoms} atoms" if n_rows < n_atoms else ""
            if not cut_off and not _ends_a_line(fd, end):
                cut_off = "its last row is not whole"
            yield Part(partial(_read_dump, fd, begin, end, path, options), cut_off)
            begin = end
        if ahead.tell() > begin:
            yield Part(partial(_read_dump, fd, begin, ahead.tell(), path, options), "it ends in its header")


def _ends_a_line(fd: IO[bytes], end: int) -> bool:
    """Rows of a dump differ in width: nothing but the newline, which LAMMPS always writes, says that one is whole."""
    fd.seek(max(end - 1, 0))
    return fd.read(1) == b"\n"


def _read_dump(fd: IO[bytes], begin: int, end: int, path: str, options: dict[str, Any]) -> Atoms:
    """One frame by ASE, with what it leaves out: ``id`` from 0, masses, step and time; without its energy of zero."""
    from ase.io.lammpsrun import read_lammps_dump_text

    fd.seek(begin)
    text = fd.read(end - begin).decode("utf-8", "replace")
    with asking_ase(path):
        atoms = read_lammps_dump_text(StringIO(text), index=0, **options)
        head, _, rest = text.partition("ITEM: ATOMS")
        labels, _, rows = rest.partition("\n")
        columns = labels.split()
        ids = np.arange(len(atoms))
        order = ids
        if "id" in columns:
            ids = np.loadtxt(StringIO(rows), np.int64, usecols=columns.index("id"), ndmin=1) - 1
            order = np.argsort(ids)
        if "mass" in columns:
            velocities = atoms.get_velocities()
            atoms.set_masses(np.loadtxt(StringIO(rows), usecols=columns.index("mass"), ndmin=1)[order])
            if "momenta" in atoms.arrays:  # which ASE made of the masses of the elements
                atoms.set_velocities(velocities)
        atoms.set_array("id", ids[order])
        atoms.arrays.pop("type", None)
        atoms.info["step"] = atoms.info.pop("timestep")
        if time := re.search(r"^ITEM: TIME\s*\n(.*)", head, re.M):
            atoms.info["time_ps"] = float(time[1]) * (1e-3 if options["units"] == "real" else 1.0)
    if atoms.calc is not None:
        atoms.calc.results.pop("energy", None)
    return atoms
