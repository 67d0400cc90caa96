"""How a run that failed ends: one message from one rank, the same exit code everywhere, nobody left waiting."""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

from mdrun.comm import Comm
from mdrun.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_UNPHYSICAL, InputError, MdrunError, PeerError, out_of_memory
from mdrun.last_words import LONG_PATIENCE, PATIENCE


class Witness:
    """What a job does when it fails; by default nothing. What these raise hides no message."""

    def evidence(self, error: BaseException) -> str:
        """On the rank that failed, before others know: keep what shows why, and say where."""
        return ""

    def keep_share(self, error: BaseException) -> None:
        """On every rank of a system that became unphysical: write down its share of the last good atoms."""

    def join_shares(self, n_ranks: int, last_good_step: int | None) -> str:
        """On rank 0: make one file of the shares, and say so. With 0 ranks: their shares are not all there."""
        return ""

    def failed(self, reason: str, exit_code: int, last_good_step: int | None) -> None:
        """On every rank: write down the run's end, where that is this rank's to do."""

    def speaks(self) -> bool:
        """Ranks that lost contact to each other: whether this one is to tell of it."""
        return True

    def stand_in(self, reason: str, exit_code: int, last_good_step: int | None) -> None:
        """On one rank: write down the run's end in place of rank 0, which is not to be reached."""


@dataclass(frozen=True)
class _Verdict:
    """What all ranks say; whether this one prints it; whether rank 0 may never know of it."""

    message: str
    code: int
    last_good_step: int | None
    is_ours: bool
    is_cut_off: bool = False


def end_with_error(error: BaseException, comm: Comm, witness: Witness, debug: bool = False) -> int:
    """Tell the user once, tell the other ranks, write the status, close the connections.

    Returns:
        The exit code.
    """
    with _left_in_peace():
        verdict = _verdict(error, comm, witness)
        if debug:
            traceback.print_exception(error)
        end = _end_with_atoms if verdict.code == EXIT_UNPHYSICAL else _end
        end(error, verdict, comm, witness)
    return verdict.code


@contextlib.contextmanager
def _left_in_peace() -> Iterator[None]:
    """Without heed of SIGTERM: where a rank was killed, launchers send it to the others at once, and SIGKILL if they
    are still there in half a minute."""
    try:
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except ValueError:  # not in the main thread
        before = None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _end(error: BaseException, verdict: _Verdict, comm: Comm, witness: Witness) -> None:
    message = verdict.message + _write_down(verdict, "", witness)
    words = comm.last_words
    if words is not None:
        words.told("")
    if verdict.is_ours and verdict.is_cut_off:
        _stand_in(verdict, witness)
    if verdict.is_ours:
        _print(message)
    _let_go(error)
    comm.disconnect()
    if words is not None:
        is_told = words.rank_0_has_told(PATIENCE) is not None
        if verdict.is_ours and not verdict.is_cut_off and not is_told:
            _stand_in(verdict, witness)
        words.leave()


def _end_with_atoms(error: BaseException, verdict: _Verdict, comm: Comm, witness: Witness) -> None:
    """The same where the atoms of all ranks go into a file first: the others must know before they can help."""
    words, more = comm.last_words, ""
    _let_go(error)
    comm.disconnect()
    with contextlib.suppress(Exception):
        witness.keep_share(error)
    if words is not None:
        words.part_is_there()
    if comm.rank == 0:
        with contextlib.suppress(Exception):
            are_there = words is None or words.parts_are_there()
            more = witness.join_shares(comm.size if are_there else 0, verdict.last_good_step)
    more += _write_down(verdict, more, witness)
    if words is not None:
        words.told(more)
        told = words.rank_0_has_told(LONG_PATIENCE)
        if told is None and verdict.is_ours:
            _stand_in(verdict, witness)
        more += told or ""
    if verdict.is_ours:
        _print(verdict.message + more)
    if words is not None:
        words.leave()


def _write_down(verdict: _Verdict, more: str, witness: Witness) -> str:
    """What to add to the message: nothing unless this failed too, which must not hide why the run ended."""
    try:
        witness.failed(verdict.message + more, verdict.code, verdict.last_good_step)
    except Exception as trouble:
        cause = trouble.__cause__ or trouble
        return f" (status.json could not be written: {getattr(cause, 'strerror', None) or cause}.)"
    return ""


def _stand_in(verdict: _Verdict, witness: Witness) -> None:
    with contextlib.suppress(Exception):
        witness.stand_in(verdict.message, verdict.code, verdict.last_good_step)


def _print(message: str) -> None:
    with contextlib.suppress(OSError):  # the disk that holds stderr may be the one that is full
        print(f"mdrun: {message}", file=sys.stderr, flush=True)


def _let_go(error: BaseException) -> None:
    """Empty the frames that the error came through: what they hold would keep the connections open."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__


def _verdict(error: BaseException, comm: Comm, witness: Witness) -> _Verdict:
    words, is_peer = comm.last_words, isinstance(error, PeerError)
    if words is not None and is_peer:
        posted = words.posted()
        if posted is not None:
            return _Verdict(*posted, is_ours=False)
    message, code = _in_words(error), _exit_code(error)
    if comm.size > 1 and not isinstance(error, InputError | PeerError) and f"rank {comm.rank}" not in message:
        message = f"rank {comm.rank}: {message}"
    last_good_step = getattr(error, "last_good_step", None)
    with contextlib.suppress(Exception):
        message += witness.evidence(error)
    if words is None:
        return _Verdict(message, code, last_good_step, is_ours=True)
    is_first = words.post(message, code, last_good_step)
    if is_first is False and is_peer and (posted := words.posted()) is not None:
        return _Verdict(*posted, is_ours=False)
    is_cut_off = is_first is None or (is_first and is_peer)
    # Without the store, or with ranks beyond its reach, that the first one speaks must be settled in another way.
    is_ours = witness.speaks() if is_cut_off else bool(is_first)
    return _Verdict(message, code, last_good_step, is_ours, is_cut_off and comm.rank != 0)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return getattr(error, "exit_code", EXIT_FAULT)


def _in_words(error: BaseException) -> str:
    if isinstance(error, MdrunError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted."
    fault = f"{type(error).__name__}: {error}. This is a fault of mdrun or of a model; --debug shows where."
    return out_of_memory(error) or fault
