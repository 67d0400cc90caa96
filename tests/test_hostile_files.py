"""What is no regular file is refused before it is read: a pipe would keep a run waiting, a device would never end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mdrun.errors import InputError
from mdrun.potentials.eam_files import read_eam
from mdrun.potentials.pair_tables import read_toml
from mdrun.potentials.tabulated import read_table_file
from mdrun.run.config import read_config
from mdrun.structures.readers import read_frame

READERS = {
    "eam": read_eam,
    "table": read_table_file,
    "toml": read_toml,
    "config": read_config,
    "structure": lambda path: read_frame(str(path)),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_a_device_and_a_directory_are_refused(reader, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(InputError, match=r"not a regular file|a directory"):
            READERS[reader](path)


TOKENS = st.sampled_from(
    [
        "steps",
        "=",
        "1",
        "-1",
        "nan",
        "1e999",
        "9" * 400,
        '"',
        "[",
        "]",
        "{",
        "\n",
        "N",
        "R",
        "#",
        "Ar",
        "0.5",
        "é",
        "\0",
    ]
)


@pytest.mark.parametrize("reader", [name for name in READERS if name != "structure"])
@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(words=st.lists(TOKENS, max_size=40))
@example(words=["steps = " + "9" * 5000])
@example(words=["steps = " + "[" * 5000])
def test_words_in_any_order_are_read_or_refused(reader, words, tmp_path):
    (tmp_path / "a").write_text(" ".join(words), encoding="utf-8")
    try:
        READERS[reader](tmp_path / "a")
    except InputError as told:
        assert "\n\n" not in str(told)  # noqa: PT017
