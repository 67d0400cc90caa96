"""H5MD files: the layout of P. de Buyl, P. H. Colberg and F. Höfling, Comput. Phys. Commun. 185, 1546 (2014), version
1.1, https://nongnu.org/h5md, with the module ``units``.

Units are those of the set that MDAnalysis reads: Angstrom, ps, Angstrom ps-1, kJ mol-1 Angstrom-1, u; energies eV.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mdrun import __version__, units
from mdrun.errors import InputError
from mdrun.run.trajectories.frames import Frame, too_short

if TYPE_CHECKING:
    import h5py

GROUP = "particles/trajectory"  # the name that MDAnalysis looks under where it is given no topology
KJ_MOL = 96.48533289  # in one eV; CODATA 2014, as mdrun.units
MOST_ROWS = 65536  # of a chunk
# By name: ASE's column, unit, and what one of ASE's units is in it.
VECTORS = {
    "position": ("positions", "Angstrom", 1.0),
    "velocity": ("velocities", "Angstrom ps-1", units.PS),
    "force": ("forces", "kJ mol-1 Angstrom-1", KJ_MOL),
}
CONSTANTS = {"mass": ("masses", "u"), "charge": ("initial_charges", "e"), "move_mask": ("move_mask", None)}


class H5mdWriter:
    """Compressed, a chunk and more for each frame; its position is in frames.

    Between frames the file is closed: whoever opens it then finds it whole, and so does a kill. While one is added it
    is in HDF5's mode for a single writer (SWMR), in which what lies in the file is consistent at any moment; a file
    that was left like that opens with ``swmr=True``, here too.
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
        if self._n == 0:
            self._create(frame, values)
        per_atom = [f"{GROUP}/{name}/value" for name in VECTORS]
        packed = {name: list(_packed(values[name])) for name in per_atom if name in values}
        with h5py.File(self._path, "r+", libver="latest") as file:
            file.swmr_mode = True
            series = _series(file)
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

        with h5py.File(self._path, "w", libver="latest") as file:
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


def _series(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Every dataset ``value`` that has a row for each frame, by its full name."""
    found = {}
    for parent in (GROUP, f"{GROUP}/box", "observables"):
        for name in file.get(parent, ()):
            if (dataset := file.get(f"{parent}/{name}/value")) is not None:
                found[f"{parent}/{name}/value"] = dataset
    return found


def opened(path: Path) -> h5py.File:
    """The file to read, one too that a killed process left in its mode for writing.

    Raises:
        InputError: it is no H5MD.
    """
    import h5py

    try:
        try:
            file = h5py.File(path, "r")
        except OSError:
            file = h5py.File(path, "r", swmr=True)
    except OSError as error:
        raise InputError(f"{path} can't be read as H5MD: {str(error).rstrip('.')}.") from error
    if f"{GROUP}/position/step" not in file:
        file.close()
        raise InputError(f"{path} is HDF5, but no H5MD with {GROUP}/position in it.")
    return file


def cut(path: Path, n: int) -> None:
    """Leave the first ``n`` frames.

    They are copied, chunk for chunk, to a new file that takes the name: what a killed process left of the space behind
    its last frame can't be trusted.

    Raises:
        InputError: there are fewer, or it is no H5MD.
    """
    import h5py

    if not path.exists() or path.stat().st_size == 0:
        raise too_short(path, 0, n, "frames")
    with opened(path) as old:
        steps = old[f"{GROUP}/position/step"]
        if len(steps) < n:
            raise too_short(path, len(steps), n, "frames")
        series = _series(old)
        if len(steps) == n and all(len(s) == n for s in series.values()) and not _was_left_open(path):
            return
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with h5py.File(partial, "w", libver="latest") as new:
                _copy(old, new, n)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def _was_left_open(path: Path) -> bool:
    """Whether the superblock (version 2 and 3) says that a process is writing."""
    with path.open("rb") as file:
        head = file.read(12)
    return len(head) == 12 and head[8] >= 2 and head[11] != 0


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


def read_frames(path: Path) -> Iterator[Frame]:
    """The frames of a file, one after the other.

    Raises:
        InputError: it is no H5MD, or one of its frames can't be read.
    """
    with opened(path) as file:
        group = file[GROUP]
        numbers = group["species"][:]
        ids = group["id"][:] if "id" in group else np.arange(len(numbers))
        constants = {c: group[n][:] for n, (c, _) in CONSTANTS.items() if n in group}
        if "move_mask" in constants:
            constants["move_mask"] = constants["move_mask"].astype(bool)
        boundary = group["box"].attrs["boundary"]
        x, y, z = (b in ("periodic", b"periodic") for b in boundary)
        steps, times, series = group["position/step"], group["position/time"], _series(file)
        for k in range(len(steps)):
            try:
                columns = {}
                for name, (column, _, factor) in VECTORS.items():
                    if f"{GROUP}/{name}/value" in series:
                        columns[column] = series[f"{GROUP}/{name}/value"][k].astype(float) / factor
                if "velocities" in columns:
                    columns["momenta"] = columns.pop("velocities") * constants["masses"][:, None]
                info: dict[str, Any] = {"step": int(steps[k]), "time_ps": float(times[k])}
                for key, name in (("energy", "potential_energy"), ("stress", "stress")):
                    if (found := series.get(f"observables/{name}/value")) is not None and np.isfinite(found[k]).all():
                        info[key] = found[k]
                edges = series.get(f"{GROUP}/box/edges/value")
                cell = np.zeros((3, 3)) if edges is None else edges[k]
            except (OSError, KeyError, ValueError) as error:
                raise InputError(f"{path}, frame {k}: can't be read: {error}.") from error
            yield Frame(info["step"], info["time_ps"], cell, (x, y, z), ids, numbers, columns | constants, info)
