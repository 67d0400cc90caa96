"""The text of a potential's file, read as untrusted."""

from __future__ import annotations

from pathlib import Path

from mdrun.errors import InputError


def read_text(path: Path, what: str, most_bytes: int = 256 * 1024**2, errors: str = "strict") -> str:
    """The whole text, UTF-8.

    Args:
        what: the kind of file, for messages.
        most_bytes: no potential of this kind is larger.
        errors: what to do with bytes that are not UTF-8, as ``bytes.decode`` takes it.

    Raises:
        InputError: it can't be read, is too large, or is no regular file: a pipe or a device may have no end.
        UnicodeDecodeError: where ``errors`` is strict.
    """
    try:
        size = path.stat().st_size
        if not path.is_file() and not path.is_dir():
            raise InputError(f"the {what} {path} can't be read: it is not a regular file.")
        if size > most_bytes:
            raise InputError(f"the {what} {path} is larger than {most_bytes // 1024**2} MiB: no potential is.")
        return path.read_text(encoding="utf-8", errors=errors)
    except OSError as error:
        raise InputError(f"the {what} {path} can't be read: {error.strerror}.") from error
