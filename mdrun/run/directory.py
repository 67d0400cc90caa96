"""The run directory: claimed by one run at a time, never overwritten without being told to."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tomllib
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from mdrun.errors import InputError, OutputError

THERMO, TRAJECTORY, RANKS = "thermo.csv", "trajectory.extxyz", "ranks.csv"
STATUS, CONFIG, RELAXED = "status.json", "config.toml", "relaxed.extxyz"
STRUCTURE = "structure.npz"  # what the run began with
STOP = "STOP"  # made by the user: the run stops
CHECKPOINT, PREVIOUS_CHECKPOINT = "checkpoint.npz", "checkpoint.previous.npz"
DAMAGED_CHECKPOINT = "checkpoint.damaged.npz"  # once the one before it was gone on from
LAST_GOOD, BLOWUP = "last_good.extxyz", "blowup.extxyz"
FILES = (
    THERMO, TRAJECTORY, RANKS, STATUS, CONFIG, STRUCTURE, CHECKPOINT, PREVIOUS_CHECKPOINT, DAMAGED_CHECKPOINT, RELAXED,
    LAST_GOOD, BLOWUP,
)  # fmt: skip
FORMER, OUTLIVED = ".former", ".outlived"  # directories: of the run that is replaced, until the new one has begun
WORD, SHARE = ".word", ".share"  # files of ranks that lost contact, and of ranks of a run that became unphysical
ADVICE = {
    errno.ENOSPC: "Make room on that disk",
    errno.EDQUOT: "Make room: your quota on that disk is used up",
    errno.EFBIG: "Raise the limit on the size of a file (ulimit -f)",
    errno.ENOENT: "The run directory was removed or renamed meanwhile: choose another --out",
}


@contextlib.contextmanager
def writing(path: Path, file: TextIO | None = None) -> Iterator[None]:
    """Tell trouble with a file of the run by its name; ``file``, where it is open, is closed then.

    Raises:
        OutputError: in place of OSError.
    """
    try:
        yield
    except OSError as error:
        if file is not None:
            with contextlib.suppress(OSError):  # what is left in its buffer has no place either
                file.close()
        advice = ADVICE.get(error.errno or 0, "Choose another --out, or see to that disk")
        raise OutputError(
            f"{path} can't be written: {error.strerror or error}. {advice}, and run again; what was written before it "
            "is kept."
        ) from error


SUFFIXES = (".extxyz", ".xyz", ".traj", ".h5md", ".dump", ".lammpstrj")  # of trajectories


class RunDirectory:
    """Held by the writing rank for the life of the run.

    Claimed first; then ``take_over`` makes room, ``discard`` takes that back where the run is refused, and ``begin``
    makes it final. A start that was killed meanwhile is taken back by whoever claims the directory next.
    """

    def __init__(
        self, path: Path, inputs: list[Path], overwrite: bool, trajectories: Sequence[str] = (), keep: bool = False
    ) -> None:
        """Make or claim ``path``.

        Args:
            inputs: files that the run reads, which it must not write.
            overwrite: it may replace the run that is there.
            trajectories: names of files that it writes beside ``FILES``.
            keep: go on with the run that is there.

        Raises:
            InputError: it exists already, another run holds it, it can't be made, or holds an input.
        """
        self.path = path
        self.is_new = not keep
        self.has_begun = False
        self._files = tuple(dict.fromkeys((*FILES, *trajectories)))
        self._rewritten: dict[str, bytes] = {}
        self._took_over = False
        for name in self._files:
            for source in inputs:
                if source.resolve() == (path / name).resolve():
                    raise InputError(
                        f"{source} is an input of this run, which would write over it. Choose another --out."
                    )
        if path.exists() and not path.is_dir():
            raise InputError(f"--out {path} is a file; it must be a directory that does not exist yet.")
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDONLY)
            self._release = weakref.finalize(self, os.close, lock)
            self._lock = lock
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"another run is writing to {path} now. Choose another --out.") from error
        except OSError as error:
            raise InputError(f"the run directory {path} can't be made: {error.strerror}.") from error
        clear_remains(path, self._files)
        shutil.rmtree(path / OUTLIVED, ignore_errors=True)
        self._put_back(former_files(path) if (path / FORMER / CONFIG).exists() else ())
        if not keep and not overwrite and any(path.iterdir()):
            raise InputError(
                f"the run directory {path} exists and is not empty. Choose another --out, or give --overwrite to "
                "replace the run in it."
            )
        if not os.access(path, os.W_OK):
            raise InputError(f"the run directory {path} can't be written to.")

    def take_over(self) -> None:
        """Make room for this run: all of the one that it replaces is set aside; of one that goes on, what it left when
        it became unphysical, since it must not do so again unseen.

        Raises:
            OutputError: files can't be moved.
        """
        self._took_over = True
        names = dict.fromkeys((*self._files, *former_files(self.path))) if self.is_new else (LAST_GOOD, BLOWUP)
        present = [name for name in names if (self.path / name).exists()]
        present.sort(key=lambda name: name == CONFIG)  # last: where it is set aside, all that belongs to it is
        with writing(self.path):
            if not self.is_new:
                rewritten = [name for name in (CONFIG, STATUS) if (self.path / name).exists()]
                self._rewritten = {name: (self.path / name).read_bytes() for name in rewritten}
            if present:
                (self.path / FORMER).mkdir(exist_ok=True)
            for name in present:
                os.replace(self.path / name, self.path / FORMER / name)

    def begin(self) -> None:
        """The run can't be refused any more: what was set aside is of no use now."""
        self.has_begun = True
        with contextlib.suppress(FileNotFoundError):  # renamed in one step: half of it is never put back
            os.replace(self.path / FORMER, self.path / OUTLIVED)
        shutil.rmtree(self.path / OUTLIVED, ignore_errors=True)

    @property
    def holds_former(self) -> bool:
        """Whether a run was here before this one that ``discard`` brings back."""
        return not self.is_new or (self.path / FORMER).exists()

    def release(self) -> None:
        """Let another run have it; what happens anyway once nobody knows of it."""
        self._release()

    def check_presence(self) -> None:
        """Look whether the directory is still where it was.

        Raises:
            OutputError: it was removed or renamed; files that are open would go on to be written, for nobody to find.
        """
        with writing(self.path):
            now, then = os.stat(self.path), os.fstat(self._lock)
            if (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino):
                raise FileNotFoundError(errno.ENOENT, "another directory has taken its place")

    def discard(self) -> None:
        """Take back what was done, and the directory where nothing else is in it: the run never began."""
        clear_remains(self.path, self._files)
        if self._took_over:
            self._put_back(self._files if self.is_new else ())
        for name, content in self._rewritten.items():
            replace_file(self.path / name, content)
        if self.is_new:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def _put_back(self, new: Sequence[str]) -> None:
        """What was set aside, in place of these files of the run that was to replace it."""
        for name in new:
            (self.path / name).unlink(missing_ok=True)
        former = self.path / FORMER
        if former.is_dir():
            for path in sorted(former.iterdir(), key=lambda path: path.name != CONFIG):  # first, for the same reason
                os.replace(path, self.path / path.name)
            former.rmdir()

    def write_status(self, status: dict[str, Any]) -> None:
        """Replace ``status.json`` in one step, so that a reader never sees half of it.

        Raises:
            OutputError: it can't be written.
        """
        self.check_presence()
        path = self.path / STATUS
        with writing(path):
            replace_status(path, status)


def replace_status(path: Path, status: dict[str, Any]) -> None:
    """Write ``status.json`` beside itself, then give it the name; on a full disk into the room that it has.

    Raises:
        OSError: neither can be done.
    """
    text = (json.dumps(status, indent=2) + "\n").encode()
    try:
        replace_file(path, text)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not path.exists():
            raise
        # The blocks that the file has are its own still: new text that fits needs no others.
        with path.open("r+b") as file:
            file.write(text)
            file.truncate()


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file beside itself, then give it the name: a reader sees the old one or the new one, whole.

    Raises:
        OSError: it can't be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def clear_remains(path: Path, files: Sequence[str] = FILES) -> None:
    """Remove what processes that were killed left half written of these files; by whoever holds the directory."""
    for name in (*files, WORD, SHARE):
        for partial in path.glob(f".{name.lstrip('.')}.*"):
            with contextlib.suppress(OSError):
                partial.unlink()


def status_there(path: Path) -> dict[str, Any]:
    """``status.json`` of a directory as it stands; empty where there is none that can be read."""
    try:
        status = json.loads((path / STATUS).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return status if isinstance(status, dict) else {}


def file_of_run(path: Path, name: str) -> Path:
    """Where a file of the run in a directory is now: set aside, where a start that was to replace it was killed."""
    former = path / FORMER
    return former / name if (former / CONFIG).exists() else path / name


def config_there(path: Path) -> dict[str, Any]:
    """``config.toml`` of a directory as it stands; empty where there is none that can be read."""
    try:
        return tomllib.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def claims_the_word(path: Path, run: str) -> bool:
    """Whether this process is the first of a run's that lost contact to each other, by a file that only one can make.

    True where none can, or before the ranks agreed on a name for the run.
    """
    try:
        if run:
            os.close(os.open(path / f"{WORD}.{run}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def amend_status(path: Path, run: str, changes: dict[str, Any]) -> None:
    """Change ``status.json`` in place of the rank that writes it, if it is still of that run.

    Raises:
        OSError, ValueError: it can't be read or written.
    """
    status = json.loads((path / STATUS).read_text())
    if run and status.get("run") == run:
        replace_status(path / STATUS, {**status, **changes})


def former_files(path: Path) -> list[str]:
    """Names that a run in a directory may have written, its trajectories too: none of them stays beside another's."""
    names = config_there(path).get("trajectory", [])
    named = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return [*FILES, *(name for name in named if Path(name).name == name and Path(name).suffix.lower() in SUFFIXES)]
