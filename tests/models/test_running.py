"""Runs with machine-learned potentials that need no package, from the command line."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk

from mdrun.strategies.choice import KINDS
from mdrun.strategies.names import AUTO, STRATEGIES
from tests.cli.launcher import call, torchrun
from tests.own_models import EXAMPLE

ODD = """
import torch
from mdrun.potentials.base import UnknownSpecies
from mdrun.potentials.graph_model import Needs

class Swirling(torch.nn.Module):
    "Forces that no energy has, and a virial that is not a number."
    cutoff, n_layers, needs = 4.0, 1, Needs(direct_forces=True)

    def forward(self, graph):
        forces = graph.sum_edges(torch.linalg.cross(graph.vectors, torch.ones_like(graph.vectors)))
        return graph.vectors.new_zeros(graph.n_owned), 1e-2 * forces, graph.vectors.new_full((3, 3), torch.nan)

def swirling(numbers):
    return Swirling()

def choosy(numbers):
    missing = [z for z in numbers if z != 18]
    raise UnknownSpecies("choosy", missing, ["Ar"])
"""


@pytest.fixture
def copper(tmp_path) -> Path:
    atoms = bulk("Cu", "fcc", a=3.6, cubic=True) * (2, 1, 1)
    atoms.rattle(0.05, seed=3)
    ase.io.write(tmp_path / "cu.xyz", atoms)
    (tmp_path / "odd.py").write_text(ODD)
    return tmp_path / "cu.xyz"


def test_a_learned_model_goes_on_to_the_last_bit(copper, tmp_path):  # resumed from another directory
    (tmp_path / "m").mkdir()
    shutil.copy(EXAMPLE, tmp_path / "m" / "net.py")
    words = (copper, "--model", "m/net.py:make", "--init-temperature", 300, "--seed", 4, "--skin", 0.2)
    call("simulate", *words, "--steps", 16, "--out", "whole", cwd=tmp_path).expect(0)
    call("simulate", *words, "--steps", 9, "--out", "parts", cwd=tmp_path).expect(0)
    call("resume", "../parts", "--steps", 16, cwd=tmp_path / "m").expect(0)
    whole, parts = (dict(np.load(tmp_path / name / "checkpoint.npz")) for name in ("whole", "parts"))
    for name in ("positions", "momenta"):
        assert np.array_equal(whole[name], parts[name])


def test_exchanges_of_a_run_that_went_on_are_those_of_its_last_process(copper, tmp_path):
    """With lists that stay as they are each step sends the same, so that where the run stopped leaves no mark."""
    shutil.copy(EXAMPLE, tmp_path / "net.py")
    words = (copper, "--model", "net.py:make", "--init-temperature", 10, "--seed", 4, "--skin", 1, "--log-every", 0)

    def sent(*words: object, out: str) -> dict[tuple[str, int], float]:
        torchrun(2, "-m", "mdrun", *words, cwd=tmp_path).wait().expect(0)
        status = json.loads((tmp_path / out / "status.json").read_text())
        return {(e["exchange"], e["rank"]): e["bytes_per_step"] for e in status["exchanges"]}

    whole = sent("simulate", *words, "--steps", 9, "--out", "whole", out="whole")
    sent("simulate", *words, "--steps", 6, "--out", "parts", out="parts")
    assert sent("resume", "parts", "--steps", 9, out="parts") == whole
    assert min(whole.values()) > 0


def test_a_virial_that_is_not_a_number_stops_no_run_that_only_logs_it(copper, tmp_path):
    more = (
        "--model",
        "odd.py:swirling",
        "--steps",
        20,
        "--log-every",
        5,
        "--init-temperature",
        300,
        "--seed",
        2,
        "--out",
        "x",
    )
    call("simulate", copper, *more, cwd=tmp_path).expect(0)
    with (tmp_path / "x" / "thermo.csv").open() as file:
        totals = [float(row["total_eV"]) for row in csv.DictReader(file)]
    assert abs(totals[-1] - totals[0]) > 1e-4


def test_species_that_a_model_does_not_know_are_refused_by_name_and_atom(copper, tmp_path):
    ase.io.write(tmp_path / "a.xyz", Atoms("ArNaArNa", positions=np.eye(4, 3) * 5, cell=[12] * 3, pbc=True))
    ended = call("simulate", "a.xyz", "--model", "odd.py:choosy", "--out", "x", cwd=tmp_path).expect(2)
    for word in ("choosy", "Na", "(atoms 1, 3)", "it knows Ar"):
        assert word in ended.err
    assert not (tmp_path / "x").exists()


def test_a_wide_halo_tells_how_many_rows_it_computes_where_those_are_far_more_than_the_atoms(tmp_path):
    """Against images counted one by one, of ranks whose boxes are the halves of the crystal."""
    atoms = bulk("Ar", "fcc", a=5.3, cubic=True) * (4, 2, 2)
    atoms.positions += 0.3
    ase.io.write(tmp_path / "a.xyz", atoms)
    model = Path(__file__).parents[1] / "validate" / "learned.py"
    words = ("simulate", "a.xyz", "--steps", 1, "--out", "x", "--overwrite", "--model", f"{model}:make,kind=wide")
    told = torchrun(2, "-m", "mdrun", *words, "--skin", 0.5, cwd=tmp_path).wait().expect(0).out
    (line,) = [line for line in told.splitlines() if "wide halo of" in line]
    width, n_ranks, total, n_atoms, most = map(float, re.findall(r"\d+(?:\.\d+)?", line)[:5])
    assert (width, n_ranks, n_atoms) == (8.5, 2, len(atoms))
    sides = atoms.cell.lengths()
    images = np.concatenate([atoms.positions + sides * np.array(k) for k in np.ndindex(5, 5, 5)]) - 2 * sides
    rows = []
    for half in (atoms.positions[:, 0] < sides[0] / 2, atoms.positions[:, 0] >= sides[0] / 2):
        low, high = atoms.positions[half].min(axis=0) - width, atoms.positions[half].max(axis=0) + width
        rows.append(int(((images >= low) & (images <= high)).all(axis=1).sum()))
    assert (total, most) == (sum(rows), max(rows))
    assert "no faster than one rank" in line
    assert "wide halo of" not in call(*words, cwd=tmp_path).expect(0).out


def test_a_strategy_that_changes_nothing_says_so(copper, tmp_path):
    words = ("simulate", copper, "--steps", 1, "--out", "x", "--overwrite")
    for name in set(STRATEGIES) - {AUTO}:
        told = call(*words, "--model", "emt", "--strategy", name, cwd=tmp_path).expect(0).out
        assert ("--strategy" in told) == (name != "halo")
        told = call(*words, "--model", f"emt + {EXAMPLE}:make", "--strategy", name, cwd=tmp_path).expect(0).out
        assert "--strategy" not in told


def test_options_know_every_strategy_that_there_is():
    assert set(STRATEGIES) == {AUTO, *KINDS}
