"""H5MD files: the layout of P. de Buyl, P. H. Colberg and F. Höfling, Comput. Phys. Commun. 185, 1546 (2014), version
1.1, https://nongnu.org/h5md, with the module ``units``, as mdrun writes it: what is where, and how it is read.

Units are those of the set that MDAnalysis reads: Angstrom, ps, Angstrom ps-1, kJ mol-1 Angstrom-1, u; energies eV.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mdrun import units
from mdrun.errors import InputError
from mdrun.structures.damaged_hdf5 import as_closed, check_heaps
from mdrun.structures.frame import Frame, Part, Place, asking_ase, constraints_of, missing_frame, several_frames

if TYPE_CHECKING:
    import h5py
    from ase import Atoms

GROUP = "particles/trajectory"  # the name that MDAnalysis looks under where it is given no topology
KJ_MOL = 96.48533289  # in one eV; CODATA 2014, as mdrun.units
# By name: ASE's column, unit, and what one of ASE's units is in it.
VECTORS = {
    "position": ("positions", "Angstrom", 1.0),
    "velocity": ("velocities", "Angstrom ps-1", units.PS),
    "force": ("forces", "kJ mol-1 Angstrom-1", KJ_MOL),
}
CONSTANTS = {"mass": ("masses", "u"), "charge": ("initial_charges", "e"), "move_mask": ("move_mask", None)}


def series_of(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Every dataset ``value`` that has a row for each frame, by its full name."""
    found = {}
    for parent in (GROUP, f"{GROUP}/box", "observables"):
        for name in file.get(parent, ()):
            if (dataset := file.get(f"{parent}/{name}/value")) is not None:
                found[f"{parent}/{name}/value"] = dataset
    return found


def open_h5md(path: str | os.PathLike[str]) -> h5py.File:
    """The file to read, one too that a killed process left in its mode for writing.

    Raises:
        InputError: it is no H5MD of mdrun's.
    """
    import h5py

    try:
        check_heaps(path)
        # No lock: the run that writes the file would fail at one.
        file = h5py.File(as_closed(path) or path, "r", locking=False)
    except OSError as error:
        raise InputError(f"{path} can't be read as H5MD: {str(error).rstrip('.')}.") from error
    try:
        _check_layout(file, path)
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        file.close()
        raise InputError(f"{path} is damaged: {str(error).rstrip('.')}.") from error
    except InputError:
        file.close()
        raise
    return file


def _check_layout(file: h5py.File, path: str | os.PathLike[str]) -> None:
    """Raises:
    InputError: what is read is not there, not here, or in another unit.
    """
    import h5py

    for name in (f"{GROUP}/position/step", f"{GROUP}/position/value", f"{GROUP}/species"):
        if not isinstance(file.get(name), h5py.Dataset):
            raise InputError(f"{path} is HDF5, but no H5MD as mdrun writes it: it has no {name}.")
    for name in _names_of(file):
        dataset = file.get(name)
        if isinstance(dataset, h5py.Dataset) and (dataset.file != file or dataset.external or dataset.is_virtual):
            raise InputError(f"{path}: {name} is in another file, which is not followed.")
    for name, (_, unit, _) in VECTORS.items():
        said = getattr(file.get(f"{GROUP}/{name}/value"), "attrs", {}).get("unit", unit)
        if (said.decode("utf-8", "replace") if isinstance(said, bytes) else said) != unit:
            raise InputError(f"{path}: {GROUP}/{name} is in {str(said)[:40]}; only {unit} is read.")


def _names_of(file: h5py.File) -> Iterator[str]:
    """All that is read."""
    for parent in (GROUP, f"{GROUP}/box", f"{GROUP}/position", "observables"):
        group = file.get(parent)
        if hasattr(group, "keys"):
            yield from (f"{parent}/{name}" for name in group)
            yield from (f"{parent}/{name}/value" for name in group)


def parts_of_h5md(path: str) -> Iterator[Part]:
    """The frames, one after the other; the file is open until the last was asked for.

    Raises:
        InputError: it is no H5MD of mdrun's.
    """
    with open_h5md(path) as file:
        for k in range(len(file[f"{GROUP}/position/step"])):
            yield Part(partial(_atoms, file, k, path))


def read_h5md(path: str, index: int | None) -> Frame:
    """Frame ``index``, the last where it is None.

    Raises:
        InputError: it is no H5MD of mdrun's, or has no such frame.
    """
    with open_h5md(path) as file:
        n_frames = len(file[f"{GROUP}/position/step"])
        number = -1 if index is None else index
        if not -n_frames <= number < n_frames:
            raise missing_frame(path, number, n_frames)
        number %= n_frames
        atoms = _atoms(file, number, path)
    del atoms.arrays["id"]
    place = Place(path, f"frame {number}")
    return Frame(atoms, place, several_frames(place, n_frames) if index is None else [])


def _atoms(file: h5py.File, k: int, path: str) -> Atoms:
    """Frame ``k`` with its column ``id``, and energy, forces and stress in a calculator."""
    with asking_ase(path):  # limits the memory, as for any file
        try:
            return _read(file, k)
        except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
            raise InputError(f"{path}, frame {k}: can't be read: {str(error).rstrip('.')}.") from error


def _read(file: h5py.File, k: int) -> Atoms:
    from ase import Atoms
    from ase.calculators.singlepoint import SinglePointCalculator
    from ase.stress import full_3x3_to_voigt_6_stress

    group, series = file[GROUP], series_of(file)

    def value(name: str) -> Any:
        """NaN stands where a frame did not have it."""
        dataset = series.get(name)
        row = None if dataset is None or k >= len(dataset) else np.asarray(dataset[k], float)
        return row if row is not None and np.isfinite(row).all() else None

    edges = value(f"{GROUP}/box/edges/value")
    pbc = [b in ("periodic", b"periodic") for b in group["box"].attrs["boundary"]]
    position = np.asarray(series[f"{GROUP}/position/value"][k], float)
    atoms = Atoms(numbers=group["species"][:], positions=position, cell=edges, pbc=pbc)
    atoms.set_array("id", group["id"][:] if "id" in group else np.arange(len(atoms)))
    for name in ("mass", "charge"):
        if name in group:
            atoms.set_array(CONSTANTS[name][0], group[name][:])
    if (velocity := value(f"{GROUP}/velocity/value")) is not None:
        atoms.set_array("momenta", velocity / units.PS * atoms.get_masses()[:, None])
    if "move_mask" in group:
        mask = group["move_mask"][:].astype(bool).reshape(len(atoms), -1)
        atoms.set_constraint(constraints_of(np.broadcast_to(mask, (len(atoms), 3))))
    atoms.info["step"] = int(group["position/step"][k])
    if np.isfinite(time_ps := float(group["position/time"][k])):
        atoms.info["time_ps"] = time_ps
    force, stress = value(f"{GROUP}/force/value"), value("observables/stress/value")
    energy = value("observables/potential_energy/value")
    results = {
        "energy": None if energy is None else float(energy),
        "forces": None if force is None else force / KJ_MOL,
        "stress": None if stress is None else full_3x3_to_voigt_6_stress(stress),
    }
    if any(found is not None for found in results.values()):
        atoms.calc = SinglePointCalculator(atoms, **{n: v for n, v in results.items() if v is not None})
    return atoms
