"""HDF5 files as HDF5 can read them without a hang, whatever happened to them.

One that a process left in its mode for writing is shown as if it had been closed. HDF5's own way to read it (SWMR)
takes what it can't read for something that is being written: it tries a hundred times, and waits twice as long before
each, so that in a file that is damaged too it sleeps for ever.

Where texts are kept, in heaps without a checksum, HDF5 walks from one to the next, and over free space of no size it
walks on the spot: heaps are looked at before.

Superblock and heaps: HDF5 File Format Specification 3.0, sections II.A (versions 2 and 3) and III.E.
"""

from __future__ import annotations

import io
import os
import re
import struct

from mdrun.errors import InputError

SUPERBLOCK = struct.Struct("<8sBBBBQQQQI")  # signature, version, two sizes, flags, four places, checksum
SIGNATURE = b"\x89HDF\r\n\x1a\n"
WORD = 0xFFFFFFFF
HEAP = re.compile(rb"GCOL\x01\0\0\0")  # signature and version
HEADER = struct.Struct("<HHIQ")  # of a text in it: number (0 for free space), references, nothing, size
FIRST = 1024**2  # bytes of a file, in which mdrun's have their heap


class AsClosed(io.FileIO):
    """A file to read with another beginning."""

    def __init__(self, path: str | os.PathLike[str], head: bytes) -> None:
        super().__init__(path, "r")
        self._head = head

    def seek(self, place: int, whence: int = 0, /) -> int:
        try:
            return super().seek(place, whence)
        except (OverflowError, OSError) as error:
            raise OSError(f"no file has a place {place}") from error

    def readinto(self, buffer) -> int:
        at = self.tell()
        n = super().readinto(buffer)
        shown = self._head[at : at + n]
        memoryview(buffer).cast("B")[: len(shown)] = shown
        return n


def as_closed(path: str | os.PathLike[str]) -> AsClosed | None:
    """The file without its flag, and all of it within its end; None where it has no flag, or HDF5 refuses it anyway:
    it was cut off, or its superblock is damaged."""
    with open(path, "rb") as file:
        head = file.read(SUPERBLOCK.size)
        size = os.fstat(file.fileno()).st_size
    if len(head) < SUPERBLOCK.size:
        return None
    signature, version, *sizes, flags, base, extension, end, root, checksum = SUPERBLOCK.unpack(head)
    is_marked = signature == SIGNATURE and version in (2, 3) and sizes == [8, 8] and base == 0 and flags != 0
    if not is_marked or size < end or lookup3(head[:-4]) != checksum:
        return None
    # What was written last may lie behind the end that the superblock knows.
    whole = SUPERBLOCK.pack(signature, version, *sizes, 0, base, extension, size, root, 0)[:-4]
    return AsClosed(path, whole + struct.pack("<I", lookup3(whole)))


def check_heaps(path: str | os.PathLike[str]) -> None:
    """Raises:
    InputError: a heap of texts is damaged, near the beginning of the file.
    """
    with open(path, "rb") as file:
        head = file.read(FIRST)
    for found in HEAP.finditer(head):
        if not _is_whole(head[found.start() :]):
            raise InputError(f"{path} is damaged: the texts at byte {found.start()} do not follow each other.")


def _is_whole(heap: bytes) -> bool:
    """From its signature on; whether what lies behind ``heap`` is, is not looked at."""
    n_bytes, place = int.from_bytes(heap[8:16], "little"), 16
    while place + HEADER.size <= min(n_bytes, len(heap)):
        number, _, _, size = HEADER.unpack_from(heap, place)
        if number == 0 and size == 0:
            return False
        place += size if number == 0 else HEADER.size + (size + 7) // 8 * 8
    return place <= n_bytes


def lookup3(data: bytes) -> int:
    """The hash that guards HDF5's metadata: R. Jenkins, https://burtleburtle.net/bob/c/lookup3.c, ``hashlittle``."""
    a = b = c = (0xDEADBEEF + len(data)) & WORD
    *blocks, rest = (data[k : k + 12].ljust(12, b"\0") for k in range(0, len(data), 12))
    for block in blocks:
        a, b, c = ((one + more) & WORD for one, more in zip((a, b, c), struct.unpack("<3I", block), strict=True))
        for bits in (4, 6, 8, 16, 19, 4):
            a, c = ((a - c) & WORD) ^ _turned(c, bits), (c + b) & WORD
            a, b, c = b, c, a
    a, b, c = ((one + more) & WORD for one, more in zip((a, b, c), struct.unpack("<3I", rest), strict=True))
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _turned(b, bits)) & WORD
        a, b, c = b, c, a
    return b


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & WORD
