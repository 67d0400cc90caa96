"""Hostile input: valid files that went wrong, and what a reader may answer to them.

A test of a reader ``read(path)`` is::

    @hostile
    def test_a_hostile_file_is_read_or_refused(n_inputs, tmp_path):
        feed_files(read, tmp_path / "a.ext", mutations(VALID), n_inputs)
"""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdrun.errors import MOST_CHARACTERS, MdrunError

FEW, MANY = 20, 1000
CPU_SECONDS = 15  # for one input; a valid one takes milliseconds
CHILD_SECONDS = 60  # likewise, by the clock: whatever hangs does so for ever
SPARE_BYTES = 2 * 1024**3  # what one input may make a reader ask for beside what the process holds
NUMBERS = [b"nan", b"inf", b"-inf", b"1e308", b"-1e308", b"1e-320", b"0", b"-0", b"-1", b"1", b"1.5", b"2147483648",
           b"9223372036854775807", b"99999999999999999999", b"9" * 5000, b"1e9", b"1000000000", b"1_0", b"0x10",
           "٣".encode(), b"1d5", b"--1", b"1e", b"."]  # fmt: skip
WORDS = [b"", b"\0", b"\n", b"\r", b"\t", b"#", b'"', b"'", b"=", b":", b",", b"[", b"]", b"{", b"}", b"(", b"<", b"&",
         b"%s", b"{0}", b"..", b"/dev/zero", b"__class__", b"\xff\xfe", b"\x1b[31m", "é".encode(), "🦀".encode(),
         "\u202e".encode(), "\ufeff".encode(), b"X", b"Cu", b"T", b"true", b"[" * 5000, b"x" * 100_000]  # fmt: skip
_NUMBER = re.compile(rb"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")
_WORD = re.compile(rb"[^\s=:,]+")


def how_often(n: int) -> Any:
    """Settings of hypothesis for ``n`` inputs, the same ones each time."""
    return settings(max_examples=n, deadline=None, derandomize=True, database=None,
                    suppress_health_check=list(HealthCheck))  # fmt: skip


#: the argument ``n_inputs`` of a test: a few, and as ``slow`` a thousand
hostile = pytest.mark.parametrize(
    "n_inputs", [pytest.param(FEW, id="few"), pytest.param(MANY, id="thousand", marks=pytest.mark.slow)]
)


def answers_or_refuses(read: Callable[[Any], object], one: Any) -> None:
    """A reader returns, or says in one paragraph why not; it neither hangs nor asks for much memory."""
    with limited():
        try:
            read(one)
            return
        except MdrunError as told:
            message = str(told)
    assert message
    assert "MemoryError" not in message, message
    assert len(message) <= MOST_CHARACTERS, message[:300]
    assert message.isprintable(), repr(message)


def answers_or_refuses_in_a_child(read: Callable[[Any], object], one: Any) -> None:
    """The same for a reader that may sleep or spin in a library, where only a kill ends it; or may crash."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            answers_or_refuses(read, one)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    handle = os.pidfd_open(child)
    try:
        is_done = bool(select.select([handle], [], [], CHILD_SECONDS)[0])
    finally:
        os.close(handle)
        if not is_done:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert is_done, f"more than {CHILD_SECONDS} s"
    assert status == 0, f"ended with {os.waitstatus_to_exitcode(status)}"


def feed(
    read: Callable[[Any], object], inputs: st.SearchStrategy, n_inputs: int, judge: Callable = answers_or_refuses
) -> None:
    """Give a reader that many inputs: each must be answered or refused, see ``answers_or_refuses``."""

    @how_often(n_inputs)
    @given(inputs)
    def each(one: Any) -> None:
        judge(read, one)

    each()


def feed_files(read: Callable[[Path], object], path: Path, inputs: st.SearchStrategy[bytes], n_inputs: int) -> None:
    """The same where the reader wants a file of some name, which is written for each input."""

    def written(content: bytes) -> object:
        path.write_bytes(content)
        return read(path)

    feed(written, inputs, n_inputs)


@st.composite
def mutations(draw: st.DrawFn, *valid: bytes) -> bytes:
    """One of the files with one to four things wrong; one in ten is not made from a file at all."""
    kind = draw(st.integers(0, 29))
    if kind == 0:
        return draw(st.binary(max_size=300))
    if kind == 1:
        return draw(st.text(max_size=300)).encode("utf-8", "surrogatepass")
    if kind == 2:
        words = st.sampled_from([*WORDS, *NUMBERS, b" ", b"\n", *_WORD.findall(valid[0])[:200]])
        return b" ".join(draw(st.lists(words, max_size=40)))
    content = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(1, 4))):
        content = draw(st.sampled_from(CHANGES))(draw, content)
    return content


def texts(*valid: str) -> st.SearchStrategy[str]:
    """The same for what is typed on a command line, where no NUL can stand."""
    return mutations(*(text.encode() for text in valid)).map(
        lambda content: content.decode("utf-8", "surrogateescape").replace("\0", "")
    )


def _spot(draw: st.DrawFn, content: bytes) -> int:
    return draw(st.integers(0, max(len(content) - 1, 0)))


def _flip(draw: st.DrawFn, content: bytes) -> bytes:
    at = _spot(draw, content)
    return content[:at] + bytes(b ^ draw(st.integers(1, 255)) for b in content[at : at + 1]) + content[at + 1 :]


def _cut(draw: st.DrawFn, content: bytes) -> bytes:
    return content[: _spot(draw, content)]


def _insert(draw: st.DrawFn, content: bytes) -> bytes:
    at = _spot(draw, content)
    return content[:at] + draw(st.sampled_from(WORDS)) + content[at:]


def _replace(pattern: re.Pattern[bytes], others: list[bytes]) -> Callable[[st.DrawFn, bytes], bytes]:
    def change(draw: st.DrawFn, content: bytes) -> bytes:
        found = list(pattern.finditer(content))
        if not found:
            return content
        # The first ones are counts and keys: they deserve half of the attention.
        match = found[draw(st.one_of(st.integers(0, min(len(found), 20) - 1), st.integers(0, len(found) - 1)))]
        return content[: match.start()] + draw(st.sampled_from(others)) + content[match.end() :]

    return change


def _lines(change: Callable[[st.DrawFn, list[bytes], int], None]) -> Callable[[st.DrawFn, bytes], bytes]:
    def changed(draw: st.DrawFn, content: bytes) -> bytes:
        lines = content.split(b"\n")
        change(draw, lines, draw(st.integers(0, len(lines) - 1)))
        return b"\n".join(lines)

    return changed


def _double(draw: st.DrawFn, lines: list[bytes], at: int) -> None:
    lines.insert(at, lines[at])


def _drop(draw: st.DrawFn, lines: list[bytes], at: int) -> None:
    del lines[at]


def _swap(draw: st.DrawFn, lines: list[bytes], at: int) -> None:
    other = draw(st.integers(0, len(lines) - 1))
    lines[at], lines[other] = lines[other], lines[at]


def _stretch(draw: st.DrawFn, lines: list[bytes], at: int) -> None:
    lines[at] = lines[at][:100] * 300


CHANGES = [_flip, _cut, _insert, _replace(_NUMBER, NUMBERS), _replace(_NUMBER, NUMBERS), _replace(_WORD, WORDS),
           _lines(_double), _lines(_drop), _lines(_swap), _lines(_stretch)]  # fmt: skip


class Hang(BaseException):
    """No Exception, which a reader might take for one of the file's."""


@contextmanager
def limited() -> Iterator[None]:
    """A limit of processor time, which raises Hang, and of memory, which raises MemoryError."""

    def late(*_: object) -> None:
        raise Hang(f"more than {CPU_SECONDS} s of processor time")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + SPARE_BYTES, hard))
    before = signal.signal(signal.SIGVTALRM, late)  # pytest-timeout has the other timer
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
