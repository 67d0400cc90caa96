"""The one door to structure files: the format is found, and what ASE's readers pass on in silence is refused or told.

Files are untrusted. Formats are read from a list: those whose readers unpickle nothing, evaluate nothing, start no
program, call no server and open no other file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mdrun.errors import InputError
from mdrun.structures.extxyz import read_extxyz
from mdrun.structures.frame import (
    Frame,
    Part,
    Place,
    asking_ase,
    missing_frame,
    opened,
    read_with_ase,
    several_frames,
)
from mdrun.structures.h5md import read_h5md
from mdrun.structures.lammps import dump_options, read_lammps_data

if TYPE_CHECKING:
    from ase import Atoms

REFUSED = {
    "bundletrajectory": "it is a directory; convert the frame to extxyz",
    "castep-cell": "ASE starts the CASTEP program to read it; convert it to extxyz or cif",
    "cp2k-restart": "ASE never ends reading one that is cut off; convert it to extxyz",
    "gpw": "the GPAW program would have to read it; convert it to extxyz",
    "lammps-dump-binary": "it says neither its columns nor its elements; write a text dump",
    "mysql": "it is a server, not a file",
    "onetep-in": "it names other files, which would be read; convert it to extxyz",
    "octopus-in": "it names other files, which would be read; convert it to extxyz",
    "postgresql": "it is a server, not a file",
    "py": "it is program text",
    "xtd": "it names other files, which would be read; convert it to extxyz",
}
# Formats whose readers were searched for pickle, eval, programs started and other files opened, and have none of it.
# What ASE gains waits for the same.
READ = frozenset(  # one a word
    """abinit-in abinit-out aims aims-output castep-castep castep-geom castep-md cfg cif cjson cmdft crystal cube
    dacapo-text db dlp-history dlp4 dmol-arc dmol-car dmol-incoor eon espresso-in espresso-out extxyz gamess-us-out
    gaussian-in gaussian-out gen gpaw-out gpumd gromacs gromos h5md json jsv lammps-data lammps-dump-text magres mol
    mustem netcdftrajectory nwchem-in nwchem-out orca-output prismatic proteindatabank qbox res rmc6f runnerdata sdf
    siesta-xv struct sys traj turbomole v-sim vasp vasp-out vasp-xdatcar vasp-xml wout xsd xsf xyz""".split()  # noqa: SIM905
)
FRAME_BY_FRAME = ("extxyz", "traj", "h5md")
MOST_BYTES = 4 * 1024**3  # of a file that is read as a whole


def read_frame(
    path: str, file_format: str | None = None, index: int | None = None, species: Sequence[str] | None = None
) -> Frame:
    """Read one frame, the last where ``index`` is None.

    Raises:
        InputError: no such file, empty, not parsable, not such a frame, or readable only by guessing.
    """
    check_file(path)
    file_format = file_format or _guessed_format(path)
    _check_format(path, file_format)
    if species and file_format not in ("lammps-data", "lammps-dump-text"):
        raise InputError(
            f"--species names the atom types of LAMMPS files, but {path} is read as {file_format}, "
            "which names its elements itself. Leave the option out."
        )
    if file_format == "extxyz":
        frame = read_extxyz(path, index)
    elif file_format == "traj":
        frame = _read_traj(path, index)
    elif file_format == "h5md":
        frame = read_h5md(path, index)
    elif file_format == "lammps-data":
        frame = read_lammps_data(path, index, species)
    elif file_format == "lammps-dump-text":
        frame = read_with_ase(path, file_format, index, **dump_options(path, species))
    else:
        if file_format == "vasp":
            _check_poscar_counts(path)
        frame = read_with_ase(path, file_format, index)
        if file_format == "vasp":
            _check_poscar(path, len(frame.atoms))
    return frame


def _check_format(path: str, file_format: str) -> None:
    """Refuse formats that no list names, and files too large to be read as a whole."""
    from ase.io.formats import ioformats

    if file_format in REFUSED:
        raise InputError(f"{path} is not read as {file_format}: {REFUSED[file_format]}.")
    if file_format not in READ:
        unknown = "" if file_format in ioformats else f"ASE knows no format '{file_format[:40]}'; "
        raise InputError(
            f"{path} is not read as {file_format[:40]}: {unknown}mdrun reads {', '.join(sorted(READ))}. "
            "Convert the file to extxyz (`ase convert`), or name its format with --format."
        )
    size = os.path.getsize(path)
    if size > MOST_BYTES and file_format not in FRAME_BY_FRAME:
        raise InputError(
            f"{path} has {size / 1024**3:.1f} GiB; files of the format {file_format} are read as a whole, and only "
            f"up to {MOST_BYTES // 1024**3} GiB. Convert it to extxyz."
        )


def check_file(path: str) -> None:
    """Raises:
    InputError: there is no file with something in it that can be read.
    """
    if not os.path.exists(path):
        raise InputError(f"there is no file {path}.")
    if not os.path.isfile(path):
        kind = "a directory" if os.path.isdir(path) else "not a regular file"
        raise InputError(f"{path} is {kind}; give the file of a structure.")
    if os.path.getsize(path) == 0:
        raise InputError(f"{path} is empty.")
    try:
        with open(path, "rb"):
            pass
    except OSError as problem:
        raise InputError(f"{path} cannot be opened: {problem.strerror}.") from problem


def _guessed_format(path: str) -> str:
    """ASE's guess, but for LAMMPS data files, which ASE never recognizes and takes for others by their name."""
    from ase.io.formats import UnknownFileTypeError, filetype

    if path.lower().endswith(".h5md"):
        return "h5md"
    with asking_ase(path):
        with opened(path) as fd:
            head = fd.read(4096).decode("utf-8", "replace")
        if re.search(r"^\s*\d+\s+atoms\b", head, re.M) and re.search(
            r"^\s*\d+\s+atom\s+types\b|\bxlo\s+xhi\b", head, re.M
        ):
            return "lammps-data"
        try:
            return filetype(path)
        except UnknownFileTypeError:
            raise InputError(
                f"{path}: neither its name nor its content says what format it has. Name it with --format."
            ) from None


def _read_traj(path: str, index: int | None) -> Frame:
    from ase.io.trajectory import TrajectoryReader

    notes: list[str] = []
    with asking_ase(path, notes), opened(path) as fd:
        reader = TrajectoryReader(fd)
        number, n_frames = -1 if index is None else index, len(reader)
        if not -n_frames <= number < n_frames:
            raise missing_frame(path, number, n_frames)
        number %= n_frames
        atoms = reader[number]
    place = Place(path, f"frame {number}")
    return Frame(atoms, place, notes + (several_frames(place, n_frames) if index is None else []))


def _check_poscar_counts(path: str) -> None:
    """Refuse counts of more atoms than there are lines: ASE would make a list of them before it looks."""
    with asking_ase(path), opened(path) as fd:
        lines = [line.split(b"!")[0].split() for line in fd]
    for words in lines[5:7]:
        if words and all(word.isdigit() for word in words):
            n_atoms = sum(int(word[:18]) for word in words)
            if n_atoms > len(lines):
                raise InputError(f"{path} declares {n_atoms} atoms but has only {len(lines)} lines.")
            return


def parts_of_traj(path: str) -> Iterator[Part]:
    """The frames of a file of ASE's, one after the other; it is open until the last was asked for.

    Raises:
        InputError: it is no such file.
    """
    from ase.io.trajectory import TrajectoryReader

    def read(number: int) -> Atoms:
        with asking_ase(path):
            return reader[number]

    with open(path, "rb") as fd:
        with asking_ase(path):
            reader = TrajectoryReader(fd)
            n_frames = len(reader)
        for number in range(n_frames):
            yield Part(partial(read, number))


def _check_poscar(path: str, n_atoms: int) -> None:
    """Refuse flags that ASE takes for T in silence, and velocities along cell vectors, which it takes for Å/fs."""
    with asking_ase(path), opened(path) as fd:
        lines = [line.decode("utf-8", "replace") for line in fd]
    counts = 5 if lines[5].split()[0].isdigit() else 6
    selective = lines[counts + 1].strip()[:1].lower() == "s"
    first = counts + (3 if selective else 2)
    if selective:
        for number, line in enumerate(lines[first : first + n_atoms], first + 1):
            flags = line.split()[3:6]
            if len(flags) != 3 or not set(flags) <= {"T", "F"}:
                raise InputError(f"{path}, line {number}: the flags that free or fix an atom must be T or F.")
    if "".join(lines[first + n_atoms : first + n_atoms + 1]).strip()[:1].lower() == "d":
        raise InputError(f"{path}: velocities along cell vectors (Direct) are not read; give them in Å/fs.")
