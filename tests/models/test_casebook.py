"""What the casebook asks of machine-learned models, shown on the example net and others of a few lines."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from mdrun import units
from mdrun.errors import InputError, SimulationError
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.precision import PRECISIONS
from mdrun.potentials.registry import load_model
from tests.cli.launcher import call
from tests.own_models import EXAMPLE, evaluate_whole, force_model, net_of
from tests.ranks.builders import argon_liquid, gold_copper
from tests.systems import evaluate, simulate, species_of


def single(atoms):
    model = force_model(atoms, net_of(atoms))
    model.precision = PRECISIONS["single"]
    return model


def test_single_precision_is_near_double_and_both_live_in_one_process():
    atoms = gold_copper()
    double, low = force_model(atoms, net_of(atoms)), single(atoms)
    first, second, third = (evaluate(atoms, model) for model in (double, low, double))
    assert abs(first.energy - second.energy) < 1e-5 * len(atoms)
    assert third.energy == first.energy
    assert first.energy != second.energy
    assert torch.get_default_dtype() == torch.float32
    assert "float64" in double.name
    assert "float32" in low.name


class Mark(torch.autograd.Function):
    """The identity; its node is alive as long as the graph that it is in."""

    nodes: ClassVar[list[weakref.ref]] = []

    @staticmethod
    def forward(ctx, x):
        Mark.nodes.append(weakref.ref(ctx))
        return x.clone()

    @staticmethod
    def backward(ctx, *grads):
        return grads[0]


class Marked(nn.Module):
    cutoff, n_layers = 5.0, 3

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, graph):
        return Mark.apply(self.net.forward(graph))


def test_nothing_of_a_step_is_held_by_the_next():
    atoms = gold_copper()
    simulate(atoms, force_model(atoms, Marked(net_of(atoms))), VelocityVerlet(units.FS), 10)
    gc.collect()
    assert len(Mark.nodes) == 11
    assert [node() for node in Mark.nodes] == [None] * 11


class Broken(nn.Module):
    """The example net, until one atom's energy is no number."""

    cutoff, n_layers = 5.0, 3

    def __init__(self, net: nn.Module, after: int) -> None:
        super().__init__()
        self.net, self.after = net, after

    def forward(self, graph):
        self.after -= 1
        energies = self.net.forward(graph)
        return energies * torch.where(graph.ids[graph.owned] == 3, torch.nan, 1.0) if self.after < 0 else energies


def test_the_first_energy_that_is_no_number_stops_the_run_with_step_and_rank():
    atoms = gold_copper()
    model = force_model(atoms, Broken(net_of(atoms), after=4))
    with pytest.raises(SimulationError, match=r"(?s)step 4: .*rank 0.*not finite.*last good step is 3"):
        simulate(atoms, model, VelocityVerlet(units.FS), 10)


@pytest.fixture
def argon(tmp_path: Path) -> Path:
    argon_liquid().write(tmp_path / "argon.xyz")
    return tmp_path / "argon.xyz"


DIRECT = """
import torch
from mdrun.potentials.graph_model import Needs

class Springs(torch.nn.Module):
    cutoff, n_layers, needs = 5.0, 1, Needs(direct_forces=True)

    def forward(self, graph):
        r = graph.vectors.norm(dim=1, keepdim=True)
        return graph.positions.new_zeros(graph.n_nodes), 0.01 * graph.sum_edges(graph.vectors * (5.0 - r))

def make(numbers):
    return Springs()
"""


def test_forces_that_are_no_gradient_are_announced_and_the_change_of_energy_is_shown(argon, tmp_path):
    (tmp_path / "direct.py").write_text(DIRECT)
    ended = call("simulate", argon, "--model", "direct.py:make", "--steps", 5, "--out", "run", cwd=tmp_path).expect(0)
    assert "no gradient of its energy" in ended.out
    assert "energy change" in ended.out


@pytest.mark.parametrize(("precision", "dtype"), [("double", "float64"), ("mixed", "float32")])
def test_precision_and_device_reach_the_model(argon, tmp_path, precision, dtype):
    (tmp_path / "told.py").write_text(
        EXAMPLE.read_text() + "\n\nclass Told(MessagePassing):\n"
        "    def to(self, device, dtype):\n"
        "        open('told.txt', 'w').write(f'{device} {dtype}')\n"
        "        return super().to(device=device, dtype=dtype)\n"
        "\n\ndef told(numbers):\n    return Told(numbers, 5.0, 2, 8, 1)\n"
    )
    options = ("--steps", 1, "--precision", precision, "--device", "cpu", "--out", "run")
    ended = call("simulate", argon, "--model", "told.py:told", *options, cwd=tmp_path).expect(0)
    assert f"({dtype})" in ended.out
    assert (tmp_path / "told.txt").read_text() == f"cpu torch.{dtype}"


def test_a_path_is_seen_from_where_the_user_stands_and_kept_whole(argon, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text(EXAMPLE.read_text())
    here = tmp_path / "elsewhere"
    here.mkdir()
    call("simulate", "../argon.xyz", "--model", "../models/net.py:make", "--steps", 1, "--out", "run", cwd=here).expect(
        0
    )
    assert str(tmp_path / "models" / "net.py") in (here / "run" / "config.toml").read_text()
    assert json.loads((here / "run" / "status.json").read_text())["state"] == "finished"


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed package that registers a model, as pip would leave it."""
    (tmp_path / "a_plug_in.py").write_text(
        EXAMPLE.read_text() + "\n\ndef plugged(argument, options, numbers):\n    return make(numbers, **options)\n"
    )
    info = tmp_path / "a_plug_in-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a-plug-in\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mdrun.models]\nplugged = a_plug_in:plugged\nbad = a_plug_in:nothing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "plugged"
    sys.modules.pop("a_plug_in", None)


def test_a_plug_in_is_found_by_its_entry_point_and_listed(plug_in, tmp_path):
    atoms = gold_copper()
    found = evaluate(atoms, load_model(f"{plug_in}:layers=2", species_of(atoms)))
    dense = evaluate_whole(atoms, net_of(atoms, n_layers=2))
    assert found.energy == pytest.approx(dense.energy, rel=1e-12)
    np.testing.assert_allclose(found.forces, dense.forces, rtol=0, atol=1e-12)
    assert "plugged:..." in call("models", cwd=tmp_path).expect(0).out
    with pytest.raises(InputError, match="bad of the plug-in a_plug_in:nothing fails"):
        load_model("bad", species_of(atoms))
