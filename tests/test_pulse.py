"""When the ranks agree, on what, and what follows; with a clock that the test turns."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from mdrun.comm import Comm
from mdrun.run import pulse
from mdrun.run.pulse import BEAT_S, Pulse

DAY = 86400.0


class World:
    """One rank of a run: its clock, what it was asked, what it did at which step."""

    def __init__(self, monkeypatch, comm: Comm | None = None, **options: Any) -> None:
        self.now = 10 * DAY
        monkeypatch.setattr(pulse.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(pulse.time, "time", lambda: psutil.Process().create_time() + 60.0)  # a minute old
        self.signals = SimpleNamespace(wish=0)
        self.kept: list[int] = []
        self.beats: list[int] = []
        self.sim: Any = SimpleNamespace(step=0, stopping=None)
        defaults = {"stop_file": None, "max_hours": None, "checkpoint_s": 0.0}
        self.pulse = Pulse(
            comm or Comm(), self.signals, checkpoint=lambda sim: self.kept.append(sim.step),  # type: ignore[arg-type]
            tell=lambda sim: self.beats.append(sim.step), **{**defaults, **options},
        )  # fmt: skip

    def run(self, n_steps: int, seconds: float) -> None:
        """So many steps of so many seconds, unless it stops."""
        for _ in range(n_steps):
            if self.sim.stopping:
                return
            self.pulse(self.sim)
            self.sim.step += 1
            self.now += seconds


def test_agreements_come_at_most_a_beat_apart_whatever_a_step_takes(monkeypatch):
    world = World(monkeypatch)
    world.run(4000, 1e-3)
    gaps = [b - a for a, b in itertools.pairwise(world.beats)]
    assert gaps[:8] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert set(gaps[9:]) <= {299, 300}
    assert max(gaps) * 1e-3 <= BEAT_S


def test_steps_longer_than_a_beat_are_looked_at_one_by_one(monkeypatch):
    world = World(monkeypatch)
    world.run(500, 1e-3)
    n_fast = len(world.beats)
    world.run(500, 5.0)  # a step becomes slow: one more interval of the old kind, then each
    assert [b - a for a, b in itertools.pairwise(world.beats[n_fast:])][1:] == [1] * (len(world.beats) - n_fast - 2)
    assert len(world.beats) - n_fast > 150


class OtherRank(Comm):
    """A second rank in mind, with wishes of its own."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank, self.size = rank, 2
        self.other = torch.zeros(3, dtype=torch.float64)

    def all_max(self, values: torch.Tensor) -> torch.Tensor:
        return torch.maximum(values, self.other)


def test_the_slowest_rank_sets_the_pace(monkeypatch):
    comm = OtherRank(1)
    comm.other[2] = BEAT_S / 10
    world = World(monkeypatch, comm)
    world.run(200, 1e-5)
    assert [b - a for a, b in itertools.pairwise(world.beats)][5:] == [10] * (len(world.beats) - 6)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_wish_of_any_rank_is_every_ranks(monkeypatch, rank):
    comm = OtherRank(rank)
    world = World(monkeypatch, comm)
    world.run(10, 1e-3)
    assert world.sim.stopping is None
    comm.other[0] = 12  # SIGUSR2: the other knows it, this one does not
    world.run(1000, 1e-3)
    assert world.sim.stopping == "SIGUSR2"
    assert world.sim.step - 1 == world.beats[-1] < 40


def test_its_own_signal_stops_it(monkeypatch):
    world = World(monkeypatch)
    world.run(100, 1e-3)
    world.signals.wish = 15
    world.run(1000, 1e-3)
    assert world.sim.stopping == "SIGTERM"
    assert world.kept == []  # the last checkpoint is for whoever ends the run


def test_a_stop_file_from_before_the_run_is_not_meant_for_it(monkeypatch, tmp_path):
    file: Path = tmp_path / "STOP"
    file.touch()
    world = World(monkeypatch, stop_file=file)
    assert not file.exists()
    world.run(10, 1e-3)
    assert world.sim.stopping is None
    file.touch()
    world.run(1000, 1e-3)
    assert world.sim.stopping == "the file STOP"
    assert file.exists()  # until the run has obeyed
    world.pulse.clear()
    assert not file.exists()


def test_hours_count_from_the_start_of_the_process_and_end_a_hundredth_early(monkeypatch):
    world = World(monkeypatch, max_hours=1.0)
    world.run(3600, 1.0)
    assert world.sim.stopping == "--max-hours 1"
    assert world.sim.step - 1 == 3600 * 0.99 - 60


def test_hours_of_another_rank_than_the_first_do_not_count(monkeypatch):
    world = World(monkeypatch, OtherRank(1), max_hours=1.0)
    world.run(8000, 1.0)
    assert world.sim.stopping is None


def test_checkpoints_by_the_clock(monkeypatch):
    world = World(monkeypatch, checkpoint_s=900.0)
    world.run(5000, 1.0)
    assert world.kept == [900, 1800, 2700, 3600, 4500]


def test_checkpoints_are_the_first_ranks_to_ask_for(monkeypatch):
    comm = OtherRank(1)
    world = World(monkeypatch, comm, checkpoint_s=900.0)
    world.run(2000, 1.0)
    assert world.kept == []
    comm.other[1] = 1.0
    world.run(1, 1.0)
    assert world.kept == [2000]
