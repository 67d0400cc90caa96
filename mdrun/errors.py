"""What can go wrong, and the exit code that each kind of trouble ends the program with."""

from __future__ import annotations

from typing import Any

EXIT_OK = 0
EXIT_FAULT = 1
EXIT_INPUT = 2
EXIT_UNPHYSICAL = 3
EXIT_STOPPED = 75
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count

MOST_CHARACTERS = 1500  # of a message: a quoted word of a broken file may have millions


class MdrunError(Exception):
    """Trouble that is told to the user in one paragraph: what, where, what to do.

    Attributes:
        last_good_step: where it came up in the step loop, the step before.
        state_is_whole: all ranks stopped at the same place, where positions and momenta are finite.
    """

    exit_code = EXIT_FAULT
    last_good_step: int | None = None
    state_is_whole = False

    def __str__(self) -> str:
        """One paragraph of printable characters, though it may quote a file: no terminal acts on what a file says."""
        text = "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in super().__str__())
        return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 200]} … {text[-190:]}"


class InputError(MdrunError):
    """The structure, the model or an option is wrong; nothing was computed."""

    exit_code = EXIT_INPUT


class SimulationError(MdrunError):
    """The simulation became unphysical: non-finite forces, atoms lost, moved too far, too hot.

    Attributes:
        neighborhood: what lies around the atoms concerned, an ``mdrun.neighborhood.Neighborhood``; None where no atom
            of this rank is.
        ids: of the atoms concerned, where who found them does not see what is around.
    """

    exit_code = EXIT_UNPHYSICAL

    def __init__(self, message: str, neighborhood: Any = None, ids: Any = None) -> None:
        super().__init__(message)
        self.neighborhood, self.ids = neighborhood, ids


class OutputError(MdrunError):
    """A file of the run can't be written: the disk is full, its directory was removed or became read-only."""


class PeerError(MdrunError):
    """Another rank failed or stopped answering; this one only follows it down."""


def out_of_memory(error: BaseException) -> str:
    """What to tell where memory ran out, empty of other errors.

    NumPy and Numba raise MemoryError; torch an error of its own on a GPU, on a CPU a plain one.
    """
    is_torch_s = isinstance(error, RuntimeError) and "allocate memory" in str(error)
    if not (is_torch_s or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"):
        return ""
    what = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
    return (
        f"out of memory: {what}. Spread the atoms over more ranks, on more hosts or GPUs, or take --precision mixed or "
        "single, a smaller --skin, or a smaller system."
    )
