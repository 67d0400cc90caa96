"""NumPy's archives with a checksum and a JSON text: whole or refused, read as untrusted, no pickle."""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mdrun.errors import InputError


class Damaged(InputError):
    """Not a whole file of its kind: cut off, changed, or something else."""


def write(path: Path, meta: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Write and force to the disk: arrays by their names, ``meta`` as JSON, ``checksum`` of all of that.

    Raises:
        OSError: it can't be written.
        ValueError: an array of objects would need pickle.
    """
    everything = {"meta": np.array(json.dumps(meta)), **arrays}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, checksum=np.array(checksum(everything)), **everything)
        file.flush()
        os.fsync(file.fileno())


def read(path: Path, what: str, file_format: int) -> tuple[Any, dict[str, np.ndarray]]:
    """What ``write`` wrote: ``meta`` and the arrays, of no more bytes than the file has.

    Args:
        what: the file should be, for messages.
        file_format: what this version writes, as ``format`` in ``meta``.

    Raises:
        Damaged: the file is not there, or not whole.
        InputError: it is one of another version.
    """
    try:
        arrays = _members(path)
        told = str(arrays.pop("checksum"))
        is_whole = checksum(arrays) == told
        meta = json.loads(str(arrays.pop("meta"))) if is_whole else None
    except Exception as error:  # of zipfile, NumPy and json, each of which has many
        raise Damaged(f"{path} is no whole {what}: {_in_one_line(error)}.") from error
    if not is_whole:
        raise Damaged(f"{path} is damaged: its checksum does not fit what is in it.")
    if isinstance(meta, dict) and meta.get("format") != file_format:
        written_in = str(meta.get("format"))[:40]
        raise InputError(f"{path} is a {what} of format {written_in}; this mdrun reads {file_format}.")
    return meta, arrays


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """BLAKE2b of names, types, shapes and bytes."""
    digest = hashlib.blake2b(digest_size=32)
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        if values.dtype.hasobject:
            raise ValueError(f"Object arrays need pickle: {name} is one")
        digest.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        digest.update(values.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


def _members(path: Path) -> dict[str, np.ndarray]:
    """All members, together no larger than the file itself: members are stored, never packed."""
    size = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > size or any(member.compress_type for member in members):
            raise ValueError("its members are packed or larger than itself")
    with np.load(path, allow_pickle=False) as file:
        for name in file.files:
            with file.zip.open(f"{name}.npy") as member:
                _refuse_large(member, size, name)
        return {name: file[name] for name in file.files}


def _refuse_large(member: Any, size: int, name: str) -> None:
    version = np.lib.format.read_magic(member)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = reader(member)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"{name} is of type {dtype} and shape {shape}")
