"""Capacities, padding, and compiled models that stop compiling."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mdrun import units
from mdrun.context import DistributedContext
from mdrun.fixed_shapes import GraphPadder, resolve_cap
from mdrun.integrate.verlet import VelocityVerlet
from mdrun.potentials.graph_model import GraphModel, Needs
from mdrun.potentials.registry import Sum, compile_terms, load_model
from tests.own_models import compiling, force_model, net_of
from tests.ranks.builders import argon_liquid, copper_slab, gold_copper
from tests.systems import evaluate, simulate
from tests.test_graph_model import graph_of


def test_a_capacity_grows_on_overflow_by_strides_and_never_shrinks():
    context = DistributedContext()
    first = resolve_cap("edges", 1000, context)
    assert first >= 1000
    assert resolve_cap("edges", first, context) == first
    assert resolve_cap("edges", 1, context) == first
    assert resolve_cap("edges", first + 1, context) > first
    assert resolve_cap("owned", 7, context) % 64 == 0
    assert set(context.cap_state) == {"edges", "owned"}


def test_what_is_filled_up_contributes_nothing():
    atoms, padder = gold_copper(), GraphPadder(29)
    net = net_of(atoms)
    graph = graph_of(atoms, 5.0)
    padded = padder.pad(graph, {"edges": 20000, "owned": 256, "ghosts": 64})
    assert set(padded.numbers.tolist()) == {29, 79}
    assert (padded.n_edges, padded.n_owned, padded.n_nodes) == (20000, 256, 320)
    assert (padded.receivers.diff() >= 0).all()
    energies = padder.unpad(net.forward(padded), graph.n_owned)
    torch.testing.assert_close(energies, net.forward(graph), rtol=0, atol=1e-13)
    (plain,) = torch.autograd.grad(net.forward(graph).sum(), graph.positions, retain_graph=True)
    (filled,) = torch.autograd.grad(energies.sum(), graph.positions)
    torch.testing.assert_close(filled, plain, rtol=0, atol=1e-12)
    torch.testing.assert_close(padder.restore(padded.positions, graph, padded), graph.positions, rtol=0, atol=0)


@pytest.mark.parametrize("build", [gold_copper, copper_slab])
def test_a_compiled_model_gives_the_same_forces(build):
    atoms = build()
    plain, padded = (
        evaluate(atoms, force_model(atoms, net_of(atoms))),
        evaluate(atoms, compiling(atoms, net_of(atoms), Needs(compiles=True))),
    )
    assert padded.energy == pytest.approx(plain.energy, rel=1e-12)
    np.testing.assert_allclose(padded.forces, plain.forces, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        (Needs(), "does not declare"),
        (Needs(compiles=True, direct_forces=True), "no gradient"),
        (Needs(compiles=True, all_nodes=True), "a graph of its own"),
    ],
)
def test_the_user_is_told_before_the_run_why_a_model_is_not_compiled(needs, why):
    atoms = gold_copper()
    model = force_model(atoms, net_of(atoms), needs)
    (reason,) = compile_terms(Sum([model, load_model("zbl:inner=4,outer=6", (29, 79))]), "cpu")[:1]
    assert why in reason
    assert not model.is_compiled_here


@pytest.mark.slow
def test_after_warm_up_nothing_is_compiled_anew_in_a_thousand_steps_of_a_liquid():
    atoms = argon_liquid()
    counts: list[int] = []

    class Counting(GraphModel):
        def __call__(self, domain, totals):
            found = super().__call__(domain, totals)
            counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
            return found

    model = compiling(atoms, net_of(atoms, 6.0), Needs(compiles=True), Counting)
    torch._dynamo.reset()
    run = simulate(atoms, model, VelocityVerlet(5 * units.FS), 1100, comm=None, skin=0.5)
    assert run.sim.domain.counts.rebuilds > 5
    assert counts[100] > 0
    assert counts[-1] == counts[100]
