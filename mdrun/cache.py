"""Compiled kernels are kept between runs, in a directory of the user that any number of processes share at once.

Numba alone would keep them beside the source, where an installed program may not write, and numbers the files of a
function's variants by an index that it reads before: two processes that compile the same function for different types
at once (a run in double beside one in single) take the same number, and from then on one's machine code is loaded as
the other's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import caching, codegen, dispatcher

# Compiled into kernels of other files, which Numba alone would go on loading when one of these has changed.
INLINED = (
    "vectors.py", "lanes.py", "lookup.py", "buffers.py", "philox.py", "neighbors/grid.py", "potentials/arithmetic.py",
    "potentials/pair_sums.py", "potentials/short_list.py", "potentials/tersoff_parameters.py",
    "potentials/vector_math.py",
)  # fmt: skip


def keep_kernels() -> Path | None:
    """Keep what is compiled from now on; call this before any module with kernels is imported.

    ``NUMBA_CACHE_DIR`` is respected. What can't be read or written is compiled and not kept: no run ends for it.

    Returns:
        The directory; None where there is none, and every run compiles anew.
    """
    config: Any = numba.config
    if not config.CACHE_DIR:
        usable = (str(path) for path in candidates(os.environ) if _is_ours(path))
        config.CACHE_DIR = next(usable, "")
    codegen.CPUCodeLibrary._optimize_final_module = _optimize_alone  # type: ignore[method-assign]
    dispatcher.FunctionCache = _SharedCache if config.CACHE_DIR else _no_cache  # type: ignore[attr-defined]
    return Path(config.CACHE_DIR) if config.CACHE_DIR else None


_optimize = codegen.CPUCodeLibrary._optimize_final_module


def _optimize_alone(library: Any) -> None:
    """Optimize a kernel with what is linked into it, and let it keep that for itself.

    Left visible, a function that was linked in gives way to the copy of it that the process compiled before and
    optimized once less: a process that compiles and one that loads then differ in the last bit. Hidden before it is
    optimized, it would be inlined, and slower.
    """
    _optimize(library)
    parts = (part._get_module_for_linking() for part in library._linking_libraries)
    linked = {function.name for part in parts for function in part.functions}
    for function in library._final_module.functions:
        if function.name in linked and not function.is_declaration:
            function.linkage = "internal"


def candidates(env: Mapping[str, str]) -> Iterator[Path]:
    """Where kernels may go, best first: the user's cache directory (XDG Base Directory Specification), then /tmp."""
    cache_home = Path(env.get("XDG_CACHE_HOME", ""))
    if cache_home.is_absolute():
        yield cache_home / "mdrun"
    else:
        with contextlib.suppress(RuntimeError):  # no HOME, and the user is not in the password file either
            yield Path.home() / ".cache" / "mdrun"
    yield Path(tempfile.gettempdir()) / f"mdrun-{os.getuid()}"


def _is_ours(path: Path) -> bool:
    """Whether the directory can be made and written to, and by nobody else: code from it will be executed."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mine = path.lstat().st_uid == path.stat().st_uid == os.getuid()
        others = path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return False
    return mine and not others


def _no_cache(function: Any) -> caching.NullCache:
    return caching.NullCache()


class _SharedFile(caching.IndexDataCacheFile):
    """The variants of one function: an index of them, and a file for each, whose name follows from what it holds."""

    def _load_index(self) -> dict:
        try:
            return super()._load_index()
        except Exception:  # cut off when a machine went down: written anew
            return {}

    def save(self, key: Any, data: Any) -> None:
        name = hashlib.sha256(repr((self._version, self._source_stamp, key)).encode()).hexdigest()[:24]
        name = f"{self._index_name.removesuffix('.nbi')}.{name}.nbc"
        self._save_data(name, data)
        # Read late and written at once. Of two processes in this moment one's entry is lost, and compiled once more.
        self._save_index(self._load_index() | {key: name})


@cache
def _inlined_sources() -> str:
    digest = hashlib.sha256()
    for name in INLINED:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()


class _SharedCache(caching.FunctionCache):
    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = (self._impl.locator.get_source_stamp(), _inlined_sources())
        self._cache_file = _SharedFile(self._cache_path, self._impl.filename_base, stamp)

    @contextlib.contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:
        """Around every load and save: a full disk or a damaged file costs a compilation, never a run."""
        with contextlib.suppress(Exception):
            yield
