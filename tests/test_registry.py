"""From the string of ``--model`` to a force model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT as AseEMT
from ase.calculators.lj import LennardJones as AseLennardJones
from ase.calculators.mixing import SumCalculator

from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.errors import InputError
from mdrun.potentials.base import ForceModel, Forces, UnknownSpecies
from mdrun.potentials.eam import EAM
from mdrun.potentials.emt import EMT
from mdrun.potentials.registry import LOADERS, Sum, default_model, load_model
from mdrun.scope import Scope
from tests.systems import DATA, argon, evaluate, pfcc, state_of

POTENTIALS = DATA / "potentials"
AR, CU = (18,), (29,)


def pair(distance: float, symbols: str = "Ar2") -> Atoms:
    return Atoms(symbols, positions=[[0, 0, 0], [distance, 0, 0]])


def pair_energy(distance: float, epsilon: float, sigma: float) -> float:
    return 4 * epsilon * ((sigma / distance) ** 12 - (sigma / distance) ** 6)


# One model


@pytest.mark.parametrize(
    ("spec", "symbols", "distance", "expected"),
    [
        ("lj", "Ar2", 4.0, pair_energy(4.0, 0.0104, 3.40)),
        ("lj", "Ar2", 8.49, pair_energy(8.49, 0.0104, 3.40)),  # 2.5 σ = 8.5
        ("lj", "Ar2", 8.51, 0.0),
        ("lj", "Xe2", 9.94, pair_energy(9.94, 0.0200, 3.98)),
        ("lj:epsilon=0.5,sigma=3", "Ar2", 3.3, pair_energy(3.3, 0.5, 3)),
        ("lj: sigma = 3 , epsilon = 5e-1, cutoff=3.2", "Ar2", 3.3, 0.0),
        ("lj:epsilon=0.5,sigma=3,cutoff=6,shift=true", "Ar2", 3.3, pair_energy(3.3, 0.5, 3) - pair_energy(6, 0.5, 3)),
        ("lj:shift=yes,cutoff=6", "Kr2", 4.0, pair_energy(4.0, 0.014, 3.65) - pair_energy(6, 0.014, 3.65)),
        ("lj:epsilon=0,sigma=3", "Ar2", 3.3, 0.0),
    ],
)
def test_lennard_jones_by_numbers_or_by_species(spec, symbols, distance, expected):
    atoms = pair(distance, symbols)
    assert evaluate(atoms, load_model(spec, (int(atoms.numbers[0]),))).energy == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("mixing", "sigma"),
    [("", (3.4 + 3.98) / 2), (":mixing=geometric", (3.4 * 3.98) ** 0.5), (":mixing=lorentz-berthelot", 3.69)],
)
def test_unlike_noble_gases_mix(mixing, sigma):
    energy = evaluate(pair(4.2, "ArXe"), load_model(f"lj{mixing}", (18, 54))).energy
    assert energy == pytest.approx(pair_energy(4.2, (0.0104 * 0.02) ** 0.5, sigma), rel=1e-12)


def test_names_lead_to_their_models():
    assert isinstance(load_model("emt", CU), EMT)
    assert isinstance(load_model(f"eam:{POTENTIALS / 'Cu_u3.eam'}", CU), EAM)
    for spec in ("lj", "emt", f"eam:{POTENTIALS / 'Cu_u3.eam'}"):
        model = load_model(spec, AR if spec == "lj" else CU)
        assert isinstance(model, ForceModel)
        assert f"{model.cutoff:.3g}" in model.name or spec == "emt"


@pytest.mark.parametrize("path", ["a b.eam.alloy", "Ångström+1.eam.alloy"])
def test_a_file_may_have_an_odd_name(tmp_path, path):
    (tmp_path / path).write_bytes((POTENTIALS / "Cu_mishin1.eam.alloy").read_bytes())
    assert load_model(f"eam:{tmp_path / path}", CU).cutoff == pytest.approx(5.50679)


def test_a_file_is_looked_for_in_the_shells_directory(tmp_path, monkeypatch):
    (tmp_path / "Cu.eam").write_bytes((POTENTIALS / "Cu_u3.eam").read_bytes())
    with pytest.raises(InputError, match=r"Cu\.eam can't be read: No such file"):
        load_model("eam:Cu.eam", CU)
    monkeypatch.chdir(tmp_path)
    assert load_model("eam:Cu.eam", CU).cutoff == pytest.approx(4.95)


# What is refused


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", r"model '' is unknown; there are lj, .*FILE\.py:FUNCTION"),
        ("ljj", "model 'ljj' is unknown"),
        ("lj+emt", "sums with blanks around the sign"),
        ("lj + ", "model '' is unknown"),
        ("lj:colour=red", "colour"),
        ("lj:epsilon=0.1,epsilon=0.2", "'epsilon=0.2' should be key=value, each key once"),
        ("lj:epsilon=0.1,sigma", "'sigma' should be key=value"),
        ("lj:=3", "'=3' should be key=value"),
        ("lj:epsilon=0.1", "epsilon=.* sigma="),
        ("lj:epsilon=-0.1,sigma=3", "epsilon must be a number not below 0, not '-0.1'"),
        ("lj:epsilon=0.1,sigma=0", "sigma must be a positive number, not '0'"),
        ("lj:epsilon=0.1,sigma=three", "sigma must be a positive number, not 'three'"),
        ("lj:cutoff=nan", "cutoff must be a positive number, not 'nan'"),
        ("lj:cutoff=inf", "cutoff must be a positive number, not 'inf'"),
        ("lj:cutoff=", "cutoff must be a positive number, not ''"),
        ("lj:shift=perhaps", "shift must be true or false, not 'perhaps'"),
        ("lj:mixing=mine", "mixing rule 'mine' is unknown; there are lorentz-berthelot, geometric"),
        ("lj:absent.toml", r"table absent\.toml can't be read: No such file"),
        ("eam", "eam takes a file and nothing else"),
        ("eam:x.eam,shift=true", "eam takes a file and nothing else"),
        ("eam:file=x.eam", "eam takes a file and nothing else"),
        ("emt:asap", "emt takes no options"),
        ("emt:cutoff=3", "emt takes no options"),
        ("absent.py:make", r"model file absent\.py does not exist"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(spec, message):
    with pytest.raises(InputError, match=message):
        load_model(spec, AR)


def test_one_epsilon_does_not_serve_two_species():
    with pytest.raises(InputError, match="covers one species; the structure has Ar, Kr"):
        load_model("lj:epsilon=0.01,sigma=3.4", (18, 36))


@pytest.mark.parametrize(("spec", "numbers", "missing"), [("lj", (11, 18), (11,)), ("emt", (11, 18, 29), (11, 18))])
def test_species_without_parameters_are_named(spec, numbers, missing):
    with pytest.raises(UnknownSpecies, match="Na") as caught:
        load_model(spec, numbers)
    assert caught.value.numbers == missing


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cutoff = ", "is not TOML"),
        ("radius = 3\n[species.Ar]\nepsilon = 1\nsigma = 1", "radius"),
        ("[species.Ar]\nepsilon = 1", r"\[species\.Ar\] must hold epsilon .* sigma .* nothing else"),
        ("[species.Ar]\nepsilon = 1\nsigma = 'x'", r"species\.Ar\.sigma must be a positive number"),
        ("[species.Ar]\nepsilon = 1\nsigma = 3\n[pairs.ArKr]\nepsilon = 1\nsigma = 3", "must name two species"),
        ("species = 3", "species must be sections"),
        ("cutoff = -1\n[species.Ar]\nepsilon = 1\nsigma = 3", "cutoff must be a positive number"),
        ("shift = 3\n[species.Ar]\nepsilon = 1\nsigma = 3", "shift must be true or false"),
        ("[species.Kr]\nepsilon = 1\nsigma = 3", "no parameters for Ar; it knows Kr"),
    ],
)
def test_a_broken_table_is_refused_with_its_place(tmp_path, text, message):
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        load_model(f"lj:{tmp_path / 'x.toml'}", AR)


# Sums


def test_a_sum_runs_on_one_list_and_each_term_keeps_its_cutoff():
    """ASE adds up the same two calculators; the second one's cutoff ends far within the first one's list."""
    long, short = "lj:shift=true", "lj:epsilon=0.05,sigma=2.5,cutoff=4.1,shift=1"
    model = load_model(f"{long} + {short}", AR)
    assert model.cutoff == 8.5
    atoms = pfcc(2, 2, 2)
    result = evaluate(atoms, model)
    atoms.calc = SumCalculator([
        AseLennardJones(epsilon=0.0104, sigma=3.4, rc=8.5), AseLennardJones(epsilon=0.05, sigma=2.5, rc=4.1)
    ])  # fmt: skip
    assert result.energy == pytest.approx(atoms.get_potential_energy(), rel=1e-12)
    np.testing.assert_allclose(result.forces, atoms.get_forces(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.stress, atoms.get_stress(voigt=False), rtol=0, atol=1e-14)


def test_models_of_different_kinds_add_up():
    model = load_model("emt + lj:epsilon=0.05,sigma=2.2,cutoff=7,shift=true", CU)
    atoms = bulk("Cu", a=3.6, cubic=True) * (2, 2, 2)
    atoms.rattle(0.1, seed=1)
    result = evaluate(atoms, model)
    atoms.calc = SumCalculator([AseEMT(), AseLennardJones(epsilon=0.05, sigma=2.2, rc=7.0)])
    assert result.energy == pytest.approx(atoms.get_potential_energy(), rel=1e-10)
    np.testing.assert_allclose(result.forces, atoms.get_forces(), rtol=0, atol=1e-10)
    assert " + " in model.name


class Blind:
    """A model that knows forces only."""

    name, cutoff = "blind", 3.0

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, domain, totals):
        return Forces(argon(3.0)(domain, False).forces, 1.0 if totals else None)

    def distributed_setup(self, context):
        self.calls.append("setup")

    def distributed_teardown(self):
        self.calls.append("teardown")


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_a_sum_does_not_claim_a_virial_that_one_term_lacks(order):
    blind, atoms = Blind(), pfcc(2, 2, 2)
    model = Sum([argon(), blind][order])
    domain = Domain(Comm(), model.cutoff, 1.0)
    with Scope(model, domain, len(atoms)) as scope:
        domain.follow(state_of(atoms))
        forces = scope(domain, totals=True)
    assert forces.virial is None
    assert forces.energy == pytest.approx(evaluate(atoms, argon()).energy + 1)
    assert blind.calls == ["setup", "teardown"]


# Scripts

SCRIPT = """
from mdrun.potentials.lennard_jones import make_lennard_jones

class Model:
    def __init__(self, epsilon, numbers):
        self.inner = make_lennard_jones({(0, 0): (float(epsilon), 3.4)}, 1, 8.5, False, "inner")
        self.cutoff, self.numbers = 8.5, numbers

    def __call__(self, domain, totals):
        return self.inner(domain, totals)

def make(numbers, epsilon="0.0104"):
    return Model(epsilon, numbers)

def number(numbers):
    return 3

def picky(numbers):
    from mdrun.potentials.base import UnknownSpecies
    raise UnknownSpecies("picky", numbers, ["He"])

def failing(numbers):
    return [][1]

constant = 3
"""


@pytest.fixture
def script(tmp_path) -> Path:
    (tmp_path / "mine.py").write_text(SCRIPT)
    return tmp_path / "mine.py"


def test_a_function_in_a_script_makes_a_model(script):
    model = load_model(f"{script}:make", AR)
    assert model.name == "mine.py:make"
    assert model.numbers == AR
    assert evaluate(pair(3.8), model).energy == pytest.approx(-0.010392899719, abs=1e-11)
    doubled = load_model(f"{script}:make,epsilon=0.0208", AR)
    assert evaluate(pair(3.8), doubled).energy == pytest.approx(2 * -0.010392899719, abs=1e-11)
    both = load_model(f"{script}:make + lj", AR)
    assert evaluate(pair(3.8), both).energy == pytest.approx(2 * -0.010392899719, abs=1e-11)


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (":absent", r"mine\.py has no function absent"),
        (":constant", r"mine\.py has no function constant"),
        (":number", r"mine\.py:number returned int, which is no model.*cutoff"),
        (":failing", r"mine\.py:failing fails: IndexError"),
        (":make,sigma=3", r"mine\.py:make fails: TypeError.*sigma"),
        (":make,epsilon=x", r"mine\.py:make fails: ValueError"),
        (":make,epsilon", "'epsilon' should be key=value"),
        (":picky", "model picky has no parameters for Ar; it knows He"),
        (":", "is unknown"),
    ],
)
def test_a_script_that_fails_is_named_with_its_reason(script, rest, message):
    with pytest.raises(InputError, match=message):
        load_model(f"{script}{rest}", AR)


@pytest.mark.parametrize(("text", "reason"), [("def make(:", "SyntaxError"), ("import absent_module", "absent_module")])
def test_a_script_that_does_not_load_is_named_with_its_reason(tmp_path, text, reason):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(InputError, match=rf"mine\.py fails: .*{reason}"):
        load_model(f"{tmp_path / 'mine.py'}:make", AR)


# Without --model


@pytest.mark.parametrize(
    ("numbers", "spec"),
    [((18,), "lj"), ((10, 18, 36, 54), "lj"), ((29,), "emt"), ((13, 28, 29, 46, 47, 78, 79), "emt")],
)
def test_the_species_choose_a_model_that_covers_them(numbers, spec):
    assert default_model(numbers) == spec
    assert load_model(spec, numbers).cutoff > 3


@pytest.mark.parametrize("numbers", [(1,), (26,), (18, 29), (2,), (8, 29)])
def test_for_other_species_the_error_lists_what_would_serve(numbers):
    """Hydrogen, carbon, nitrogen and oxygen have toy parameters in EMT: nobody gets them unasked."""
    with pytest.raises(InputError, match=r"no built-in model covers .* eam:FILE .* or lj:FILE\.toml"):
        default_model(numbers)


def test_every_loader_has_a_name_that_a_sum_can_hold():
    assert all(name.isidentifier() for name in LOADERS)
