"""A process that is killed while it writes checkpoints: one is always whole, and the newest that was promised."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from mdrun.run.checkpoint import write_whole
from mdrun.run.directory import CHECKPOINT, PREVIOUS_CHECKPOINT, RunDirectory

N_NUMBERS = 200_000  # 1.6 MB: a write takes some milliseconds


def write_for_ever(path: Path, first: int, told: int) -> None:
    """Checkpoint after checkpoint; a byte goes out for each that is there."""
    for step in range(first, 1 << 30):
        write_whole(path, {}, step=np.array(step), numbers=np.full(N_NUMBERS, float(step)))
        os.write(told, b".")


def killed_after(seconds: float, path: Path, first: int) -> int:
    """How many writes were promised to be done when the writer was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write_for_ever(path, first, writer)
        finally:
            os._exit(1)
    os.close(writer)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    promised = 0
    while news := os.read(reader, 4096):
        promised += len(news)
    os.close(reader)
    return promised


def steps_there(directory: Path) -> list[int]:
    """Of the checkpoints, newest first; all are whole."""
    steps = []
    for name in (CHECKPOINT, PREVIOUS_CHECKPOINT):
        if (directory / name).exists():
            with np.load(directory / name, allow_pickle=False) as file:
                step, numbers = int(file["step"]), file["numbers"]  # the archive's check sums are verified
            assert numbers.shape == (N_NUMBERS,)
            assert (numbers == step).all()
            steps.append(step)
    return steps


@pytest.mark.parametrize("n_kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_a_kill_at_any_moment_leaves_the_last_checkpoint_whole(tmp_path, n_kills):
    pauses, step, n_halves = random.Random(1), 0, 0
    for _ in range(n_kills):
        promised = killed_after(pauses.uniform(0.02, 0.2), tmp_path / CHECKPOINT, step)
        steps = steps_there(tmp_path)
        if promised or step:
            assert steps[0] >= step + promised - 1
        assert steps == sorted(steps, reverse=True)
        n_halves += any(path.name.startswith(".") for path in tmp_path.iterdir())
        step = steps[0] + 1 if steps else 0
    assert step > 0
    if n_kills == 50:
        assert n_halves > 10  # most of the time goes into writing, so this did hit its middle
    directory = RunDirectory(tmp_path, [], overwrite=True)
    directory.take_over()
    directory.begin()
    assert list(tmp_path.iterdir()) == []
