"""How the program starts: at once, by either of its names, with help that loads nothing heavy."""

from __future__ import annotations

import sys

import pytest

from mdrun import __version__
from tests.cli.launcher import Program, call, run

LOADED = """
import sys
from mdrun.cli.app import main
try:
    main()
except SystemExit:
    pass
print("loaded", *sorted(sys.modules))
"""


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["simulate", "--help"],
        ["relax", "--help"],
        ["validate", "--help"],
        ["status", "--help"],
        ["--version"],
    ],
)
def test_help_loads_nothing_heavy(words):
    ended = Program(sys.executable, "-c", LOADED, *words).wait().expect(0)
    loaded = set(ended.out.split("loaded", 1)[1].split())
    assert "mdrun.cli.simulate" in loaded
    assert not loaded & {"torch", "numba", "ase", "numpy", "scipy"}


def test_help_names_every_option_and_its_unit():
    text = run("simulate", "--help", env={"COLUMNS": "200"}).expect(0).out
    options = (
        "--model --ensemble --thermostat --temperature --timestep --steps --time --seed --out --replicate "
        "--init-temperature --threads --skin --log-every --trajectory-every --checkpoint-every --config --index "
        "--format --overwrite --species --friction --pressure --barostat --barostat-time --box --couple "
        "--compressibility --check-every --comm-timeout --max-hours --debug"
    )
    assert [option for option in options.split() if option not in text] == []
    for unit in ("fs.", "ps;", "Å.", "K;", "1/ps."):
        assert unit in text


def test_the_module_is_the_program():
    ended = Program(sys.executable, "-m", "mdrun", "--version").wait().expect(0)
    assert ended.out == f"mdrun {__version__}\n" == run("--version").expect(0).out


def test_an_unknown_option_or_command_is_a_usage_error(tmp_path):
    for words in (["simulate", "a.xyz", "--stepz", "5"], ["simulatte"], ["simulate", "a.xyz", "--steps", "many"]):
        ended = call(*words, cwd=tmp_path)
        assert ended.code == 2
        assert words[-2 if len(words) > 1 else -1].strip("-") in ended.err
        assert "Traceback" not in ended.err
