"""What was in a file, in a few letters: the same ones for the same content, wherever it lies."""

from __future__ import annotations

import hashlib
import os

BYTES = 32


def of_file(path: str | os.PathLike[str]) -> str:
    """BLAKE2b of a file's bytes, 64 hexadecimal digits.

    Raises:
        OSError: it can't be read.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=BYTES)).hexdigest()
