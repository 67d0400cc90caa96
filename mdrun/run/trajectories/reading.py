"""Frames of a trajectory, one after the other: never more than one is held."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mdrun.errors import InputError
from mdrun.run.trajectories.frames import Frame, move_mask
from mdrun.run.trajectories.names import format_of
from mdrun.structures import mobile_components
from mdrun.structures.checks import atom_name, check_numbers
from mdrun.structures.extxyz import parts_of_extxyz
from mdrun.structures.frame import Part, Place
from mdrun.structures.h5md import parts_of_h5md
from mdrun.structures.lammps import parts_of_dump
from mdrun.structures.readers import check_file, parts_of_traj

if TYPE_CHECKING:
    from ase import Atoms


def read_frames(path: Path, frames: slice | None = None, species: Sequence[str] | None = None) -> Iterator[Frame]:
    """The chosen frames.

    Args:
        frames: all where None; a step of 1 or more. Negative bounds count from the last whole frame; text is read
            twice for them.
        species: elements of types 1, 2, .. in a dump that does not say them.

    Raises:
        InputError: no such file, or, after the frames before it, one that is cut off or can't be read.
    """
    check_file(str(path))
    frames = frames or slice(None)
    first, stop, step = frames.start or 0, frames.stop, frames.step or 1
    if first < 0 or (stop or 0) < 0:
        n_whole = sum(not part.cut_off for part in _parts(path, species))
        first, stop, step = frames.indices(n_whole)
    for number, part in itertools.islice(enumerate(_parts(path, species)), first, stop, step):
        if part.cut_off:
            raise InputError(f"{path}, frame {number} is cut off: {part.cut_off}.")
        yield _frame(part.read(), number, path)


def _parts(path: Path, species: Sequence[str] | None) -> Iterator[Part]:
    kind = format_of(path, "the trajectory")
    if species and kind != "dump":
        raise InputError(f"--species names the atom types of a dump, but {path} names its elements itself.")
    if kind == "dump":
        return parts_of_dump(str(path), species)
    return {"extxyz": parts_of_extxyz, "traj": parts_of_traj, "h5md": parts_of_h5md}[kind](str(path))


def _refuse_massless_motion(atoms: Atoms, place: Place) -> None:
    """Formats that keep velocities and those that keep momenta know each other's by the masses."""
    if "momenta" not in atoms.arrays or "masses" not in atoms.arrays:
        return
    masses = atoms.arrays["masses"]
    for i in np.flatnonzero(~((masses > 0) & (masses < np.inf)))[:1]:
        raise InputError(
            f"{atom_name(atoms, i)} in {place.clause} has mass {masses[i]:g}, with which no velocity goes. Give it a "
            "mass above 0, or leave masses or velocities out of the file."
        )


def _frame(atoms: Atoms, number: int, path: Path) -> Frame:
    """A frame of ASE's; its number stands for the step where that is not told."""
    from ase.stress import voigt_6_to_full_3x3_stress

    place = Place(str(path), f"frame {number}")
    check_numbers(atoms, place)
    _refuse_massless_motion(atoms, place)
    info, results = dict(atoms.info), dict(getattr(atoms.calc, "results", {}))
    columns = {name: values for name, values in atoms.arrays.items() if name != "numbers"}
    ids = np.arange(len(atoms))
    if format_of(path, "the trajectory") in ("h5md", "dump"):
        ids = columns.pop("id")
    columns |= move_mask(mobile_components(atoms, place))
    if atoms.calc is not None:
        atoms.calc.reset()  # a calculator of ASE's refers to itself: without this the frame would wait for a collection
    if "forces" in results:
        columns["forces"] = np.asarray(results["forces"])
    if "energy" in results:
        info["energy"] = results["energy"]
    if "stress" in results:
        info["stress"] = voigt_6_to_full_3x3_stress(np.asarray(results["stress"]))
    step, time_ps = info.get("step"), info.get("time_ps")
    step = int(step) if isinstance(step, int | np.integer) and abs(int(step)) < 2**63 else number
    time_ps = float(time_ps) if isinstance(time_ps, int | float | np.number) else float("nan")
    x, y, z = (bool(flag) for flag in atoms.pbc)
    return Frame(step, time_ps, atoms.cell.array, (x, y, z), ids, atoms.numbers, columns, info)
