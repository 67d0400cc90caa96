"""The graph and the forces that follow from it, on one rank: finite differences, strains, cutoffs, own models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ase import Atoms
from torch import nn

from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.errors import InputError
from mdrun.graph import GraphView
from mdrun.nodes import unique_nodes
from mdrun.potentials.base import ForceModel
from mdrun.potentials.graph_model import Needs
from mdrun.potentials.precision import PRECISIONS
from mdrun.potentials.registry import load_model
from mdrun.strategies.choice import choose_strategy
from tests.own_models import EXAMPLE, energy_of_whole, evaluate_whole, force_model, net_of
from tests.ranks.builders import copper_slab, copper_small_cell, gold_copper
from tests.systems import evaluate, species_of, state_of


def graph_of(atoms: Atoms, cutoff: float, dtype: torch.dtype = torch.float64):
    domain = Domain(Comm(), cutoff, skin=0.5)
    state = state_of(atoms)
    domain.follow(state)
    view = GraphView(species_of(atoms), cutoff)
    view.adopt(domain, unique_nodes(domain))
    return view.evaluation(domain, dtype, with_strain=True).graph


@pytest.mark.parametrize("build", [gold_copper, copper_slab, copper_small_cell])
def test_forces_are_the_slopes_of_the_energy(build):
    atoms, h = build(), 1e-4
    net = net_of(atoms)
    forces = evaluate(atoms, force_model(atoms, net)).forces
    for atom, axis in ((0, 0), (1, 2)):
        energies = []
        for step in (h, -h):
            moved = atoms.copy()
            moved.positions[atom, axis] += step
            energies.append(energy_of_whole(moved, net))
        assert forces[atom, axis] == pytest.approx((energies[1] - energies[0]) / (2 * h), abs=1e-7)


@pytest.mark.parametrize(("a", "b"), [(0, 0), (2, 2), (0, 1)])
def test_stress_is_the_slope_under_a_strain(a, b):
    atoms, h = copper_small_cell(), 1e-4
    net = net_of(atoms)
    stress = evaluate(atoms, force_model(atoms, net)).stress
    energies = []
    for step in (h, -h):
        strain = np.zeros((3, 3))
        strain[a, b] = strain[b, a] = step
        strained = atoms.copy()
        strained.set_cell(atoms.cell.array @ (np.eye(3) + strain), scale_atoms=True)
        energies.append(energy_of_whole(strained, net))
    slope = (energies[0] - energies[1]) / (2 * h) / atoms.get_volume()
    assert stress[a, b] * (1 if a == b else 2) == pytest.approx(slope, abs=1e-8)


def test_nodes_are_unique_and_edges_end_at_them_in_order():
    atoms = copper_small_cell()
    graph = graph_of(atoms, 5.0)
    assert graph.n_nodes == graph.n_owned == len(atoms)
    assert (graph.receivers.diff() >= 0).all()
    at = graph.positions[graph.senders] + graph.shifts @ graph.cell - graph.positions[graph.receivers]
    torch.testing.assert_close(graph.vectors, at, rtol=0, atol=1e-12)
    torch.testing.assert_close(graph.shifts, graph.shifts.round())
    assert (graph.vectors.norm(dim=1) < 5.0).all()
    np.testing.assert_array_equal(graph.numbers, atoms.numbers[graph.ids])


def test_a_filtered_graph_is_that_of_the_smaller_cutoff():
    atoms = gold_copper()
    small, large = graph_of(atoms, 4.0), graph_of(atoms, 6.0).filtered(4.0)
    assert small.n_edges == large.n_edges > 0
    np.testing.assert_allclose(
        np.sort(small.vectors.detach().norm(dim=1)), np.sort(large.vectors.detach().norm(dim=1)), atol=1e-12
    )
    assert graph_of(atoms, 6.0).filtered(7.0).cutoff == 6.0


def test_single_precision_does_not_suffer_far_from_the_origin():
    near = gold_copper()
    near.pbc = False
    far = near.copy()
    far.positions += 1e5
    forces = []
    for atoms in (near, far):
        model = force_model(atoms, net_of(atoms))
        model.precision = PRECISIONS["single"]
        assert "float32" in model.name
        forces.append(evaluate(atoms, model).forces)
    assert np.abs(forces[0] - forces[1]).max() < 1e-5


def test_a_model_of_another_precision_leaves_torchs_default_alone():
    before = torch.get_default_dtype()
    evaluate(gold_copper(), force_model(gold_copper(), net_of(gold_copper())))
    assert torch.get_default_dtype() is before


def test_the_example_is_loaded_by_its_name():
    atoms = gold_copper()
    model = load_model(f"{EXAMPLE}:make,cutoff=5,layers=3", species_of(atoms))
    assert isinstance(model, ForceModel)
    found, dense = evaluate(atoms, model), evaluate_whole(atoms, net_of(atoms))
    assert found.energy == pytest.approx(dense.energy, rel=1e-12)
    np.testing.assert_allclose(found.stress, dense.stress, atol=1e-13)


def test_a_model_file_may_do_what_a_module_may(tmp_path):
    """Dataclasses whose annotations are text look for their module; two files of a name stay apart."""
    atoms = gold_copper()
    energies = []
    for layers in (2, 3):
        file = tmp_path / str(layers) / "net.py"
        file.parent.mkdir()
        file.write_text(
            "from __future__ import annotations\nfrom dataclasses import dataclass\n"
            + EXAMPLE.read_text()
            + f"\n\n@dataclass\nclass Size:\n    layers: int = {layers}\n"
            + "\ndef sized(numbers):\n    return make(numbers, layers=Size().layers)\n"
        )
        energies.append(evaluate(atoms, load_model(f"{file}:sized", species_of(atoms))).energy)
    assert energies == pytest.approx([evaluate_whole(atoms, net_of(atoms, n_layers=n)).energy for n in (2, 3)])


class Springs(nn.Module):
    """Forces towards the middle of the neighbours, which no energy has."""

    cutoff, n_layers = 4.0, 1
    needs = Needs(direct_forces=True)

    def forward(self, graph):
        return graph.positions.new_zeros(graph.n_nodes), graph.sum_edges(graph.vectors)


def test_direct_forces_are_taken_as_they_are_and_the_user_is_told():
    atoms = gold_copper()
    model = force_model(atoms, Springs())
    found = evaluate_direct(atoms, model)
    assert found.virial is None
    assert found.energy == 0.0
    assert np.abs(found.forces.numpy()).max() > 0.1
    assert "no gradient" in model.warnings[0]


def evaluate_direct(atoms: Atoms, model: ForceModel):
    from mdrun.scope import Scope

    domain, state = Domain(Comm(), model.cutoff, skin=0.5), state_of(atoms)
    with Scope(model, domain, len(atoms)) as scope:
        domain.follow(state)
        return scope(domain, totals=True)


class Short(nn.Module):
    cutoff, n_layers = 4.0, 1

    def forward(self, graph):
        return graph.vectors.sum()


def test_energies_of_a_wrong_shape_are_refused_with_what_was_expected():
    atoms = gold_copper()
    with pytest.raises(ValueError, match=r"shape \(\); one for each of 72 nodes"):
        evaluate(atoms, force_model(atoms, Short()))


def test_what_is_no_model_is_refused_with_what_a_model_has(tmp_path):
    file = tmp_path / "odd.py"
    file.write_text("def make(numbers):\n    return 1\n")
    with pytest.raises(InputError, match=r"an energy model has cutoff, n_layers and\s+forward"):
        load_model(f"{file}:make", (29,))


def test_strategies_that_cannot_serve_a_model_are_refused():
    atoms = gold_copper()
    wide = force_model(atoms, net_of(atoms), Needs(reach="wide"))
    assert choose_strategy("auto", wide).name == "halo"
    with pytest.raises(InputError, match="can't be reached between ranks"):
        choose_strategy("partition", wide)
    own_graph = force_model(atoms, net_of(atoms), Needs(all_nodes=True))
    assert choose_strategy("auto", own_graph).name == "partition"
    with pytest.raises(InputError, match="needs all atoms on every rank"):
        choose_strategy("halo", own_graph)


class Lost(nn.Module):
    """Energies that autograd can't follow back."""

    cutoff, n_layers = 5.0, 1

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, graph):
        energies = graph.sum_edges((1 - graph.vectors.norm(dim=1) / self.cutoff) ** 2)
        if self.way == "detach":
            return energies.detach()
        return torch.from_numpy(energies.detach().numpy()) if self.way == "numpy" else energies


@pytest.mark.parametrize("way", ["detach", "numpy"])
def test_energies_without_slopes_are_refused(way):
    with pytest.raises(InputError, match="autograd can't follow back"):
        evaluate(gold_copper(), force_model(gold_copper(), Lost(way)))


def test_atoms_that_have_no_neighbours_have_no_slopes_to_lose():
    alone = Atoms("Cu2", positions=[[0, 0, 0], [0, 0, 20]])
    assert not evaluate(alone, force_model(alone, Lost("detach"))).forces.any()
