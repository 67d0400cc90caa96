"""The same rows, lists, forces and trajectories by torch as by Numba; here on the CPU, and on a GPU where there is one.

Torch's operations run one by one but where a test says that they are compiled, which takes a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.emt import EMT as AseEMT

from mdrun import cell as geometry
from mdrun import noise, philox
from mdrun.backends.on_cpu import NumbaBackend
from mdrun.backends.on_torch import TorchBackend
from mdrun.comm import Comm
from mdrun.compiler import why_eager
from mdrun.decompose.partition import bisect
from mdrun.domain import Domain
from mdrun.errors import SimulationError
from mdrun.potentials import coulomb_dsf
from mdrun.potentials.base import ForceModel, Forces
from mdrun.potentials.precision import PRECISIONS
from mdrun.potentials.registry import load_model
from mdrun.potentials.torch_models import NoTorchPath, on_torch
from mdrun.scope import Scope
from tests.many_body import SYSTEMS as COVALENT
from tests.many_body import check_reference, references
from tests.ranks.builders import argon_liquid, argon_wire, copper_slab, copper_small_cell, icosahedron, in_box
from tests.ranks.cases import argon, emt, reference_atoms, reference_model
from tests.systems import DATA, evaluate, pfcc, species_of, state_of
from tests.test_emt import SYSTEMS as METALS
from tests.test_emt import rattled
from tests.test_halo import OneOf

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
CPU = NumbaBackend()
SYSTEMS: dict[str, Callable[[], Atoms]] = {
    "bulk": lambda: pfcc(3, 3, 3),
    "liquid": argon_liquid,
    "wire": argon_wire,
    "slab": copper_slab,
    "small triclinic cell": lambda: reference_atoms("lj_ar27_triclinic_small.extxyz"),
    "cluster in the open": icosahedron,
    "two pairs far apart": lambda: in_box([(0, 0, 0), (3.8, 0, 0), (1e6, 0, 0), (1e6 + 3.8, 0, 0)], [0] * 3, False),
}


@pytest.fixture(params=DEVICES)
def backend(request) -> TorchBackend:
    return TorchBackend(request.param)


@pytest.fixture(autouse=True)
def eagerly(request) -> Iterator[None]:
    with torch.compiler.set_stance("default" if "compiled" in request.node.name else "force_eager"):
        yield


# Rows and lists


def built(atoms: Atoms, backend, cutoff: float = 8.0, skin: float = 0.5) -> Domain:
    domain, state = Domain(Comm(), cutoff, skin, backend=backend), state_of(atoms)
    state.move_to(backend.device)
    domain.follow(state)
    return domain


def lists(domain: Domain) -> list[list[int]]:
    rows, counts = domain.neighbors.cpu(), domain.n_neighbors.tolist()
    return [sorted(rows[i, :n].tolist()) for i, n in enumerate(counts)]


@pytest.mark.parametrize("name", SYSTEMS)
def test_rows_ghosts_and_lists_are_those_of_numba(name, backend):
    ours, theirs = (built(SYSTEMS[name](), b) for b in (backend, CPU))
    assert ours.n_ghosts == theirs.n_ghosts
    assert torch.equal(ours.ids.cpu(), theirs.ids)
    assert torch.equal(ours.types.cpu(), theirs.types)
    torch.testing.assert_close(ours.packed.cpu(), theirs.packed, rtol=1e-15, atol=1e-13)
    assert lists(ours) == lists(theirs)
    assert (ours.neighbors[:, -1] == ours.n_padded).all()


def test_a_row_that_is_not_there_fills_up_the_list(backend):
    domain = built(SYSTEMS["cluster in the open"](), backend)
    columns = torch.arange(domain.neighbors.shape[1], device=backend.device)
    assert (domain.neighbors[columns >= domain.n_neighbors[:, None]] == domain.n_padded).all()


@pytest.mark.parametrize(("n_owned", "n_padded"), [(0, 0), (0, 5), (1, 1)])
def test_a_list_of_no_pairs(n_owned, n_padded, backend):
    neighbors = backend.neighbor_list()
    positions = torch.zeros((3, n_padded), dtype=torch.float64, device=backend.device)
    neighbors.build(positions, n_owned, 3.0)
    assert neighbors.counts.tolist() == [0] * n_owned
    assert len(neighbors.matrix) == n_owned


def test_many_small_chunks_make_the_same_list(monkeypatch):
    whole = lists(built(pfcc(3, 3, 3), TorchBackend("cpu")))
    monkeypatch.setattr("mdrun.neighbors.torch_list.CANDIDATES", {"cpu": 5000})
    assert lists(built(pfcc(3, 3, 3), TorchBackend("cpu"))) == whole


def test_points_on_faces_are_folded_alike(backend):
    cell = torch.tensor([[4.0, 0, 0], [1, 5, 0], [0.5, -1, 6]], dtype=torch.float64)
    frac = torch.tensor([[0, 1, -5e-17], [-1, 2.5, 1e-9], [0.25, -3.75, 7]], dtype=torch.float64)
    positions = (frac @ cell).contiguous()
    for pbc in ((True, True, True), (True, False, True)):
        inside, shifts = backend.folded(positions.to(backend.device), cell, pbc)
        wrapped = (inside < 1) & (inside >= 0)
        assert bool((wrapped | ~torch.tensor(pbc, device=backend.device)).all())
        torch.testing.assert_close((inside.cpu() - shifts.cpu()) @ cell, positions, rtol=0, atol=1e-12)
        assert (geometry.folded(positions, cell, pbc)[0] - inside.cpu()).abs().remainder(1).max() < 1e-12


@pytest.mark.parametrize("n_ranks", [1, 2, 5, 8])
def test_owners_are_those_of_the_partition(n_ranks, backend):
    frac = np.random.default_rng(n_ranks).uniform(0, 1, (300, 3))
    partition = bisect(frac, np.ones(300), np.ones(3), OneOf(0, n_ranks))
    owners = backend.owners(partition, torch.from_numpy(frac).to(backend.device))
    assert owners.tolist() == partition.owners(frac).tolist()


@pytest.mark.parametrize("is_self", [False, True])
def test_images_are_found_in_the_same_order(is_self, backend):
    rng = np.random.default_rng(4)
    frac, lo, hi = torch.from_numpy(rng.uniform(0, 1, (40, 3))), np.array([-1.3, 0.2, 0.4]), np.array([1.4, 0.9, 2.1])
    periodic = np.array([True, False, True])
    rows, shifts = backend.images_within(frac.to(backend.device), lo, hi, periodic, is_self)
    expected = CPU.images_within(frac, lo, hi, periodic, is_self)
    assert len(rows) > 40
    assert torch.equal(rows.cpu(), expected[0])
    assert torch.equal(shifts.cpu(), expected[1])


def test_random_numbers_have_the_same_bits(backend):
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, 2**48, 5000))
    for seed, step in ((0, 0), (2**63 + 12345, 2**40 + 3)):
        ours = noise.by_torch(seed, 1, step, ids.to(backend.device))
        last_bit = 0.0 if backend.device.type == "cuda" else 1e-15  # of a CPU's square root, see noise
        torch.testing.assert_close(ours.cpu(), philox.normals(seed, 1, step, ids), rtol=last_bit, atol=0)


# Forces


def dsf(atoms: Atoms) -> ForceModel:
    return coulomb_dsf.make_dsf(0.2, 10.0, 2)


def by_spec(spec: str) -> Callable[[Atoms], ForceModel]:
    return lambda atoms: load_model(spec, species_of(atoms))


def of_reference(file: str) -> tuple[Callable[[], Atoms], Callable[[Atoms], ForceModel]]:
    return lambda: reference_atoms(file), lambda atoms: reference_model(file, atoms)


FORCES: dict[str, tuple[Callable[[], Atoms], Callable[[Atoms], ForceModel]]] = {
    **{f"argon {name}": (SYSTEMS[name], argon) for name in SYSTEMS if name != "slab"},
    "mixture": of_reference("lj_arkr108.extxyz"),
    "charges": (lambda: reference_atoms("dsf_nacl216.extxyz"), dsf),
    "charges, exactly": (lambda: reference_atoms("dsf_nacl216.extxyz"), by_spec("dsf:alpha=0.2,cutoff=10,erfc=exact")),
    "a sum": (lambda: reference_atoms("dsf_nacl216.extxyz"), by_spec("zbl:inner=3,outer=4 + dsf:alpha=0.2,cutoff=10")),
    "Morse": (copper_slab, by_spec("morse:D=0.34,a=1.36,r0=2.87,cutoff=8")),
    "Yukawa": (copper_slab, by_spec("yukawa:A=2,kappa=0.5,cutoff=6")),
    "Buckingham": (copper_slab, by_spec("buck:A=1000,rho=0.3,C=10,cutoff=7")),
    "screened nuclei": (copper_slab, by_spec("zbl:inner=3,outer=4")),
    "copper slab": of_reference("eam_cu216_slab.extxyz"),
    "copper and nickel": of_reference("eam_cuni108.extxyz"),
    "copper, funcfl": of_reference("eam_cu256_u3.extxyz"),
    "iron, Finnis-Sinclair": of_reference("eamfs_fe250.extxyz"),
    "copper slab, EMT": (copper_slab, emt),
    "copper in a small cell, EMT": (copper_small_cell, emt),
    "every species, EMT": (lambda: rattled(METALS["every_species"]()), emt),
    **{
        f"{name}, {kind}": (make_atoms, by_spec(f"{kind}:{DATA / 'potentials'}/mixed.{kind}"))
        for name, make_atoms in COVALENT.items()
        for kind in ("sw", "tersoff")
    },
    "silicon crystal, sw": (lambda: reference_atoms("sw_si216.extxyz"), by_spec("sw")),
    "silicon crystal, tersoff": (lambda: reference_atoms("tersoff_si216.extxyz"), by_spec("tersoff")),
    "silicon with its nuclei": (lambda: reference_atoms("sw_si216.extxyz"), by_spec("sw + zbl:inner=2,outer=3")),
}


def torch_twin(model: ForceModel) -> ForceModel:
    for k, term in enumerate(getattr(model, "terms", [])):
        model.terms[k] = on_torch(term)
    return model if hasattr(model, "terms") else on_torch(model)


@pytest.mark.parametrize("name", FORCES)
def test_forces_energy_and_stress_are_those_of_numba(name, backend):
    make_atoms, make_model = FORCES[name]
    atoms = make_atoms()
    expected = evaluate(atoms, make_model(atoms))
    found = evaluate(atoms, torch_twin(make_model(atoms)), backend=backend)
    assert found.energy == pytest.approx(expected.energy, rel=1e-12)
    np.testing.assert_allclose(found.forces, expected.forces, rtol=0, atol=1e-11)
    if expected.stress is not None:
        np.testing.assert_allclose(found.stress, expected.stress, rtol=0, atol=1e-12)


@pytest.mark.parametrize("file", ["lj_ar256.extxyz", "lj_arkr108.extxyz", "eam_cu256.extxyz", "eam_cuni108.extxyz"])
def test_energies_and_forces_are_those_of_lammps(file, backend):
    atoms = reference_atoms(file)
    found = evaluate(atoms, on_torch(reference_model(file, atoms)), backend=backend)
    assert found.energy == pytest.approx(atoms.get_potential_energy(), rel=1e-9)
    np.testing.assert_allclose(found.forces, atoms.get_forces(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("case", [*references("sw"), *references("tersoff")], ids=lambda case: case["file"])
def test_three_body_references_are_met(case, backend):
    atoms = reference_atoms(case["file"])
    model = load_model(f"{case['model']['kind']}:{DATA / 'potentials' / case['model']['file']}", species_of(atoms))
    check_reference(case, on_torch(model), atoms, backend)


def test_effective_medium_is_ases(backend):
    atoms = rattled(METALS["aluminium_nickel_platinum"]())
    found = evaluate(atoms, on_torch(emt(atoms)), backend=backend)
    atoms.calc = AseEMT()
    assert found.energy == pytest.approx(atoms.get_potential_energy(), rel=1e-10)
    np.testing.assert_allclose(found.forces, atoms.get_forces(), rtol=0, atol=1e-11)


@pytest.mark.parametrize("precision", ["mixed", "single"])
@pytest.mark.parametrize(
    "name", ["every species, EMT", "silicon crystal, sw", "three_species, sw", "three_species, tersoff"]
)
def test_many_bodies_in_lower_precision_are_near_double(name, precision, backend):
    """Single coordinates are exact to 1e-6 Å here: 1e-5 of the largest force, and 1e-5 eV an atom (A-52)."""
    make_atoms, make_model = FORCES[name]
    atoms = make_atoms()
    exact, model = evaluate(atoms, make_model(atoms)), on_torch(make_model(atoms))
    model.precision = PRECISIONS[precision]
    found = evaluate(atoms, model, backend=backend)
    np.testing.assert_allclose(found.forces, exact.forces, rtol=0, atol=1e-5 * np.abs(exact.forces).max())
    assert np.abs(found.forces - exact.forces).max() > 0
    assert abs(found.energy - exact.energy) < 1e-5 * len(atoms)
    np.testing.assert_allclose(found.stress, exact.stress, rtol=0, atol=1e-5 * np.abs(exact.stress).max())


@pytest.mark.parametrize("precision", ["mixed", "single"])
def test_lower_precision_is_as_near_as_that_of_numba(precision, backend):
    atoms, results = pfcc(3, 3, 3), []
    exact = evaluate(atoms, argon(atoms))
    for model, where in ((argon(atoms), CPU), (on_torch(argon(atoms)), backend)):
        model.precision = PRECISIONS[precision]
        results.append(evaluate(atoms, model, backend=where))
    numba_off, torch_off = (np.abs(result.forces - exact.forces).max() for result in results)
    assert 0 < torch_off < max(2 * numba_off, 1e-7)
    assert results[1].energy == pytest.approx(exact.energy, rel=1e-6)


def test_a_force_that_is_not_finite_says_so(backend):
    atoms = in_box([(0, 0, 0), (0, 0, 0), (5, 5, 5)], [20] * 3)
    with pytest.raises(Exception, match="is not finite; atoms 0 and 1 are 0 Å apart"):
        evaluate(atoms, on_torch(argon(atoms)), backend=backend)


@pytest.mark.parametrize("spec", ["sw", "tersoff"])
def test_chunks_of_rows_change_nothing(spec, backend, monkeypatch):
    atoms = reference_atoms(f"{spec}_mixed64.extxyz")
    whole = evaluate(atoms, on_torch(reference_model(f"{spec}_mixed64.extxyz", atoms)), backend=backend)
    monkeypatch.setattr("mdrun.potentials.torch_centres.BLOCK", {"cpu": 2000, "cuda": 2000})
    parts = evaluate(atoms, on_torch(reference_model(f"{spec}_mixed64.extxyz", atoms)), backend=backend)
    assert parts.energy == pytest.approx(whole.energy, rel=1e-14)
    np.testing.assert_allclose(parts.forces, whole.forces, rtol=0, atol=1e-13)


def test_a_crowd_finds_room(backend):
    """Six atoms near one, then eleven: two widths of the rows, and (βζ)^n up to 1e170."""
    model, numba_model = on_torch(load_model("tersoff", (14,))), load_model("tersoff", (14,))
    for n in (6, 11):
        crowd = [[0.9 * np.cos(x), 0.9 * np.sin(x), 0.3] for x in range(n)]
        atoms = Atoms(f"Si{n + 2}", positions=[[0, 0, 0], [0, 0, 2.95], *crowd])
        expected, found = evaluate(atoms, numba_model), evaluate(atoms, model, backend=backend)
        assert found.energy == pytest.approx(expected.energy, rel=1e-12)
        np.testing.assert_allclose(found.forces, expected.forces, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("looks_late", [False, True])
def test_a_crowd_that_comes_in_one_step_is_not_cut_short(backend, looks_late):
    """Rows made for few neighbours are made anew; where the host has not seen how many come, forces are refused."""
    backend = TorchBackend(backend.device, looks_late)
    atoms = Atoms("Si14", positions=np.arange(14)[:, None] * [4.0, 0, 0])
    model, state = on_torch(load_model("sw", (14,))), state_of(atoms)
    state.move_to(backend.device)
    domain = Domain(Comm(), model.cutoff, 120.0, backend=backend)
    with Scope(model, domain, len(atoms)) as scope:
        for squeeze in (1.0, 0.6):  # no neighbours, then two
            state.positions.copy_(torch.from_numpy(atoms.positions * squeeze))
            domain.follow(state)
            assert scope(domain, totals=True).forces.isfinite().all()
        atoms.positions *= 0.15  # twelve
        state.positions.copy_(torch.from_numpy(atoms.positions))
        domain.follow(state)
        assert domain.counts.rebuilds == 1
        if looks_late:
            with pytest.raises(SimulationError, match=r"not finite.*crowd around another faster .*: lower --timestep"):
                scope(domain, totals=True)
        else:
            expected = evaluate(atoms, load_model("sw", (14,))).forces[domain.ids[: domain.n_owned].numpy()]
            forces = scope(domain, totals=True).forces.cpu().numpy()
            np.testing.assert_allclose(forces, expected, rtol=1e-11, atol=1e-11 * abs(expected).max())


@pytest.mark.parametrize("spec", ["emt", "sw", "tersoff"])
def test_many_bodies_in_one_place_stop_the_run(spec, backend):
    atoms = Atoms("Cu3" if spec == "emt" else "Si3", positions=[[0, 0, 0], [0, 0, 0], [0, 0, 2.4]])
    with pytest.raises(SimulationError, match="not finite"):
        evaluate(atoms, on_torch(load_model(spec, species_of(atoms))), backend=backend)


def test_a_model_without_a_torch_path_is_refused_by_name():
    class Springs:
        name, cutoff = "springs", 5.0

        def __call__(self, domain: Domain, totals: bool) -> Forces:
            raise NotImplementedError

    with pytest.raises(NoTorchPath, match="springs has no torch path; run it with --backend numba"):
        on_torch(Springs())


@pytest.mark.parametrize(
    "name",
    [
        "mixture", "charges", "copper and nickel", "three_species, tersoff",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("argon bulk", "every species, EMT", "three_species, sw")),
    ],
)  # fmt: skip
def test_compiled_kernels_agree(name, backend):
    if (trouble := why_eager(backend.device.type)) is not None:
        pytest.skip(trouble)
    test_forces_energy_and_stress_are_those_of_numba(name, backend)


def test_compiled_kernels_serve_rows_of_any_number_and_width(backend, monkeypatch):
    if (trouble := why_eager(backend.device.type)) is not None:
        pytest.skip(trouble)
    make_atoms, make_model = FORCES["three_species, tersoff"]
    atoms = make_atoms()
    model, numba_model = on_torch(make_model(atoms)), make_model(atoms)
    evaluate(atoms, model, backend=backend)
    dense = atoms * (2, 2, 2)
    dense.set_cell(dense.cell * 0.85, scale_atoms=True)
    with torch.compiler.set_stance("fail_on_recompile"):
        for other in (atoms * (2, 1, 3), dense):  # of more atoms, of longer rows
            expected, found = evaluate(other, numba_model), evaluate(other, model, backend=backend)
            np.testing.assert_allclose(found.forces, expected.forces, rtol=0, atol=1e-11)
        monkeypatch.setattr("mdrun.potentials.torch_centres.BLOCK", {"cpu": 5000, "cuda": 5000})
        found = evaluate(dense, model, backend=backend)
        np.testing.assert_allclose(found.forces, expected.forces, rtol=0, atol=1e-11)
