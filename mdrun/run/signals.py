"""Signals that ask a run to stop: the first is a wish for a good moment, the second ends the process at once.

Python calls handlers between two of its own instructions, which a rank that waits for another inside of a library may
not reach for minutes. So the system's part of the handler writes the signal's number into a pipe, and a thread
that does nothing else reads it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from mdrun.errors import EXIT_STOPPED

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
ECHO_S = 2.0  # launchers pass on what reached the ranks by itself as well: that soon, it is the same wish
MEETING_S = 10.0  # after a signal, for ranks that are still to meet; then they stop together
SHOW_CURSOR = b"\x1b[?25h"


class Signals:
    """What was asked for by signals, while it is entered; inert outside of the main thread, where none arrive.

    A signal that the process was started to ignore (by nohup, or in the background of a script) stays ignored.

    Attributes:
        wish: the number of the first that came; 0 for none.
    """

    def __init__(self, rank: int = 0) -> None:
        self.wish = 0
        self._rank = rank
        self._came_at = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writer, False)
        self._ear = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._ear.start()
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, _left_to_the_thread)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._before:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._before = {}
        os.write(self._writer, b"\0")
        self._ear.join()
        os.close(self._reader)
        os.close(self._writer)

    @contextlib.contextmanager
    def meeting(self) -> Iterator[None]:
        """While ranks wait for each other to come: nothing is begun, and a wish need not wait for them all."""
        has_met = threading.Event()

        def watch() -> None:
            while not has_met.wait(0.1):
                if self.wish and time.monotonic() - self._came_at > MEETING_S:
                    self._end(
                        f"{signal_name(self.wish)} while the ranks had not all met: nothing was begun. Start it again.",
                        EXIT_STOPPED,
                    )

        threading.Thread(target=watch, name="meeting", daemon=True).start()
        try:
            yield
        finally:
            has_met.set()

    def _listen(self) -> None:
        while True:
            for number in os.read(self._reader, 64):
                if number == 0:
                    return
                if number in STOPPING:  # others have handlers of their own
                    self._take(number)

    def _take(self, number: int) -> None:
        now = time.monotonic()
        if not self.wish:
            self.wish, self._came_at = number, now
        elif now - self._came_at > ECHO_S:
            self._end(
                f"{signal_name(number)} after {signal_name(self.wish)}: ended at once, {now - self._came_at:.0f} s "
                "after the first, which asked to stop at the end of a step. What is kept is the last checkpoint.",
                128 + number,
            )

    def _end(self, words: str, code: int) -> None:
        with contextlib.suppress(OSError):
            if os.isatty(2) and os.environ.get("TERM", "dumb") != "dumb":
                os.write(2, SHOW_CURSOR)  # a progress bar may have hidden it
            os.write(2, f"mdrun: rank {self._rank}: {words}\n".encode())
        os._exit(code)


def signal_name(number: int) -> str:
    """``SIGTERM``."""
    return signal.Signals(number).name


def _left_to_the_thread(number: int, frame: FrameType | None) -> None:
    """A signal without a handler of Python's would not come to the pipe."""
