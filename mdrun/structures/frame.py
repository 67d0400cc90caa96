"""A frame of a structure file, where it stands, and what is said when it cannot be had."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mdrun.errors import InputError

if TYPE_CHECKING:
    from ase import Atoms

SPARE_BYTES = 4 * 1024**3  # what any reader may ask for, with the libraries that it loads
BYTES_A_THREAD = 64 * 1024**2  # that the C library sets aside for each thread of those
EXPANSION = 200  # bytes of memory for each of a file, which may be compressed


class Place(NamedTuple):
    """Where an atom stands: the file and, in files that can hold several, the frame."""

    path: str
    frame: str = ""

    def __str__(self) -> str:
        return f"{self.path}, {self.frame}" if self.frame else self.path

    @property
    def clause(self) -> str:
        """For the middle of a sentence."""
        return f"{self}," if self.frame else self.path


class Part(NamedTuple):
    """A frame of a file that holds many, parsed when it is asked for.

    Attributes:
        read: the frame with whatever the file says of it; raises InputError where it can't be read.
        cut_off: why it is not whole, as the last one of a killed run may be; empty where it is.
    """

    read: Callable[[], Atoms]
    cut_off: str = ""


@dataclass
class Frame:
    """What the file gave, before it is checked."""

    atoms: Atoms
    place: Place
    notes: list[str] = field(default_factory=list)


@contextmanager
def asking_ase(path: str, notes: list[str] | None = None) -> Iterator[None]:
    """Whatever a reader of ASE trips over becomes an InputError; what it warns of is collected in ``notes``."""
    with warnings.catch_warnings(record=True) as heard, _memory_in_proportion(path):
        warnings.simplefilter("always")
        try:
            yield
        except InputError:
            raise
        except MemoryError as problem:
            raise InputError(
                f"{path} cannot be read: it asks for far more memory than a file of its size needs. "
                "Check the counts that it gives, or name its format with --format."
            ) from problem
        except Exception as problem:
            reason = (str(problem).strip().splitlines() or ["no reason given"])[0][:300]
            if isinstance(problem.__cause__, StopIteration) or isinstance(problem, StopIteration):
                reason = "the file ends too early"
            raise InputError(
                f"{path} cannot be read: {type(problem).__name__}: {reason.rstrip('.')}. "
                "Check the file, or name its format with --format."
            ) from problem
    if notes is not None:
        told = dict.fromkeys(str(w.message).strip() for w in heard if w.category is UserWarning)
        notes += [f"{path}: {' '.join(text.split())[:300]}" for text in list(told)[:3]]


@contextmanager
def _memory_in_proportion(path: str) -> Iterator[None]:
    """Limit what this process may ask for, in proportion to the file: a wrong count must not exhaust the machine."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = os.path.getsize(path)
    except OSError:  # no Linux, where the limit would not hold either
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + SPARE_BYTES + (os.cpu_count() or 1) * BYTES_A_THREAD + size * EXPANSION
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([most, *limits]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def opened(path: str) -> IO[bytes]:
    """The file in binary, decompressed if its name says so."""
    from ase.io.formats import open_with_compression

    return open_with_compression(path, "rb")


def missing_frame(path: str, index: int, n_frames: int) -> InputError:
    if n_frames == 0:
        return InputError(f"{path} holds no frame.")
    held = "one frame, number 0" if n_frames == 1 else f"{n_frames} frames, 0 to {n_frames - 1}"
    return InputError(f"{path} has no frame {index}: it holds {held}. Choose with --index.")


def several_frames(place: Place, n_frames: int) -> list[str]:
    """The note for a frame that nobody chose."""
    if n_frames == 1:
        return []
    return [f"{place.path}: {place.frame} of {n_frames} (the last); choose with --index"]


def read_with_ase(path: str, file_format: str, index: int | None, **options: Any) -> Frame:
    """Any other format. Frames are not counted: most readers would have to hold all of them for that."""
    from ase.io import iread
    from ase.io.formats import get_ioformat, ioformats

    if file_format not in ioformats:
        raise InputError(f"{path}: ASE knows no format '{file_format}'. `ase info --formats` lists those it knows.")
    options |= {"format": file_format, "parallel": False, "do_not_split_by_at_sign": True}
    notes: list[str] = []
    with asking_ase(path, notes):
        if get_ioformat(file_format).single:
            if index not in (None, 0, -1):
                raise missing_frame(path, index, 1)
            return Frame(next(iread(path, -1, **options)), Place(path), notes)
        if index is not None:
            frames = list(iread(path, slice(index, index + 1 or None), **options))
            if len(frames) == 0:
                raise InputError(f"{path} has no frame {index}. Choose another with --index.")
            place = Place(path, f"frame {index}")
        else:
            frames = list(iread(path, slice(-2, None), **options))
            if len(frames) == 0:
                raise missing_frame(path, -1, 0)
            place = Place(path, "last frame")
            if len(frames) > 1:
                notes.append(f"{path} holds several frames, of which the last is used; choose with --index")
    return Frame(frames[-1], place, notes)


def ends_within_a_row(fd: IO[bytes], offset: int, n_lines: int | None = None) -> bool:
    """Whether the last of ``n_lines`` from ``offset`` on lacks its end and is shorter than the one before.

    A file whose program ends it without a newline is whole; rows of one width are what all that is written here has.
    """
    fd.seek(offset)
    before, last = b"", b""
    for line in islice(fd, n_lines):
        before, last = last, line
    return not last.endswith(b"\n") and len(last) < len(before.rstrip(b"\r\n"))


def constraints_of(mobile: np.ndarray) -> list[object]:
    """At most eight constraints of ASE, one for each set of fixed components."""
    from ase.constraints import FixAtoms, FixCartesian

    kinds = (~mobile) @ np.array([4, 2, 1])
    found: list[object] = []
    for kind in np.unique(kinds[kinds > 0]):
        atoms = np.flatnonzero(kinds == kind)
        mask = [bool(kind & bit) for bit in (4, 2, 1)]
        found.append(FixAtoms(indices=atoms) if all(mask) else FixCartesian(atoms, mask=mask))
    return found
