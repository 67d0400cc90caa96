"""Rows between the ranks of one host, through memory that they share: no system call and no second thread a message.

Each rank owns two boxes, for even and for odd exchanges. It writes its rows for everybody into one and then the number
of the exchange into its head; the others wait for that number and copy what is theirs. Nobody ends exchange k before
everybody has posted it, and nobody posts k + 1 before it has read k: a box is written anew only after all have read it.

Boxes are files without a name (memfd_create), opened by the other ranks through /proc: they go with their processes,
however these end.
"""

from __future__ import annotations

import mmap
import os
import select
import time
from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numba import njit, types

from mdrun.vectors import intrinsic

CLOSED = -1  # in place of the number of an exchange
STEP = 1 << 20  # bytes by which boxes grow
SLACK = 16 << 20  # bytes that a box may keep beyond its last letter
EAGER = 2000  # looks, of about half a microsecond, before a rank that waits goes to sleep between them
NAP = 5e-5  # s


def _atomic(builder, context, array_type, array):
    return context.make_array(array_type)(context, builder, array).data


@intrinsic
def _acquire(typing_context, head):
    """``head[0]``; what was written before it by another process is there to be read."""

    def emit(context, builder, sig, args):
        return builder.load_atomic(_atomic(builder, context, head, args[0]), "acquire", 8)

    return types.int64(head), emit


@intrinsic
def _release(typing_context, head, number):
    """``head[0] = number``, after all that was written before it."""

    def emit(context, builder, sig, args):
        builder.store_atomic(args[1], _atomic(builder, context, head, args[0]), "release", 8)
        return ir.Constant(ir.IntType(64), 0)

    return types.int64(head, types.int64), emit


@njit(cache=True)
def _posted(head):
    return _acquire(head)


@njit(cache=True)
def _post(head, number):
    _release(head, number)


class _Box:
    """A shared file: the number of the exchange, a note, where each rank's rows begin (bytes), the rows."""

    def __init__(self, file: int, n_ranks: int) -> None:
        self.file = file
        self._n_head = 2 + n_ranks
        self.rows_at = -(-8 * self._n_head // 64) * 64
        self._map()

    def _map(self) -> None:
        memory = mmap.mmap(self.file, 0)
        self.head = np.frombuffer(memory, np.int64, self._n_head)
        self.bytes = np.frombuffer(memory, np.uint8)

    def make_room(self, n_bytes: int) -> None:
        """For rows of so many bytes, and not for many more: by the owner."""
        needed = self.rows_at + n_bytes
        size = os.fstat(self.file).st_size
        if not needed <= size <= needed + SLACK:
            size = -(-(needed + needed // 4) // STEP) * STEP
            os.ftruncate(self.file, size)
            self._map()

    def rows(self, start: int, n_bytes: int) -> np.ndarray:
        if self.rows_at + start + n_bytes > len(self.bytes):
            self._map()
        return self.bytes[self.rows_at + start :][:n_bytes]


class Mailbox:
    """One rank's boxes and its view of the others'.

    Args:
        n_ranks: of the run.

    Raises:
        OSError, AttributeError: this system has no such files.
    """

    def __init__(self, n_ranks: int) -> None:
        self._n_ranks = n_ranks
        self._number = 0
        self._boxes: list[list[_Box]] = [[], []]  # of even and odd exchanges, by rank
        self._files = [os.memfd_create("mdrun") for _ in range(2)]
        self._open = list(self._files)
        for file in self._files:
            os.ftruncate(file, STEP)
        self.address = self._address()

    def _address(self) -> list[str | int]:
        """Where others find the boxes: this host since it was booted, the name space of processes, process, files."""
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return [boot, os.stat("/proc/self/ns/pid").st_ino, os.getpid(), *self._files]

    def connect(self, rank: int, addresses: Sequence[Sequence[str | int]], timeout_s: float) -> None:
        """Open the boxes of all ranks.

        Raises:
            OSError: one is on another host, or not to be opened.
        """
        if any(list(a[:2]) != list(self.address[:2]) for a in addresses):
            raise OSError("the ranks are on several hosts")
        self._rank, self._timeout_s = rank, timeout_s
        self._ended = select.poll()
        for peer, (_, _, pid, *files) in enumerate(addresses):
            for boxes, own, file in zip(self._boxes, self._files, files, strict=True):
                boxes.append(_Box(own if peer == rank else self._keep(_open_of(pid, file)), self._n_ranks))
            if peer != rank:
                self._ended.register(self._keep(os.pidfd_open(int(pid))), select.POLLIN)

    def _keep(self, file: int) -> int:
        self._open.append(file)
        return file

    def exchange(
        self, rows: np.ndarray, send: Sequence[int], out: np.ndarray, receive: Sequence[int], note: bool = False
    ) -> bool:
        """Bytes sorted by receiver go out, bytes sorted by sender come back; whether any rank left a note.

        Args:
            rows: (sum(send),) uint8.
            out: (sum(receive),) uint8, filled.
            send, receive: bytes to and from each rank.

        Raises:
            RuntimeError: another rank ended, or waited too long.
        """
        self._number += 1
        boxes = self._boxes[self._number % 2]
        starts = np.cumsum([0, *send])
        own = boxes[self._rank]
        own.make_room(len(rows))
        mine = slice(starts[self._rank], starts[self._rank + 1])
        target = own.rows(0, len(rows))
        target[: mine.start], target[mine.stop :] = rows[: mine.start], rows[mine.stop :]
        own.head[1] = note
        own.head[2:] = starts[:-1]
        _post(own.head, self._number)

        any_note, place = note, 0
        for peer, n_bytes in enumerate(receive):
            if peer == self._rank:
                out[place : place + n_bytes] = rows[mine]
            else:
                self._wait(boxes[peer].head, peer)
                any_note |= bool(boxes[peer].head[1])
                out[place : place + n_bytes] = boxes[peer].rows(int(boxes[peer].head[2 + self._rank]), n_bytes)
            place += n_bytes
        return any_note

    def _wait(self, head: np.ndarray, peer: int) -> None:
        looks, since = 0, time.monotonic()
        while (posted := _posted(head)) != self._number:
            if posted == CLOSED:
                raise RuntimeError(f"rank {peer} closed its connections")
            looks += 1
            if looks < EAGER:
                os.sched_yield()
                continue
            if self._ended.poll(0) and _posted(head) != self._number:
                raise RuntimeError("Connection closed by peer: a process has ended")
            if time.monotonic() - since > self._timeout_s:
                raise RuntimeError(f"rank {peer} did not come")
            time.sleep(NAP)

    def close(self) -> None:
        """Nobody need wait for this rank, which takes no more part."""
        for boxes in self._boxes:
            if len(boxes) == self._n_ranks:
                _post(boxes[self._rank].head, CLOSED)
        while self._open:
            os.close(self._open.pop())


def _open_of(pid: str | int, file: str | int) -> int:
    """Another process's file."""
    return os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
