"""Ranks that a single process starts on its host, for one question."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from mdrun.comm import meeting_place
from mdrun.integrate.bonds import Bonds, make_bonds
from mdrun.run.settings import Settings
from mdrun.state import FIELDS, State
from mdrun.validate.subject import Subject

LIMIT_S = 600.0  # for all of them to answer
GRACE_S = 3.0  # for the others to follow a rank that failed
ATOMS, SETTINGS, ANSWERS = "atoms.npz", "settings.json", "answers.npz"
LAST_WORDS = 300  # characters of what a rank said on stderr


class RanksFailed(Exception):
    """They ended badly, or not at all; the text says how."""


def on_ranks_of_their_own(n_ranks: int, subject: Subject) -> dict[str, np.ndarray]:
    """``mdrun.validate.ranks.answers`` of so many processes.

    Raises:
        RanksFailed: within ``LIMIT_S`` and a few seconds.
    """
    with tempfile.TemporaryDirectory(prefix="mdrun-validate-") as name:
        folder = Path(name)
        _save(subject, folder, n_ranks)
        _meeting, environments = meeting_place(n_ranks)
        ranks: list[subprocess.Popen] = []
        try:
            ranks += [_start(folder, environment) for environment in environments]
            trouble = _wait(ranks, time.monotonic() + LIMIT_S)
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                rank.wait()
        if trouble or not (folder / ANSWERS).exists():
            raise RanksFailed(f"{n_ranks} ranks gave no answer: {trouble}. {_last_words(folder, n_ranks)}")
        with np.load(folder / ANSWERS, allow_pickle=False) as found:
            return dict(found)


def _start(folder: Path, environment: dict[str, str]) -> subprocess.Popen:
    with _words(folder, int(environment["RANK"])).open("wb") as words:
        return subprocess.Popen(
            [sys.executable, "-m", "mdrun.validate.worker", str(folder)],
            env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=words, stderr=words,
        )  # fmt: skip


def _wait(ranks: list[subprocess.Popen], deadline: float) -> str:
    """Empty when all ended well, else what went wrong."""
    while True:
        codes = [rank.poll() for rank in ranks]
        if all(code == 0 for code in codes):
            return ""
        if any(codes):
            end = min(deadline, time.monotonic() + GRACE_S)
            while time.monotonic() < end and any(rank.poll() is None for rank in ranks):
                time.sleep(0.05)
            return "; ".join(f"rank {rank} ended with code {code}" for rank, code in enumerate(codes) if code)
        if time.monotonic() > deadline:
            return f"{LIMIT_S:g} s were not enough"
        time.sleep(0.05)


def _words(folder: Path, rank: int) -> Path:
    return folder / f"words.{rank}"


def _last_words(folder: Path, n_ranks: int) -> str:
    """What the first rank that said anything said last, on one line."""
    texts = (_words(folder, rank).read_text(errors="replace").strip() for rank in range(n_ranks))
    return " ".join(next(filter(None, texts), "They said nothing.")[-LAST_WORDS:].split())


def _save(subject: Subject, folder: Path, n_ranks: int) -> None:
    """All atoms, which this process owns, and the settings with the threads of each rank."""
    state = subject.state
    np.savez(
        folder / ATOMS,
        allow_pickle=False,
        cell=state.cell.numpy(),
        pbc=np.array(state.pbc),
        numbers=np.array(state.numbers),
        n_dof=np.array(subject.n_dof),
        bonded=subject.bonds.pairs,
        bond_shifts=subject.bonds.shifts,
        bond_lengths=subject.bonds.lengths,
        **{name: values.cpu().numpy() for name, values in state.fields().items()},
    )
    cores = subject.settings.threads or len(os.sched_getaffinity(0))
    settings = asdict(subject.settings) | {"threads": max(cores // n_ranks, 1)}
    (folder / SETTINGS).write_text(json.dumps(settings))


def load(folder: Path, is_first: bool) -> tuple[Settings, State, int, Bonds]:
    """What was saved: settings, all atoms on the first rank and none on the others, degrees of freedom, bonds."""
    values = json.loads((folder / SETTINGS).read_text())
    settings = Settings(**values | {"replicate": tuple(values["replicate"])})
    with np.load(folder / ATOMS, allow_pickle=False) as kept:
        arrays = {f.name: torch.from_numpy(kept[f.name]) for f in FIELDS}
        state = State(
            cell=torch.from_numpy(kept["cell"]),
            pbc=tuple(bool(p) for p in kept["pbc"]),  # type: ignore[arg-type]
            numbers=tuple(int(z) for z in kept["numbers"]),
            n_total=len(arrays["ids"]),
            **(arrays if is_first else {name: values[:0] for name, values in arrays.items()}),
        )
        bonds = make_bonds(kept["bonded"], kept["bond_shifts"], kept["bond_lengths"])
        return settings, state, int(kept["n_dof"]), bonds
