"""How a run that failed ends: one message from one rank, the same exit code everywhere, nobody left waiting."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from mdrun.comm import Comm
from mdrun.errors import EXIT_FAULT, EXIT_INTERRUPTED, InputError, MdrunError, PeerError


def end_with_error(
    error: BaseException, comm: Comm, write_down: Callable[[str, int, int | None], None], debug: bool = False
) -> int:
    """Tell the user once, tell the other ranks, write the status, close the connections.

    Args:
        write_down: takes the reason, the exit code and the last good step, if any; called on every rank.

    Returns:
        The exit code.
    """
    message, code, last_good_step, is_ours = _verdict(error, comm)
    try:
        write_down(message, code, last_good_step)
    except OSError as trouble:  # a full disk must not hide why the run ended
        message += f" (status.json could not be written: {trouble.strerror}.)"
    if debug:
        traceback.print_exception(error)
    if is_ours:
        print(f"mdrun: {message}", file=sys.stderr, flush=True)
    _let_go(error)
    comm.abort()
    return code


def _let_go(error: BaseException) -> None:
    """Empty the frames that the error came through: what they hold would keep the connections open."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__


def _verdict(error: BaseException, comm: Comm) -> tuple[str, int, int | None, bool]:
    """Message, exit code, last good step, and whether this rank is the one to print it."""
    if isinstance(error, PeerError):
        posted = comm.posted_error()
        if posted is not None:
            return (*posted, False)
    message, code = _in_words(error), _exit_code(error)
    if comm.size > 1 and not isinstance(error, InputError | PeerError) and f"rank {comm.rank}" not in message:
        message = f"rank {comm.rank}: {message}"
    last_good_step = getattr(error, "last_good_step", None)
    return message, code, last_good_step, comm.post_error(message, code, last_good_step)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return getattr(error, "exit_code", EXIT_FAULT)


def _in_words(error: BaseException) -> str:
    if isinstance(error, MdrunError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted."
    return f"{type(error).__name__}: {error}. This is a fault of mdrun or of a model; --debug shows where."
