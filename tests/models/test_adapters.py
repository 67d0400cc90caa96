"""What the adapters take and refuse; those of packages are skipped where the package is missing."""

from __future__ import annotations

import copy
import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from ase.calculators.emt import EMT as ASEsEMT
from ase.calculators.lj import LennardJones

from mdrun.errors import InputError
from mdrun.potentials.adapters.packages import FORCED, needed
from mdrun.potentials.base import UnknownSpecies
from mdrun.potentials.catalogue import ENTRIES, serving
from mdrun.potentials.named_files import with_absolute_paths
from mdrun.potentials.registry import default_model, load_model, refuse_unasked_code
from tests.models.packages import one_copper, rocksalt, seeded_mace, slab
from tests.systems import evaluate, species_of


@pytest.mark.parametrize(
    "make", [pytest.param(slab, id="slab"), pytest.param(one_copper, id="one atom in a skewed cell")]
)
def test_an_ase_calculator_gives_on_one_rank_what_it_gives_by_itself(make):
    atoms = make()
    result = evaluate(atoms, load_model("ase:ase.calculators.emt:EMT", species_of(atoms)))
    atoms.calc = ASEsEMT()
    assert result.energy == pytest.approx(atoms.get_potential_energy(), rel=1e-12)
    np.testing.assert_allclose(result.forces, atoms.get_forces(), rtol=0, atol=1e-11)
    if atoms.pbc.all():
        np.testing.assert_allclose(result.stress, atoms.get_stress(voigt=False), rtol=0, atol=1e-12)


def test_arguments_of_an_ase_calculator_stand_behind_its_name_or_in_a_file(tmp_path):
    atoms = slab()
    (tmp_path / "lj.toml").write_text("sigma = 2.3\nepsilon = 0.4\nsmooth = true\n")
    spec = f"ase:ase.calculators.lj:LennardJones,toml={tmp_path / 'lj.toml'},rc=6"
    result = evaluate(atoms, load_model(spec, (29,)))
    atoms.calc = LennardJones(sigma=2.3, epsilon=0.4, smooth=True, rc=6)
    assert result.energy == pytest.approx(atoms.get_potential_energy(), rel=1e-12)


def test_a_calculator_in_a_file_of_the_users_is_found_from_any_directory(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("from ase.calculators.emt import EMT\nclass Mine(EMT):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    spec = with_absolute_paths("ase:mine.py:Mine,toml=none.toml")
    assert spec == f"ase:{tmp_path / 'mine.py'}:Mine,toml={tmp_path / 'none.toml'}"
    monkeypatch.chdir("/")
    result = evaluate(slab(), load_model(spec.partition(",")[0], (29,)))
    assert result.energy == evaluate(slab(), load_model("ase:ase.calculators.emt:EMT", (29,))).energy


def test_a_calculator_that_does_not_know_the_species_refuses_them_before_the_run(tmp_path):
    from tests.cli.launcher import call

    rocksalt().write(tmp_path / "salt.xyz")
    words = ("simulate", "salt.xyz", "--model", "ase:ase.calculators.emt:EMT", "--steps", 3, "--out", "run")
    refused = call(*words, cwd=tmp_path).expect(2)
    assert "can't compute these atoms (Na, Cl)" in " ".join(refused.err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("ase:mine:Calculator", "ase:FILE.py:CLASS"),
        ("ase:none.py:Calculator", "does not exist"),
        ("ase:LennardJones", "a module and a class"),
        ("ase:no.such.module:X", "can't be made"),
        ("ase:ase.calculators.lj:Nothing", "can't be made"),
        ("ase:pathlib:Path", "no ASE calculator"),
        ("ase:ase.calculators.lj:LennardJones,reach=far", "a length"),
        ("ase:ase.calculators.lj:LennardJones,toml=none.toml", "can't be read"),
        ("mace", "mace takes a model file"),
        ("mace:none.model", "does not exist"),
        ("chgnet:0.3.0,modal=1", "takes no options"),
    ],
)
def test_what_an_adapter_cannot_take_is_refused(spec, words):
    with pytest.raises(InputError, match=words):
        load_model(spec, (29,))


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sevenn", None)
    with pytest.raises(InputError, match=r"pip install 'mdrun\[sevennet\]'"):
        needed("sevenn", "sevennet")


PICKLES = [
    "mace:a.model", "lj + mace:a.model,head=x", "sevennet:my.pth", "sevennet:7net-mine.pth", "sevennet:7net-0/mine.pth",
    "chgnet:my.tar", "chgnet:0.3.0-mine.tar",
]  # fmt: skip
IN_PACKAGES = ["sevennet", "sevennet:7net-MF-0,modal=PBE", "sevennet:7NET-0", "chgnet", "chgnet:r2scan"]


@pytest.mark.parametrize("spec", PICKLES)
def test_a_pickle_loads_with_the_users_leave_alone(spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = Path(spec.split(":")[1].split(",")[0])
    with pytest.raises(InputError, match="there is no file"):  # a name that was mistyped, it may be
        refuse_unasked_code(spec, False)
    file.parent.mkdir(exist_ok=True)
    file.touch()
    with pytest.raises(InputError, match="--trust-model"):
        refuse_unasked_code(spec, False)
    refuse_unasked_code(spec, True)


@pytest.mark.parametrize("spec", [*IN_PACKAGES, "lj", "eam:x"])
def test_weights_inside_a_package_need_no_leave(spec):
    refuse_unasked_code(spec, False)


def test_a_file_with_the_name_of_a_packages_weights_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("7net-0").touch()
    with pytest.raises(InputError, match="--trust-model"):
        refuse_unasked_code("sevennet:7net-0", False)


def test_a_run_that_names_a_pickle_is_refused_before_it_is_opened(tmp_path):
    from tests.cli.launcher import call

    marker, model = tmp_path / "ran", tmp_path / "evil.model"

    class Evil:
        def __reduce__(self):
            return (Path.touch, (marker,))

    torch.save(Evil(), model)
    slab().write(tmp_path / "slab.xyz")
    found = call("simulate", tmp_path / "slab.xyz", "--model", f"mace:{model}", "--out", tmp_path / "run", cwd=tmp_path)
    assert found.code == 2
    assert "--trust-model" in found.err
    assert not marker.exists()


def test_paths_that_a_run_keeps_are_absolute_and_names_of_weights_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.model").touch()
    assert with_absolute_paths("mace:a.model") == f"mace:{tmp_path / 'a.model'}"
    assert with_absolute_paths("ase:m:C,toml=a.toml,x=1") == f"ase:m:C,toml={tmp_path / 'a.toml'},x=1"
    for spec in ("sevennet:7net-MF-0,modal=PBE", "chgnet:r2scan", "chgnet"):
        assert with_absolute_paths(spec) == spec


def test_without_a_model_the_error_lists_what_would_serve():
    with pytest.raises(InputError, match="sevennet"):
        default_model((11, 17))
    assert [entry.spec for entry in serving((84,))] == ["chgnet", "chgnet:r2scan"]


def test_mdrun_models_prints_a_line_for_each(tmp_path):
    from tests.cli.launcher import call

    found = call("models", cwd=tmp_path)
    assert found.code == 0
    assert all(any(line.startswith(entry.spec) for line in found.out.splitlines()) for entry in ENTRIES)


@pytest.mark.parametrize("name", ["7net-0", "7net-MF-0", "7net-l3i5"])
def test_what_the_catalogue_says_of_sevennet_is_so(name):
    util = pytest.importorskip("sevenn.util", reason="bash scripts/models.sh")
    net = util.load_checkpoint(name).build_model()
    entry = next(e for e in ENTRIES if e.spec.startswith(f"sevennet:{name}"))
    assert float(entry.cutoff) == net.cutoff
    assert int(entry.layers) == sum(key.endswith("_convolution") for key, _ in net.named_children())
    assert all(entry.covers((z,)) == (z in net.type_map) for z in range(1, 119))


def test_sevennet_asks_for_a_modal_and_knows_its_elements():
    pytest.importorskip("sevenn", reason="bash scripts/models.sh")
    with pytest.raises(InputError, match="R2SCAN, PBE"):
        load_model("sevennet:7net-MF-0", (11,))
    with pytest.raises(UnknownSpecies, match="Po"):
        load_model("sevennet", (84,))


def test_a_mace_file_gives_what_the_model_gives_and_leaves_torch_as_it_was(tmp_path):
    if importlib.util.find_spec("mace") is None:  # not imported yet: what it does to the process is what is tested
        pytest.skip("bash scripts/models.sh")
    os.environ.pop(FORCED, None)
    torch.save(copy.deepcopy(seeded_mace()), tmp_path / "small.model")
    model = load_model(f"mace:{tmp_path / 'small.model'}", (11, 17))
    assert model.cutoff == 4.5
    assert np.isfinite(evaluate(rocksalt(), model).energy)
    assert torch.get_default_dtype() == torch.float32
    assert FORCED not in os.environ
    with pytest.raises(UnknownSpecies, match="Xe"):
        load_model(f"mace:{tmp_path / 'small.model'}", (54,))


def test_mace_and_a_repulsion_add_up_on_one_list(tmp_path):
    pytest.importorskip("mace", reason="bash scripts/models.sh")
    torch.save(copy.deepcopy(seeded_mace()), tmp_path / "small.model")
    atoms, zbl = rocksalt(), "zbl:inner=4,outer=6"  # farther than mace's 4.5 Å
    whole, *terms = (
        evaluate(atoms, load_model(spec, (11, 17)))
        for spec in (f"mace:{tmp_path / 'small.model'} + {zbl}", f"mace:{tmp_path / 'small.model'}", zbl)
    )
    assert whole.energy == pytest.approx(sum(term.energy for term in terms), rel=1e-12)
    np.testing.assert_allclose(whole.forces, terms[0].forces + terms[1].forces, rtol=0, atol=1e-11)
    np.testing.assert_allclose(whole.stress, terms[0].stress + terms[1].stress, rtol=0, atol=1e-13)
