"""What the user got wrong is told in one paragraph, with the atom and the value, before anything is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.io import write as write_atoms

from tests.cli.launcher import call

PLUGIN = f"{Path(__file__).with_name('plugins.py')}:make"
CUBE = 'Lattice="12 0 0 0 12 0 0 0 12"'
AR = ["Ar 1 1 1", "Ar 5 1 1"]


def refuse(tmp_path, *words: object) -> str:
    """The one paragraph; there is no run directory after it."""
    before = set(tmp_path.rglob("*"))
    ended = call("simulate", *words, cwd=tmp_path).expect(2)
    assert ended.out == ""
    assert ended.err.startswith("mdrun: ")
    assert ended.err.count("\n") == 1
    assert set(tmp_path.rglob("*")) == before
    return ended.err


@pytest.mark.parametrize(
    ("rows", "header", "words"),
    [
        ([], CUBE, ["no atoms"]),
        ([*AR, "Ar 1.2 nan 4"], CUBE, ["atom 2 (Ar)", "position", "not finite", "(1.200, nan, 4.000)"]),
        ([*AR, "Ar inf 0 4"], CUBE, ["atom 2 (Ar)", "(inf, 0.000, 4.000)"]),
        ([*AR, "X 3 3 3"], CUBE, ["line 5", "'X'"]),
        ([*AR, "Qq 3 3 3"], CUBE, ["line 5", "'Qq'"]),
        (AR, 'pbc="T T T"', ["axis a", "no cell vector", "(0, 0, 0)"]),
        (AR, 'Lattice="12 0 0 0 12 0 0 0 0" pbc="T T T"', ["axis c", "no cell vector"]),
        (AR, 'Lattice="12 0 0 0 12 0 12 12 0" pbc="T T T"', ["span no volume", "c = (12, 12, 0)"]),
        (AR, 'Lattice="12 0 0 0 nan 0 0 0 12" pbc="T T T"', ["cell", "not finite"]),
        (["Ar 0 1 1", "Ar 12 1 1"], CUBE, ["atom 0 (Ar)", "atom 1 (Ar)", "same place"]),
        (["Ar 4 1 1", "Ar 4 1 1.0009"], 'pbc="F F F"', ["atom 0 (Ar)", "atom 1 (Ar)", "0.0009 Å"]),
        ([*AR, "Na 8 8 8", "Na 8 4 8"], CUBE, ["Na", "no built-in model", "--model"]),
        (AR, CUBE + ' pbc="yes T T"', ["pbc", "yes"]),
    ],
)  # fmt: skip
def test_structures_that_no_run_can_start_from(write, tmp_path, rows, header, words):
    write(rows, header)
    text = refuse(tmp_path, "a.xyz")
    assert "a.xyz" in text or "no built-in model" in text
    for word in words:
        assert word in text


def test_momenta_and_masses_that_are_no_numbers(write, tmp_path):
    write(["Ar 1 1 1 0 0 0", "Ar 5 1 1 0 nan 0"], CUBE, columns="species:S:1:pos:R:3:momenta:R:3")
    assert "atom 1 (Ar)" in (text := refuse(tmp_path, "a.xyz"))
    assert "(0.000, nan, 0.000)" in text
    write(["Ar 1 1 1 40", "Ar 5 1 1 0"], CUBE, columns="species:S:1:pos:R:3:masses:R:1")
    assert "atom 1 (Ar)" in (text := refuse(tmp_path, "a.xyz"))
    assert "mass 0" in text


def test_atoms_that_are_too_close_earn_a_warning(write, tmp_path):
    write(["He 1 1 1", "He 1 1 1.4"], CUBE)
    ended = call("simulate", "a.xyz", "--model", "lj:epsilon=1e-12,sigma=0.1", "--steps", "0", cwd=tmp_path).expect(0)
    note = next(line for line in ended.out.splitlines() if "apart" in line)
    assert note.startswith("note: atom 0 (He) and atom 1 (He)")
    assert "0.400 Å apart" in note


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("lj", ["Na", "(atoms 1, 3)", "it knows", "Ar"]),
        ("emt", ["Na, Ar", "(atoms 0, 1, 2, 3)", "Cu"]),
        ("lj:epsilon=0.01,sigma=3", ["one species", "Na"]),
        ("lj:epsilonn=1,sigma=2", ["epsilonn"]),
        ("lj:nowhere.toml", ["nowhere.toml"]),
        ("eam:nowhere.alloy", ["nowhere.alloy"]),
        ("eam", ["takes a file"]),
        ("ljj", ["ljj", "unknown", "lj", "eam", "emt"]),
        ("nowhere.py:make", ["nowhere.py", "does not exist"]),
    ],
)
def test_models_that_do_not_serve(write, tmp_path, model, words):
    write(["Ar 1 1 1", "Na 5 1 1", "Ar 1 5 1", "Na 1 1 5"], CUBE)
    text = refuse(tmp_path, "a.xyz", "--model", model)
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("pbc", "options", "words"),
    [
        ("F F F", [], ["periodic axis", "--ensemble nvt"]),
        ("T T F", ["--box", "xyz"], ["not periodic along z"]),
        ("T T F", ["--box", "triclinic"], ["three periodic"]),
        ("T T F", ["--pressure", "1"], ["--pressure must be 0"]),
    ],
)
def test_cells_that_no_barostat_can_move(write, tmp_path, pbc, options, words):
    write(AR, f'{CUBE} pbc="{pbc}"')
    text = refuse(tmp_path, "a.xyz", "--ensemble", "nph", "--pressure", "0", *options)
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ensemble", "npe"], ["--ensemble npe", "nve, nvt, npt, nph"]),
        (["--ensemble", "npt", "--temperature", "50"], ["npt needs --pressure"]),
        (["--ensemble", "nph", "--pressure", "1,2"], ["--pressure 1,2", "xx,yy,zz"]),
        (["--ensemble", "nph", "--pressure", "much"], ["--pressure much", "GPa"]),
        (["--ensemble", "nph", "--pressure", "1,2,1"], ["--pressure 1,2,1", "--box xyz"]),
        (["--ensemble", "nph", "--pressure", "1,1,1,0,0,2", "--box", "xyz"], ["shear", "triclinic"]),
        (["--ensemble", "nph", "--pressure", "1,2,1", "--couple", "xy"], ["x and y", "coupled"]),
        (["--ensemble", "nph", "--pressure", "0", "--box", "xq"], ["--box xq", "triclinic"]),
        (["--ensemble", "nph", "--pressure", "0", "--box", "xy", "--couple", "yz"], ["--couple yz", "--box"]),
        (["--ensemble", "nph", "--pressure", "0", "--barostat", "stochastic"], ["nph", "heat"]),
        (["--ensemble", "nph", "--pressure", "0", "--barostat-time", "0"], ["--barostat-time 0"]),
        (["--ensemble", "npt", "--pressure", "0", "--temperature", "9", "--thermostat", "andersen"], ["mtk", "bussi"]),
        (
            ["--ensemble", "nvt", "--temperature", "0", "--thermostat", "nose-hoover"],
            ["nose-hoover", "0 K", "langevin"],
        ),
        # what would do nothing
        (["--thermostat", "bussi"], ["--thermostat", "do nothing", "nvt or npt"]),
        (["--friction", "2"], ["--friction", "do nothing"]),
        (["--pressure", "1"], ["--pressure", "do nothing", "npt or nph"]),
        (["--box", "xyz"], ["--box", "do nothing"]),
        (["--ensemble", "nvt", "--temperature", "9", "--thermostat-time", "50"], ["--thermostat-time", "langevin"]),
        (
            ["--ensemble", "nvt", "--temperature", "9", "--thermostat", "bussi", "--friction", "1"],
            ["--friction", "bussi"],
        ),
        (["--ensemble", "nph", "--pressure", "0", "--compressibility", "1"], ["--compressibility", "stochastic"]),
        (["--ensemble", "nvt"], ["--temperature"]),
        (["--ensemble", "nvt", "--temperature", "-1"], ["--temperature -1"]),
        (["--temperature", "300"], ["--init-temperature", "nvt"]),
        (["--thermostat", "bath"], ["--thermostat bath", "langevin"]),
        (["--friction", "-2"], ["--friction -2"]),
        (["--init-temperature", "nan"], ["--init-temperature nan"]),
        (["--timestep", "0"], ["--timestep 0"]),
        (["--timestep", "inf"], ["--timestep inf"]),
        (["--steps", "-1"], ["--steps -1"]),
        (["--time", "-1"], ["--time -1"]),
        (["--time", "nan"], ["--time nan"]),
        (["--time", "inf"], ["--time inf"]),
        (["--time", "1", "--steps", "5"], ["--time", "--steps"]),
        (["--skin", "-0.5"], ["--skin -0.5"]),
        (["--skin", "inf"], ["--skin inf"]),
        (["--check-every", "0"], ["--check-every 0"]),
        (["--log-every", "-1"], ["--log-every -1"]),
        (["--trajectory-every", "-1"], ["--trajectory-every -1"]),
        (["--checkpoint-every", "-1"], ["--checkpoint-every -1"]),
        (["--threads", "0"], ["--threads 0"]),
        (["--threads", "4000"], ["--threads 4000"]),
        (["--comm-timeout", "0"], ["--comm-timeout 0"]),
        (["--seed", "-1"], ["--seed -1"]),
        (["--replicate", "0", "1", "1"], ["--replicate", "0"]),
        (["--index", "3"], ["frame 3", "--index"]),
        (["--format", "nonsense"], ["nonsense"]),
        (["--species", "Ar"], ["--species"]),
        (["--allow-changes", "timstep"], ["--allow-changes", "'timstep'", "did you mean timestep?"]),
        (["--allow-changes", "timestep, constrain_bond"], ["'constrain-bond'", "did you mean constrain-bonds?"]),
        (["--resume", "--allow-changes", "qqq"], ["'qqq' is no option of simulate", "there are", "trajectory-atoms"]),
        (["--config", "nowhere.toml"], ["nowhere.toml"]),
    ],
)
def test_options_out_of_range(write, tmp_path, options, words):
    write(AR, CUBE)
    text = refuse(tmp_path, "a.xyz", *options)
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# a remark\n\nstepz = 5", ["options.toml, line 3", "'stepz'", "did you mean steps?"]),
        ('model = """\nsteps = 1"""\nsteps = "5"', ["options.toml, line 3", "steps takes a whole number", "'5'"]),
        ("steps = true", ["line 1", "steps takes a whole number", "True"]),
        ("seed = 1.5", ["seed takes a whole number", "1.5"]),
        ("log-every = 1\nlog_every = 2", ["line 2", "log_every is given twice"]),
        ("[steps]\nof = 1", ["line 1", "steps takes a whole number"]),
        ("seed = 1\nsteps = = 2", ["not TOML", "line 2"]),
        ("seed = " + "9" * 5000, ["not TOML"]),
        ("replicate = [1, 2]", ["replicate", "three"]),
        ("steps = ", ["not TOML"]),
        ("\ntimestep = nan", ["options.toml, line 2: timestep nan won't do"]),
    ],
)
def test_configurations_with_a_mistake(write, tmp_path, text, words):
    write(AR, CUBE)
    (tmp_path / "options.toml").write_text(text)
    told = refuse(tmp_path, "a.xyz", "--config", "options.toml")
    for word in words:
        assert word in told


def test_no_structure_at_all(tmp_path):
    assert "no structure was given" in refuse(tmp_path)
    assert "there is no file a.xyz" in refuse(tmp_path, "a.xyz")
    assert "a directory" in refuse(tmp_path, tmp_path)


def test_an_explosion_ends_with_its_own_code_and_names_atoms_and_step(tmp_path):
    """Two atoms on each other's repulsive wall: gone within a step or two."""
    write_atoms(tmp_path / "bomb.xyz", Atoms("Ar2", positions=[[0, 0, 0], [0.6, 0, 0]], cell=[30] * 3, pbc=True))
    ended = call("simulate", "bomb.xyz", "--steps", "50", "--timestep", "5", "--out", "x", cwd=tmp_path).expect(3)
    assert ended.err.count("\n") == 1
    for word in ("mdrun: step 1", "ids 0, 1", "last good step is 0", "--timestep"):
        assert word in ended.err
    status = (tmp_path / "x" / "status.json").read_text()
    assert '"state": "failed"' in status
    assert '"exit_code": 3' in status
    assert "ids 0, 1" in status
    assert not (tmp_path / "x" / "checkpoint.npz").exists()


@pytest.fixture
def pair(tmp_path) -> tuple[str, ...]:
    write_atoms(tmp_path / "pair.xyz", Atoms("Ar2", positions=np.eye(3)[:2] * 9, cell=[30] * 3, pbc=True))
    return ("simulate", "pair.xyz", "--steps", "9", "--log-every", "1", "--model")


def test_forces_that_are_not_finite_end_the_run_at_once(pair, tmp_path):
    ended = call(*pair, f"{PLUGIN},fails=nan,call=4", "--out", "x", cwd=tmp_path).expect(3)
    assert "step 4: the force on 1 atom (ids 0)" in ended.err
    assert "The last good step is 3." in ended.err
    assert (tmp_path / "x" / "thermo.csv").read_text().splitlines()[-1].startswith("3,")
    ended = call(*pair, f"{PLUGIN},fails=nan,call=0", "--out", "y", cwd=tmp_path).expect(3)
    assert "No step was made: the input or its options are at fault." in ended.err


def test_a_fault_of_the_model_is_told_with_its_step(pair, tmp_path):
    ended = call(*pair, f"{PLUGIN},fails=raise,call=4", "--out", "x", cwd=tmp_path).expect(1)
    assert ended.err == "mdrun: step 4: RuntimeError: the model gave up\n"


def test_a_stress_that_is_only_logged_stops_nothing(pair, tmp_path):
    """A-58: constant energy needs no stress."""
    call(*pair, f"{PLUGIN},fails=virial,call=4", "--out", "x", cwd=tmp_path).expect(0)
    pressures = [line.split(",")[6] for line in (tmp_path / "x" / "thermo.csv").read_text().splitlines()[1:]]
    assert [step for step, pressure in enumerate(pressures) if pressure == "nan"] == [4]


@pytest.mark.parametrize("command", [("simulate", "--ensemble", "nph", "--pressure", "0"), ("relax", "--cell", "full")])
def test_what_shows_only_when_the_model_has_run_leaves_no_directory_either(write, tmp_path, command):
    write(AR, CUBE)
    (tmp_path / "bare.py").write_text(
        "from mdrun.potentials.base import Forces\n"
        "class Bare:\n"
        "    cutoff = 5.0\n"
        "    def __call__(self, domain, totals):\n"
        "        return Forces(0 * domain.positions[:, : domain.n_owned].T, 0.0)\n"
        "def make(numbers):\n"
        "    return Bare()\n"
    )
    word, *options = command
    ended = call(word, "a.xyz", "--model", "bare.py:make", *options, cwd=tmp_path).expect(2)
    assert "virial" in ended.err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["a.xyz", "bare.py"]
