"""Frames on their way to the files, while the run goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from mdrun.run.directory import writing
from mdrun.run.trajectories.frames import Frame, Writer

WAITING = 2  # frames, beside the one that is being written


class WritingThread:
    """Hands frames to writers, in order, in a thread of its own; what goes wrong there is raised at the next call."""

    def __init__(self, writers: Mapping[Path, Writer]) -> None:
        self._writers = writers
        self._waiting: queue.Queue[Frame | Callable[[], None] | None] = queue.Queue(WAITING)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="trajectory", daemon=True)
        self._thread.start()

    def put(self, frame: Frame) -> None:
        """Waits where ``WAITING`` frames are ahead: memory is bounded.

        Raises:
            OutputError: an earlier frame could not be written.
        """
        self._raise_error()
        self._waiting.put(frame)

    def flush(self) -> None:
        """Wait until everything is in the files, and they on the disk.

        Raises:
            OutputError: something could not be written.
        """
        self._raise_error()
        done = threading.Event()
        self._waiting.put(done.set)
        done.wait()
        self._raise_error()

    def close(self) -> None:
        """Write what is waiting and let go of the files, whatever happened; raises nothing."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (order := self._waiting.get()) is not None:
            for path, writer in self._writers.items():
                if self._error is None:  # after one the rest is passed over: the run ends
                    try:
                        with writing(path):
                            writer.write(order) if isinstance(order, Frame) else writer.flush()
                    except Exception as error:
                        self._error = error
            if not isinstance(order, Frame):
                order()
        for path, writer in self._writers.items():
            try:
                with writing(path):
                    writer.close()
            except Exception as error:
                self._error = self._error or error

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error
