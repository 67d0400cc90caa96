"""The distributed context, its scope and the verbs, in a single process."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import itertools
import pickle
import threading

import numpy as np
import pytest
import torch

import mdrun
from mdrun import (
    NOT_DISTRIBUTED,
    DistributedContext,
    activate_dd_context,
    current_dd_context,
    refresh_neighbors,
    scatter_to_owners,
    sum_into_owners,
    system_sum,
    to_local,
)
from mdrun.comm import Comm
from mdrun.context import GatherMeta, HaloConfig, HaloMeta
from mdrun.domain import Domain
from mdrun.errors import SimulationError
from mdrun.potentials.base import Forces
from mdrun.scope import Scope
from tests.systems import argon, pfcc, state_of

DEFAULTS = {
    "mesh": None, "policy": None, "strategy": None, "halo_config": None, "n_systems_global": None,
    "n_atoms_total": None, "halo_meta": None, "gather_meta": None, "owned_offset": 0, "cap_state": {},
    "graph_padder": None, "cap_atoms": True, "extras": {},
}  # fmt: skip


class FakeMesh:
    def __init__(self, size: int, rank: int = 0) -> None:
        self._size, self._rank = size, rank

    def size(self) -> int:
        return self._size

    def get_rank(self) -> int:
        return self._rank


HALO = HaloMeta(n_owned=3, n_padded=7, send_indices=torch.arange(4), send_sizes=[0, 4], recv_sizes=[0, 4])
GATHER = GatherMeta(n_owned=5, n_global=20)
CONFIG = HaloConfig(partitioner=None, ghost_width=9.5, process_group=None, rank=1)


# The dataclass


@pytest.mark.parametrize("context", [DistributedContext(), NOT_DISTRIBUTED])
def test_fields_and_defaults_are_those_of_the_contract(context):
    assert {f.name: getattr(context, f.name) for f in dataclasses.fields(context)} == DEFAULTS


def test_contexts_do_not_share_their_scratch_space():
    one, other = DistributedContext(), DistributedContext()
    one.extras["x"] = one.cap_state["edges"] = 1
    assert other.extras == other.cap_state == {}


def test_a_context_is_updated_in_place():
    context = DistributedContext()
    reference = context
    context.halo_meta = HALO
    assert reference.is_halo
    assert reference.n_owned == 3


@pytest.mark.parametrize(
    ("config", "mesh", "halo", "gather"),
    list(itertools.product([None, CONFIG], [None, FakeMesh(1), FakeMesh(4, rank=2)], [None, HALO], [None, GATHER])),
)
def test_derived_views_follow_the_contract(config, mesh, halo, gather):
    context = DistributedContext(mesh=mesh, halo_config=config, halo_meta=halo, gather_meta=gather)
    many = mesh is not None and mesh.size() > 1
    assert context.is_halo is (halo is not None)
    assert context.is_sharded is (gather is not None)
    assert context.is_distributed is (halo is not None or gather is not None or many)
    assert context.rank == (1 if config else mesh.get_rank() if mesh else 0)
    assert context.world_size == (2 if halo else mesh.size() if mesh else 1)
    assert context.n_owned == (3 if halo else 5 if gather else None)
    assert context.n_padded == (7 if halo else 20 if gather else None)
    assert context.compiling is False


@pytest.mark.parametrize(
    "name", ["is_halo", "is_sharded", "is_distributed", "rank", "world_size", "n_owned", "n_padded", "compiling"]
)
def test_derived_views_are_read_only(name):
    with pytest.raises(AttributeError):
        setattr(DistributedContext(), name, 1)


def test_compiling_is_true_while_torch_traces():
    context = DistributedContext()

    @torch.compile(backend="eager", fullgraph=True)
    def traced(x):
        return x + 1 if context.compiling else x - 1

    assert traced(torch.zeros(1)).item() == 1
    assert context.compiling is False


class Padder:
    def pad(self, data, cap_state, *, cap_atoms):
        cap_state["edges"] = max(cap_state.get("edges", 0), len(data))
        return data + [0] * (cap_state["edges"] - len(data)), cap_atoms


def test_graphs_are_padded_to_capacities_that_persist():
    context = DistributedContext(graph_padder=Padder(), cap_atoms=False)
    assert context.maybe_pad_graph([1, 1, 1]) == ([1, 1, 1], False)
    assert context.maybe_pad_graph([1]) == ([1, 0, 0], False)
    assert context.cap_state == {"edges": 3}


@pytest.mark.parametrize("context", [DistributedContext(), NOT_DISTRIBUTED])
def test_graphs_pass_untouched_where_no_padder_is_set(context):
    graph = object()
    assert context.maybe_pad_graph(graph) is graph


# The sentinel


@pytest.mark.parametrize("name", [*DEFAULTS, "anything"])
def test_the_sentinel_refuses_to_be_written(name):
    with pytest.raises(AttributeError, match=f"{name} can't be set"):
        setattr(NOT_DISTRIBUTED, name, 1)
    assert getattr(NOT_DISTRIBUTED, name, "absent") == DEFAULTS.get(name, "absent")


def test_scratch_space_of_the_sentinel_works_but_nobody_shares_it():
    scratch = current_dd_context().extras
    scratch["table"] = 1
    assert scratch["table"] == 1
    assert current_dd_context().extras == {}


def test_the_sentinel_is_a_context_of_one_process():
    assert isinstance(NOT_DISTRIBUTED, DistributedContext)
    assert (NOT_DISTRIBUTED.rank, NOT_DISTRIBUTED.world_size) == (0, 1)
    assert not any((NOT_DISTRIBUTED.is_halo, NOT_DISTRIBUTED.is_sharded, NOT_DISTRIBUTED.is_distributed))
    assert NOT_DISTRIBUTED.n_owned is None
    assert NOT_DISTRIBUTED.n_padded is None


def test_a_copy_of_the_sentinel_is_the_sentinel():
    assert copy.copy(NOT_DISTRIBUTED) is NOT_DISTRIBUTED
    assert copy.deepcopy({"context": NOT_DISTRIBUTED})["context"] is NOT_DISTRIBUTED
    assert pickle.loads(pickle.dumps(NOT_DISTRIBUTED)) is NOT_DISTRIBUTED


# Activation


def test_outside_of_any_context_the_sentinel_answers():
    assert current_dd_context() is NOT_DISTRIBUTED
    assert mdrun.current_dd_context() is mdrun.NOT_DISTRIBUTED


def test_activation_nests_and_is_undone_in_order():
    outer, inner = DistributedContext(), DistributedContext()
    with activate_dd_context(outer) as given:
        assert given is outer is current_dd_context()
        with activate_dd_context(inner):
            assert current_dd_context() is inner
            with activate_dd_context(outer):
                assert current_dd_context() is outer
            assert current_dd_context() is inner
        with activate_dd_context(outer):
            assert current_dd_context() is outer
        assert current_dd_context() is outer
    assert current_dd_context() is NOT_DISTRIBUTED


def test_an_exception_restores_what_was_active_before():
    outer = DistributedContext()
    with activate_dd_context(outer):
        with pytest.raises(KeyError), activate_dd_context(DistributedContext()):
            raise KeyError
        assert current_dd_context() is outer
    assert current_dd_context() is NOT_DISTRIBUTED


def test_the_sentinel_can_hide_a_context():
    with activate_dd_context(DistributedContext()), activate_dd_context(NOT_DISTRIBUTED):
        assert current_dd_context() is NOT_DISTRIBUTED


def test_each_thread_has_its_own_context():
    seen = {}
    both_inside = threading.Barrier(2, timeout=30)

    def work(name):
        seen[name, "before"] = current_dd_context()
        context = DistributedContext(extras={"of": name})
        with activate_dd_context(context):
            both_inside.wait()
            seen[name, "inside"] = current_dd_context() is context
            both_inside.wait()
        seen[name, "after"] = current_dd_context()

    with activate_dd_context(DistributedContext()):
        threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in "ab":
        assert seen[name, "before"] is seen[name, "after"] is NOT_DISTRIBUTED
        assert seen[name, "inside"]


def test_each_task_has_its_own_context():
    async def work(turn: asyncio.Event, other: asyncio.Event):
        before = current_dd_context()
        context = DistributedContext()
        with activate_dd_context(context):
            other.set()
            await turn.wait()
            inside = current_dd_context() is context
        return before, inside, current_dd_context()

    async def main():
        outer = DistributedContext()
        with activate_dd_context(outer):
            a, b = asyncio.Event(), asyncio.Event()
            results = await asyncio.gather(work(a, b), work(b, a))
            assert current_dd_context() is outer
        # a task starts from what was active where it was made, and leaves no trace there
        assert all(before is outer and inside and after is outer for before, inside, after in results)

    asyncio.run(main())
    assert current_dd_context() is NOT_DISTRIBUTED


# The scope


class Witness:
    """A force model that writes down what it is shown."""

    name = "witness"
    cutoff = 4.0

    def __init__(self) -> None:
        self.events: list[str] = []
        self.contexts: list[DistributedContext] = []
        self.fails = False

    def distributed_setup(self, context):
        self.kept = context
        self.events.append("setup")

    def distributed_teardown(self):
        self.events.append("teardown")

    def __call__(self, domain, totals):
        context = current_dd_context()
        self.events.append("call")
        self.contexts.append(context)
        self.shown = (context.n_owned, context.n_padded, context.rank, context.world_size, context.n_atoms_total)
        if self.fails:
            raise RuntimeError("the model fails")
        return Forces(torch.zeros((domain.n_owned, 3), dtype=torch.float64), 0.0)


@pytest.fixture
def domain():
    domain = Domain(Comm(), 4.0, 0.5)
    domain.follow(state_of(pfcc(2, 2, 2)))
    return domain


def test_the_life_of_a_scope(domain):
    model = Witness()
    with Scope(model, domain, 32) as scope:
        assert model.events == ["setup"]
        assert model.kept is scope.context
        assert scope.context.halo_meta is None  # there was no exchange for this scope yet
        assert current_dd_context() is NOT_DISTRIBUTED
        for _ in range(2):
            scope(domain, totals=False)
            assert current_dd_context() is NOT_DISTRIBUTED
    assert model.events == ["setup", "call", "call", "teardown"]
    assert all(context is model.kept for context in model.contexts)


def test_a_model_is_shown_the_halo_of_the_step(domain):
    model = Witness()
    with Scope(model, domain, 32) as scope:
        scope(domain, totals=False)
        assert model.shown == (32, domain.n_padded, 0, 1, 32)
        meta = model.kept.halo_meta
        assert sum(meta.send_sizes) == sum(meta.recv_sizes) == len(meta.send_indices) == domain.n_padded - 32
        assert model.kept.halo_config.ghost_width == 4.5
        assert model.kept.n_systems_global == 1
        assert model.kept.is_distributed
        # the next rebuild's halo shows through the reference that the model kept
        domain.rebuild(state_of(pfcc(3, 2, 2)))
        scope(domain, totals=False)
        assert (model.kept.n_owned, model.kept.n_padded) == (48, domain.n_padded)


def test_an_exception_in_the_model_closes_the_scope(domain):
    model = Witness()
    model.fails = True
    with pytest.raises(RuntimeError), Scope(model, domain, 32) as scope:
        scope(domain, totals=False)
    assert model.events == ["setup", "call", "teardown"]
    assert current_dd_context() is NOT_DISTRIBUTED


def test_a_model_without_hooks_is_welcome(domain):
    with Scope(argon(), domain, 32) as scope:
        assert scope(domain, totals=True).energy < 0


@pytest.mark.parametrize(
    ("forces", "energy", "error", "text"),
    [
        (torch.zeros(31, 3), 0.0, ValueError, r"\(31, 3\); \(32, 3\) was expected"),
        (torch.zeros(3, 32), 0.0, ValueError, r"\(3, 32\)"),
        (torch.full((32, 3), torch.nan), 0.0, SimulationError, "32 atoms"),
        (torch.zeros(32, 3).index_fill(0, torch.tensor([5]), torch.inf), 0.0, SimulationError, "1 atom "),
        (torch.zeros(32, 3), float("nan"), SimulationError, "energy"),
    ],
)
def test_what_a_model_returns_is_checked(domain, forces, energy, error, text):
    bad = type("Bad", (Witness,), {"__call__": lambda *_: Forces(forces.double(), energy)})()
    with Scope(bad, domain, 32) as scope, pytest.raises(error, match=text):
        scope(domain, totals=True)


def test_the_atom_with_the_bad_force_is_named_by_its_id(domain):
    forces = torch.zeros(32, 3).double()
    row = 11
    forces[row, 1] = torch.nan
    bad = type("Bad", (Witness,), {"__call__": lambda *_: Forces(forces, 0.0)})()
    with Scope(bad, domain, 32) as scope, pytest.raises(SimulationError, match=f"ids {int(domain.ids[row])}\\)"):
        scope(domain, totals=True)


# The verbs


def test_verbs_are_the_identity_outside_of_a_context():
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    assert refresh_neighbors(x) is x
    assert scatter_to_owners(x) is x
    assert sum_into_owners(x) is x
    assert to_local(x) is x


def test_structures_are_summed_outside_of_a_context():
    values = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    assert system_sum(values, torch.tensor([0, 2, 0]), 3).tolist() == [5, 0, 2]
    rows = torch.arange(6.0).reshape(3, 2)
    assert system_sum(rows, torch.tensor([1, 1, 0]), 2).tolist() == [[4, 5], [2, 4]]


@pytest.fixture
def inside(domain):
    """An active context over ``domain``'s halo: 32 atoms, each with several images of its own."""
    with Scope(Witness(), domain, 32) as scope:
        scope(domain, totals=False)
        with activate_dd_context(scope.context):
            yield domain


def test_refresh_gives_each_ghost_its_owners_value(inside):
    ids = inside.ids[: inside.n_owned].double()
    assert torch.equal(refresh_neighbors(ids).long(), inside.ids)
    # padded rows come back refreshed, whatever the ghosts held
    padded = torch.cat([ids, torch.full((inside.n_ghosts,), torch.nan).double()])
    assert torch.equal(refresh_neighbors(padded).long(), inside.ids)


def test_scatter_sums_every_image_of_an_atom(inside):
    ones = torch.ones((inside.n_padded, 2), dtype=torch.float64)
    images = np.bincount(inside.ids.numpy())
    np.testing.assert_array_equal(scatter_to_owners(ones)[:, 0], images[inside.ids.numpy()])
    np.testing.assert_array_equal(sum_into_owners(ones)[:, 0], images[inside.ids.numpy()[: inside.n_owned]])


def test_system_sum_counts_owned_rows_only(inside):
    values = torch.ones(inside.n_padded, dtype=torch.float64)
    assert system_sum(values, torch.zeros(inside.n_padded, dtype=torch.int64), 1).tolist() == [32]


@pytest.mark.parametrize("verb", [refresh_neighbors, scatter_to_owners, sum_into_owners])
def test_another_number_of_rows_is_refused(inside, verb):
    with pytest.raises(ValueError, match=f"not {inside.n_padded + 1}"):
        verb(torch.zeros(inside.n_padded + 1))


def test_verbs_before_the_first_exchange_are_refused(domain):
    with (
        Scope(Witness(), domain, 32) as scope,
        activate_dd_context(scope.context),
        pytest.raises(ValueError, match="no halo yet"),
    ):
        refresh_neighbors(torch.zeros(32))


@pytest.mark.parametrize("order", [1, 2])
def test_verbs_are_differentiable(inside, order):
    check = torch.autograd.gradcheck if order == 1 else torch.autograd.gradgradcheck
    generator = torch.Generator().manual_seed(2)
    owned = torch.randn(inside.n_owned, dtype=torch.float64, generator=generator, requires_grad=True)
    padded = torch.randn(inside.n_padded, dtype=torch.float64, generator=generator, requires_grad=True)
    index = torch.arange(inside.n_padded) % 3
    assert check(lambda x: refresh_neighbors(x**2), (owned,), fast_mode=True)
    assert check(lambda x: scatter_to_owners(x**2), (padded,), fast_mode=True)
    assert check(lambda x: sum_into_owners(x**2), (padded,), fast_mode=True)
    assert check(lambda x: system_sum(x**2, index, 3), (padded,), fast_mode=True)
