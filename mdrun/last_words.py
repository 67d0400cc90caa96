"""What ranks still tell each other when a run fails, through the store in which they met.

The store lives in one process: the launcher's, or rank 0's, which may be the one that died, stopped or lies beyond a
cut cable. No question to it is waited for longer than ``PATIENCE``, and after one without an answer none is asked.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from typing import Any

ERROR_KEY = "mdrun/error"
COUNT_KEY = "mdrun/errors"
TOLD_KEY = "mdrun/told"
GONE_KEY = "mdrun/gone"
PARTS_KEY = "mdrun/parts"
FAREWELL = 2.0  # seconds for the others to leave before rank 0 does; one that was killed never says so
PATIENCE = 5.0  # seconds for the store to answer, and for rank 0 to write down what happened before the others leave
LONG_PATIENCE = 60.0  # seconds for the same where rank 0 collects and writes all atoms


class StoreLost(Exception):
    """The store does not answer."""


class LastWords:
    """One rank's end of the conversation."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._is_lost = False

    def post(self, message: str, code: int, last_good_step: int | None) -> bool | None:
        """Whether this rank is the first to post an error, whose message counts; None where the store is lost."""
        try:
            is_first = self._ask(lambda: self._store.add(COUNT_KEY, 1)) == 1
            if is_first:
                words = json.dumps([message, code, last_good_step])
                self._ask(lambda: self._store.set(ERROR_KEY, words))
        except StoreLost:
            return None
        return is_first

    def posted(self) -> tuple[str, int, int | None] | None:
        """What another rank posted; None if nothing comes before patience ends."""
        try:
            if not self._comes(ERROR_KEY, PATIENCE):
                return None
            message, code, last_good_step = json.loads(self._ask(lambda: self._store.get(ERROR_KEY)))
        except StoreLost:
            return None
        return message, code, last_good_step

    def part_is_there(self) -> None:
        """Tell rank 0 that this rank has written its share of something."""
        with contextlib.suppress(StoreLost):
            self._ask(lambda: self._store.add(PARTS_KEY, 1))

    def parts_are_there(self) -> bool:
        """Whether every rank's share comes before patience ends; asked by rank 0, its own counted."""
        deadline = time.monotonic() + PATIENCE
        try:
            while self._ask(lambda: self._store.add(PARTS_KEY, 0)) < self._size:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.02)
        except StoreLost:
            return False
        return True

    def rank_0_has_told(self, patience: float) -> str | None:
        """Wait for rank 0 to write down the run's end: what it adds to the message; None if it never says. On rank 0
        itself nothing."""
        try:
            if self._rank == 0:
                return ""
            if self._comes(TOLD_KEY, patience):
                return self._ask(lambda: self._store.get(TOLD_KEY)).decode().rstrip()
        except StoreLost:
            pass
        return None

    def told(self, more: str) -> None:
        """The run's end is written down: by rank 0, which adds so much to the message, as others may print."""
        try:
            if self._rank == 0:
                self._ask(lambda: self._store.set(TOLD_KEY, more or " "))
        except StoreLost:
            pass

    def leave(self) -> None:
        """A launcher kills all once one has ended: rank 0, which may hold the store, goes last."""
        try:
            if self._rank:
                self._ask(lambda: self._store.add(GONE_KEY, 1))
                return
            deadline = time.monotonic() + FAREWELL
            while self._ask(lambda: self._store.add(GONE_KEY, 0)) < self._size - 1 and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.05)  # for the last answer to arrive
        except StoreLost:
            pass

    def _comes(self, key: str, patience: float) -> bool:
        """Whether the store gets the key before patience ends. Asked again and again: a wait that ran out would leave
        the connection to the store unusable."""
        deadline = time.monotonic() + patience
        while not self._ask(lambda: self._store.check([key])):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _ask(self, question: Callable[[], Any]) -> Any:
        """The store's answer. By a thread that may be left behind: the store's client knows no time-out.

        Raises:
            StoreLost: there is none.
        """
        if self._is_lost:
            raise StoreLost
        answers: list[Any] = []

        def ask() -> None:
            try:
                answers.append(question())
            except RuntimeError:  # the connection is gone
                return

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        if not answers:
            self._is_lost = True
            raise StoreLost
        return answers[0]
