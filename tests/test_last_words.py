"""The last conversation through a store: the first speaks; a store that is silent or gone keeps nobody."""

from __future__ import annotations

import threading

import pytest

from mdrun import last_words
from mdrun.last_words import LastWords
from mdrun.run.directory import claims_the_word


class Store:
    """What LastWords asks of a store, in this process."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.values: dict[str, bytes] = {}

    def add(self, key: str, amount: int) -> int:
        self.counts[key] = self.counts.get(key, 0) + amount
        return self.counts[key]

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


class Silent(Store):
    """Its process was stopped, or the network cut: a question is never answered."""

    asked = 0

    def add(self, key: str, amount: int) -> int:
        self.asked += 1
        threading.Event().wait()
        raise AssertionError

    def check(self, keys: list[str]) -> bool:
        return bool(self.add(keys[0], 0))


class Gone(Store):
    """Its process has ended."""

    def add(self, key: str, amount: int) -> int:
        raise RuntimeError("Connection reset by peer")

    def check(self, keys: list[str]) -> bool:
        return bool(self.add(keys[0], 0))


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(last_words, "PATIENCE", 0.1)
    monkeypatch.setattr(last_words, "FAREWELL", 0.1)


def test_the_first_to_post_speaks_and_the_others_read_it():
    store = Store()
    ranks = [LastWords(store, rank, 3) for rank in range(3)]
    assert ranks[2].post("it broke", 3, 17) is True
    assert ranks[0].post("it broke here too", 1, None) is False
    assert ranks[1].posted() == ("it broke", 3, 17)


def test_what_nobody_posts_is_not_waited_for_for_ever():
    assert LastWords(Store(), 1, 2).posted() is None


def test_rank_0_knows_when_all_shares_are_there_and_the_others_what_became_of_them():
    store = Store()
    first, second = (LastWords(store, rank, 2) for rank in range(2))
    first.part_is_there()
    assert not first.parts_are_there()
    second.part_is_there()
    assert first.parts_are_there()
    assert second.rank_0_has_told(0.1) is None
    first.told(" here they are.")
    assert second.rank_0_has_told(0.1) == " here they are."
    assert first.rank_0_has_told(0.1) == ""
    second.leave()
    first.leave()


@pytest.mark.parametrize("kind", [Silent, Gone])
def test_a_store_that_is_lost_is_asked_once_and_nothing_hangs(kind):
    store = kind()
    words = LastWords(store, 1, 3)
    assert words.post("it broke", 1, None) is None
    assert words.posted() is None
    assert words.rank_0_has_told(60) is None
    words.part_is_there()
    words.leave()
    assert not isinstance(store, Silent) or store.asked == 1


def test_without_a_store_a_file_decides_who_speaks(tmp_path):
    assert [claims_the_word(tmp_path, "a") for _ in range(3)] == [True, False, False]
    assert claims_the_word(tmp_path, "b")  # of another run
    assert claims_the_word(tmp_path / "nowhere", "a")  # rather twice than never
    assert claims_the_word(tmp_path, "")
