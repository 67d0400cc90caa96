"""What can go wrong, and the exit code that each kind of trouble ends the program with."""

from __future__ import annotations

from typing import Any

EXIT_OK = 0
EXIT_FAULT = 1
EXIT_INPUT = 2
EXIT_UNPHYSICAL = 3
EXIT_STOPPED = 75
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count


class MdrunError(Exception):
    """Trouble that is told to the user in one paragraph: what, where, what to do.

    Attributes:
        last_good_step: where it came up in the step loop, the step before.
        state_is_whole: all ranks stopped at the same place, where positions and momenta are finite.
    """

    exit_code = EXIT_FAULT
    last_good_step: int | None = None
    state_is_whole = False


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
