"""Where words go: rich on a terminal, plain greppable lines elsewhere, and never a failure for a glyph."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 220  # plain lines are for grep, not for a screen: no wrapping


def is_plain(stream: TextIO) -> bool:
    """True unless the stream is a terminal that takes colour."""
    return not stream.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"


def forgive_glyphs() -> None:
    """Let stdout and stderr replace what their encoding lacks, instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class _Console(Console):
    def print(self, *objects: Any, **more: Any) -> None:
        try:
            super().print(*objects, **more)
        except OSError:  # the disk that holds the output is full
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Nobody reads any more (``| head``): the run goes on, and its directory says the rest."""
        self.quiet = True
        with open(os.devnull, "w") as nowhere:  # what is still buffered must go somewhere
            os.dup2(nowhere.fileno(), self.file.fileno())


def make_console(stream: TextIO | None = None) -> Console:
    """A console for the stream (stdout), without colours or control codes where it is plain."""
    stream = stream or sys.stdout
    if is_plain(stream):
        return _Console(file=stream, color_system=None, force_terminal=False, width=PLAIN_WIDTH, highlight=False)
    return _Console(file=stream, highlight=False)


def clock_time(seconds: float) -> str:
    """``1:02:03``."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def show_named(console: Console, title: str, rows: list[tuple[str, str]]) -> None:
    """A name and a line for each row, in a panel on a terminal."""
    if console.is_terminal:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold")
        grid.add_column()
        for name, text in rows:
            grid.add_row(name, Text(text))
        console.print(Panel(grid, title=title, title_align="left", expand=False))
    else:
        for name, text in rows:
            console.print(f"{name}: {text}", markup=False)


def make_table(console: Console, title: str | None = None) -> Table:
    """Ruled on a terminal; bare columns where lines are to be grepped."""
    style = box.SIMPLE_HEAD if console.is_terminal else None
    return Table(
        title=title, box=style, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )
