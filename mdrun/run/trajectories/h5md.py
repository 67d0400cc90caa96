"""H5MD files, written and cut back; layout and units: ``mdrun.structures.h5md``."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mdrun import __version__
from mdrun.errors import InputError
from mdrun.run.appending import too_short
from mdrun.run.trajectories.frames import Frame
from mdrun.structures.damaged_hdf5 import as_closed
from mdrun.structures.h5md import CONSTANTS, GROUP, VECTORS, open_h5md, series_of

if TYPE_CHECKING:
    import h5py

MOST_ROWS = 65536  # of a chunk
SLACK = 1 << 17  # bytes that a frame takes beside its numbers, and more


class H5mdWriter:
    """Compressed, a chunk and more for each frame; its position is in frames.

    Between frames the file is closed: whoever opens it then finds it whole, and so does a kill. While one is added it
    is in HDF5's mode for a single writer (SWMR), in which what lies in the file is consistent at any moment; a file
    that was left like that opens with ``swmr=True``, here as ``mdrun.structures.damaged_hdf5`` has it. No lock is asked
    for: somebody who reads the file meanwhile would end the run, and the run directory has one of its own.
    """

    def __init__(self, path: Path, dtype: str = "float64", at: int | None = None) -> None:
        """Raises:
        InputError: the file has fewer than ``at`` frames, or is no H5MD.
        """
        self._path, self._dtype = path, np.dtype(dtype)
        self._n = at or 0
        if self._n:
            cut(path, self._n)
        else:
            path.write_bytes(b"")

    def write(self, frame: Frame) -> None:
        import h5py

        values = {name: value for name, value in self._values(frame).items() if value is not None}
        _check_room(self._path, sum(np.asarray(value).nbytes for value in values.values()) + SLACK)
        if self._n == 0:
            self._create(frame, values)
        per_atom = [f"{GROUP}/{name}/value" for name in VECTORS]
        packed = {name: list(_packed(values[name])) for name in per_atom if name in values}
        with h5py.File(self._path, "r+", libver="latest", locking=False) as file:
            file.swmr_mode = True
            series = series_of(file)
            missing = [name for name in series if name not in values]
            for name, dataset in series.items():
                dataset.resize(self._n + 1, axis=0)
                if name in packed:
                    for first, chunk in packed[name]:
                        dataset.id.write_direct_chunk((self._n, first, 0), chunk)
                elif name not in missing:
                    dataset[self._n] = values[name]
                dataset.flush()
            # Last, since it is what counts frames.
            for name, value in (("time", frame.time_ps), ("step", frame.step)):
                dataset = file[f"{GROUP}/position/{name}"]
                dataset.resize(self._n + 1, axis=0)
                dataset[self._n] = value
                dataset.flush()
        self._n += 1

    def _values(self, frame: Frame) -> dict[str, Any]:
        columns: dict[str, Any] = {**frame.columns, "velocities": frame.velocities()}
        values: dict[str, Any] = {}
        for name, (column, _, factor) in VECTORS.items():
            if columns.get(column) is not None:
                values[f"{GROUP}/{name}/value"] = (columns[column] * factor).astype(self._dtype)
        values[f"{GROUP}/box/edges/value"] = frame.cell if frame.cell.any() else None
        values["observables/potential_energy/value"] = frame.info.get("energy")
        stress = frame.info.get("stress")
        values["observables/stress/value"] = None if stress is None else np.asarray(stress)
        return values

    def _create(self, frame: Frame, values: dict[str, Any]) -> None:
        import h5py

        with h5py.File(self._path, "w", libver="latest", locking=False) as file:
            file.create_group("h5md").attrs["version"] = np.array([1, 1])
            file.create_group("h5md/author").attrs["name"] = os.environ.get("USER", "unknown")
            file.create_group("h5md/creator").attrs.update({"name": "mdrun", "version": __version__})
            file.create_group("h5md/modules/units").attrs["version"] = np.array([1, 0])
            box = file.create_group(f"{GROUP}/box")
            box.attrs["dimension"] = 3
            text = h5py.string_dtype("ascii", 8)
            box.attrs.create("boundary", ["periodic" if p else "none" for p in frame.pbc], dtype=text)
            step = file.create_dataset(f"{GROUP}/position/step", (0,), "i8", maxshape=(None,), chunks=(1024,))
            time = file.create_dataset(f"{GROUP}/position/time", (0,), "f8", maxshape=(None,), chunks=(1024,))
            time.attrs["unit"] = "ps"
            for name, value in values.items():
                shape = np.shape(value)
                large = name.startswith(GROUP) and len(shape) == 2 and not name.startswith(f"{GROUP}/box")
                chunks = (1, min(shape[0], MOST_ROWS), 3) if large else (max(1024 // max(np.size(value), 1), 1), *shape)
                dataset = file.create_dataset(
                    name, (0, *shape), np.asarray(value).dtype, maxshape=(None, *shape), chunks=chunks,
                    fillvalue=np.nan, shuffle=True, compression="gzip", compression_opts=1,
                )  # fmt: skip
                dataset.attrs["unit"] = _unit(name)
                parent = dataset.parent
                if "step" not in parent:  # one dataset under several names, as the layout has it
                    parent["step"], parent["time"] = step, time
            group = file[GROUP]
            group["species"] = frame.numbers.astype("i4")
            group["id"] = frame.ids.astype("i8")
            for name, (column, unit) in CONSTANTS.items():
                constant = frame.masses() if name == "mass" else frame.columns.get(column)
                if constant is not None:
                    group[name] = constant.astype("i1") if name == "move_mask" else constant
                    if unit:
                        group[name].attrs["unit"] = unit

    def flush(self) -> None:
        handle = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def position(self) -> int:
        return self._n

    def close(self) -> None:
        """Nothing is open between frames."""


def _check_room(path: Path, n_bytes: int) -> None:
    """Whether the file can grow by so much, asked first: a write that fails within HDF5 crashes the process later.

    Raises:
        OSError: it can't.
    """
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            os.posix_fallocate(file.fileno(), size, n_bytes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        finally:
            file.truncate(size)


def _unit(name: str) -> str:
    if name.startswith("observables"):
        return "eV" if "energy" in name else "eV Angstrom-3"
    return VECTORS[name.split("/")[-2]][1] if "edges" not in name else "Angstrom"


def _packed(values: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """Chunks of a frame (n, 3) as HDF5's filters shuffle and gzip leave them; made here since zlib lets other threads
    work meanwhile, which HDF5 does not."""
    rows = min(len(values), MOST_ROWS)
    for first in range(0, len(values), rows):
        block = np.zeros((rows, 3), values.dtype)
        part = values[first : first + rows]
        block[: len(part)] = part
        shuffled = np.ascontiguousarray(block.view(np.uint8).reshape(-1, values.dtype.itemsize).T)
        yield first, zlib.compress(shuffled.data, 1)


def cut(path: Path, n: int) -> None:
    """Leave the first ``n`` frames.

    They are copied, chunk for chunk, to a new file that takes the name: what a killed process left of the space behind
    its last frame can't be trusted.

    Raises:
        InputError: there are fewer, or it is no H5MD.
    """
    import h5py

    with _opened(path, n) as old, _refusing_damage(path):
        series = [old[f"{GROUP}/position/step"], *series_of(old).values()]
        if all(len(s) == n for s in series) and as_closed(path) is None:
            _read_what_is_written_to(old)
            return
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with h5py.File(partial, "w", libver="latest", locking=False) as new:
                _copy(old, new, n)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def check(path: Path, n: int) -> None:
    """Refuse what ``cut`` would, as far as can be seen without copying, with the file left as it is.

    Raises:
        InputError: there are fewer frames, or it is no H5MD.
    """
    with _opened(path, n) as file, _refusing_damage(path):
        for series in series_of(file).values():
            if len(series) < n:
                raise too_short(path, len(series), n, "frames")


@contextmanager
def _opened(path: Path, n: int) -> Iterator[h5py.File]:
    """To be read; of ``n`` frames or more."""
    if not path.exists() or path.stat().st_size == 0:
        raise too_short(path, 0, n, "frames")
    with open_h5md(path) as file:
        with _refusing_damage(path):
            n_frames = len(file[f"{GROUP}/position/step"])
        if n_frames < n:
            raise too_short(path, n_frames, n, "frames")
        yield file


def _read_what_is_written_to(file: h5py.File) -> None:
    """What is damaged shows now, where HDF5 fails at it; in its mode for writing it would sleep for ever."""

    def read(_: str, item: h5py.Group | h5py.Dataset) -> None:
        dict(item.attrs)
        if hasattr(item, "chunks") and item.chunks:
            item.id.get_num_chunks()
            if item.chunks[0] > 1 and len(item) % item.chunks[0]:
                _ = item[-1]

    dict(file.attrs)
    file.visititems(read)


@contextmanager
def _refusing_damage(path: Path) -> Iterator[None]:
    """What h5py trips over in a damaged file becomes an InputError; a full disk has a number, and stays an OSError."""
    try:
        yield
    except (OSError, KeyError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(f"{path} is damaged, and can't be gone on with: {str(error).rstrip('.')}.") from error


def _copy(old: h5py.File, new: h5py.File, n: int) -> None:
    import h5py

    made: dict[Any, str] = {}  # by where it is in the old file, for what has several names

    def copy(source: h5py.Group, target: h5py.Group) -> None:
        target.attrs.update(source.attrs)
        for name, item in source.items():
            if isinstance(item, h5py.Group):
                copy(item, target.create_group(name))
                continue
            place = h5py.h5o.get_info(item.id).addr
            if place in made:
                target[name] = new[made[place]]
                continue
            is_series = item.maxshape[:1] == (None,)
            if not is_series:
                old.copy(item, target, name)
            else:
                with_n = item.id.get_create_plist()
                space = h5py.h5s.create_simple((n, *item.shape[1:]), (h5py.h5s.UNLIMITED, *item.shape[1:]))
                h5py.h5d.create(target.id, name.encode(), item.id.get_type(), space, with_n)
                _copy_rows(item, target[name], n)
                target[name].attrs.update(item.attrs)
            made[place] = f"{target.name}/{name}"

    copy(old, new)


def _copy_rows(old: h5py.Dataset, new: h5py.Dataset, n: int) -> None:
    for k in range(0, n, old.chunks[0]):
        if old.chunks[0] > 1:
            new[k : min(k + old.chunks[0], n)] = old[k : min(k + old.chunks[0], n)]
            continue
        for first in range(0, old.shape[1], old.chunks[1]):
            corner = (k, first, *(0,) * (old.ndim - 2))
            mask, raw = old.id.read_direct_chunk(corner)
            new.id.write_direct_chunk(corner, raw, mask)
