"""Rows through shared memory: what arrives is what was sent, whatever its size; nobody waits for one who has gone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdrun.mailbox import SLACK, STEP, Mailbox

LIMIT_S = 20.0
SIZES = st.one_of(st.integers(0, 40), st.sampled_from([STEP - 64, STEP, 3 * STEP]))


@contextmanager
def connected(n_ranks: int, timeout_s: float = LIMIT_S) -> Iterator[list[Mailbox]]:
    boxes = [Mailbox(n_ranks) for _ in range(n_ranks)]
    addresses = [box.address for box in boxes]
    for rank, box in enumerate(boxes):
        box.connect(rank, addresses, timeout_s)
    try:
        yield boxes
    finally:
        for box in boxes:
            box.close()


def letter(number: int, sender: int, receiver: int, n_bytes: int) -> np.ndarray:
    return np.random.default_rng([number, sender, receiver]).integers(0, 256, n_bytes, np.uint8)


def post(box: Mailbox, rank: int, number: int, sizes: np.ndarray, note: bool) -> tuple[np.ndarray, bool]:
    rows = np.concatenate([letter(number, rank, peer, n) for peer, n in enumerate(sizes[rank])])
    out = np.empty(sizes[:, rank].sum(), np.uint8)
    return out, box.exchange(rows, sizes[rank].tolist(), out, sizes[:, rank].tolist(), note)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_what_arrives_is_what_was_sent(data):
    n = data.draw(st.integers(1, 4))
    rounds = data.draw(st.lists(st.lists(SIZES, min_size=n * n, max_size=n * n), min_size=1, max_size=6))
    writers = data.draw(st.lists(st.integers(-1, n - 1), min_size=len(rounds), max_size=len(rounds)))
    with connected(n) as boxes:

        def play(rank: int) -> None:
            for number, (flat, writer) in enumerate(zip(rounds, writers, strict=True)):
                sizes = np.array(flat).reshape(n, n)
                arrived, any_note = post(boxes[rank], rank, number, sizes, note=rank == writer)
                expected = np.concatenate([letter(number, peer, rank, sizes[peer, rank]) for peer in range(n)])
                np.testing.assert_array_equal(arrived, expected)
                assert any_note == (writer >= 0)

        with ThreadPoolExecutor(n) as pool:
            list(pool.map(play, range(n)))


def test_a_box_gives_back_what_a_large_letter_took():
    large, small = np.array([[0, 2 * SLACK]] * 2), np.array([[0, 8]] * 2)
    with connected(2) as boxes, ThreadPoolExecutor(2) as pool:
        for number, sizes in enumerate([large, large, small, small]):
            list(pool.map(lambda r, k=number, s=sizes: post(boxes[r], r, k, s, False), range(2)))
        assert all(len(parity[0].bytes) <= SLACK for parity in boxes[0]._boxes)


def one_byte_to_rank_1(mailbox: Mailbox) -> None:
    mailbox.exchange(np.zeros(1, np.uint8), [0, 1], np.zeros(1, np.uint8), [0, 1])


def test_one_who_closed_is_not_waited_for():
    with connected(2) as boxes:
        boxes[1].close()
        with pytest.raises(RuntimeError, match="rank 1 closed"):
            one_byte_to_rank_1(boxes[0])


def test_one_who_does_not_come_is_waited_for_so_long():
    with connected(2, timeout_s=0.2) as boxes, pytest.raises(RuntimeError, match="rank 1 did not come"):
        one_byte_to_rank_1(boxes[0])


def test_one_who_was_killed_is_not_waited_for():
    program = (
        "import json, time; from mdrun.mailbox import Mailbox; m = Mailbox(2); print(json.dumps(m.address), flush=True)"
        "; time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        mailbox = Mailbox(2)
        mailbox.connect(0, [mailbox.address, json.loads(other.stdout.readline())], LIMIT_S)
        other.kill()
        with pytest.raises(RuntimeError, match="a process has ended"):
            one_byte_to_rank_1(mailbox)


def test_another_host_is_told_apart():
    mailbox = Mailbox(2)
    with pytest.raises(OSError, match="several hosts"):
        mailbox.connect(0, [mailbox.address, ["another boot", *mailbox.address[1:]]], LIMIT_S)
