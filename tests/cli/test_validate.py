"""``mdrun validate`` from end to end: verdicts, exit codes, what greps and what parses, on one rank and on two."""

from __future__ import annotations

import io
import json
from pathlib import Path

import ase.io
import pytest
from ase.build import bulk
from ase.constraints import FixBondLengths
from rich.console import Console

from mdrun.report.verdicts import Verdicts
from mdrun.validate import ranks
from mdrun.validate.verdict import CHECKS, FAIL, PASS, SKIPPED, WARN, Check, Plan, exit_code, names_in, overall
from tests.cli.launcher import MDRUN, Ended, call, run, torchrun
from tests.systems import pfcc

FAULTY = f"{Path(__file__).parents[1] / 'validate' / 'faulty.py'}:make"
SHORT = ("--samples", 3, "--short-steps", 100, "--long-steps", 2000, "--seed", 3)
BATH = ("--ensemble", "nvt", "--thermostat", "bussi", "--temperature", 40, "--thermostat-time", 20, "--timestep", 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("validate")
    ase.io.write(path / "argon.xyz", pfcc(3, 2, 2))
    ase.io.write(path / "copper.xyz", bulk("Cu", cubic=True) * (2, 2, 2))
    return path


def verdicts(ended: Ended) -> dict[str, str]:
    """As grep finds them."""
    lines = [line.split()[1:3] for line in ended.out.splitlines() if line.startswith("check ")]
    return {name.rstrip(":"): verdict.rstrip(",:") for name, verdict in lines}


def kept(path: Path) -> dict:
    return json.loads((path / "validate.json").read_text())


def test_a_sound_run_passes_every_check(folder, monkeypatch):
    monkeypatch.setattr(ranks, "NUMBERS", (2,))
    words = (*BATH, "--temperature", 300, "--timestep", 3)
    ended = call("validate", "copper.xyz", *words, *SHORT, cwd=folder).expect(0)
    assert verdicts(ended) == dict.fromkeys(CHECKS, "pass")
    assert "verdict: pass (6 pass); copper.validate/validate.json" in ended.out
    assert ended.err == ""
    found = kept(folder / "copper.validate")
    assert (found["state"], found["verdict"], found["exit_code"], found["n_atoms"]) == ("finished", "pass", 0, 32)
    assert [check["name"] for check in found["checks"]] == list(CHECKS)
    assert found["settings"]["model"] == "emt"
    assert found["settings"]["seed"] == 3
    assert set(found["versions"]) >= {"mdrun", "torch", "numpy"}
    for check in found["checks"]:
        assert check["meaning"].endswith(".")
        assert check["limit"] is None or check["value"] < check["limit"]


def test_two_ranks_find_the_same(folder):
    words = (
        "validate",
        "argon.xyz",
        "--model",
        f"{FAULTY},fault=none",
        *BATH,
        *SHORT,
        "--long-steps",
        500,
        "--samples",
        12,
    )
    one = call(*words, "--out", "one", "--checks", "forces,stress,energy,list,ensemble", cwd=folder).expect(0)
    two = torchrun(2, "--no-python", MDRUN, *words, "--out", "two", cwd=folder).wait().expect(0)
    assert verdicts(two) == {**verdicts(one), "ranks": "pass"}
    assert "2 ranks and one differ by" in two.out
    single, several = ({c["name"]: c for c in kept(folder / name)["checks"]} for name in ("one", "two"))
    for name, number in (
        ("forces", "root_mean_square_force_eV_per_A"),
        ("energy", "order"),
        ("energy", "fluctuation_eV"),
    ):
        assert several[name]["numbers"][number] == pytest.approx(single[name]["numbers"][number], rel=1e-6), number
    assert several["forces"]["numbers"]["atoms"] == single["forces"]["numbers"]["atoms"]


def test_a_fault_on_two_ranks_fails_on_all(folder):
    words = ("validate", "argon.xyz", "--init-temperature", 40, *SHORT, "--checks", "forces,ranks,list", "--out", "bad")
    ended = torchrun(2, "--no-python", MDRUN, *words, "--model", f"{FAULTY},fault=ghosts", cwd=folder).wait()
    assert ended.code == 1  # torchrun's own, whatever its workers ended with
    assert verdicts(ended) == {"forces": "pass", "ranks": "fail", "list": "pass"}
    assert "sum owned atoms only" in ended.out
    assert kept(folder / "bad")["exit_code"] == 3


@pytest.mark.parametrize(("fault", "check"), [("force", "forces"), ("virial", "stress"), ("force", "energy")])
def test_a_failed_check_ends_with_three(folder, fault, check):
    words = ("--model", f"{FAULTY},fault={fault}", "--init-temperature", 60, "--timestep", 4, *SHORT)
    ended = call("validate", "argon.xyz", *words, "--checks", check, "--out", "failed", cwd=folder).expect(3)
    assert verdicts(ended) == {check: "fail"}
    found = kept(folder / "failed")
    assert (found["verdict"], found["exit_code"], found["checks"][0]["verdict"]) == ("fail", 3, "fail")


def test_a_run_that_blows_up_is_written_down_as_a_failure(folder):
    words = ("--init-temperature", 300, "--timestep", 300, *SHORT, "--checks", "energy", "--out", "blown")
    ended = call("validate", "argon.xyz", *words, cwd=folder).expect(3)
    assert ended.err.startswith("mdrun: step ")
    found = kept(folder / "blown")
    assert (found["state"], found["verdict"], found["exit_code"]) == ("failed", "fail", 3)
    assert found["checks"][0]["name"] == "warm-up"
    assert "--timestep" in found["checks"][0]["meaning"]


def test_at_rest_only_what_stands_still_is_checked(folder):
    words = (*SHORT, "--model", f"{FAULTY},fault=none", "--checks", "forces,energy,list,ensemble", "--out", "rest")
    ended = call("validate", "copper.xyz", *words, cwd=folder).expect(0)
    assert verdicts(ended) == {"forces": "pass", "energy": "skipped", "list": "skipped", "ensemble": "skipped"}
    assert "--init-temperature" in ended.out


def test_the_configuration_of_a_run_says_what_to_check(folder):
    run_words = ("--ensemble", "nvt", "--temperature", "40:80", "--timestep", 4, "--steps", 5, "--seed", 8)
    call("simulate", "argon.xyz", *run_words, "--out", "run", cwd=folder).expect(0)
    before = sorted(path.name for path in (folder / "run").iterdir())
    words = ("--config", "run/config.toml", "--checks", "forces", "--out", "of-run")
    ended = call("validate", *words, cwd=folder).expect(0)
    assert "ensemble: nvt, langevin, 40 K, 4 fs" in ended.out
    assert "note: --temperature 40:80: checked at 40 K" in ended.out
    assert kept(folder / "of-run")["settings"]["seed"] == 8
    assert sorted(path.name for path in (folder / "run").iterdir()) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["argon.xyz", "--checks", "forces,luck"], "--checks forces,luck won't do"),
        (["argon.xyz", "--samples", "0"], "--samples 0 won't do"),
        (["argon.xyz", "--long-steps", "3"], "--long-steps 3 won't do"),
        (["argon.xyz", "--ensemble", "nvt"], "--temperature"),
        (["nothing.xyz"], "nothing.xyz"),
        ([], "no structure was given"),
        (["argon.xyz", "--out", "argon.xyz"], "--out argon.xyz can't be made"),
    ],
)
def test_bad_input_ends_with_two_before_anything_is_written(folder, words, said):
    before = sorted(folder.iterdir())
    ended = call("validate", *words, cwd=folder).expect(2)
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def test_help_names_the_options_that_define_a_run_and_no_others():
    text = run("validate", "--help", env={"COLUMNS": "200"}).expect(0).out
    for option in ("--model", "--ensemble", "--temperature", "--timestep", "--skin", "--checks", "--config", "--out"):
        assert option in text
    for option in ("--overwrite", "--trajectory-every", "--log-every"):
        assert option not in text


def test_a_terminal_shows_a_table():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, highlight=False)
    listener = Verdicts(console=console)
    found = [Check("forces", PASS, "all is well.", 1e-9, 1e-6, "eV/Å"), Check("stress", SKIPPED, "no axis.")]
    listener.checking("forces")
    for check in found:
        listener.checked(check)
    listener.finished(found, Path("x/validate.json"))
    text = console.file.getvalue()
    for word in ("verdict", "measured", "1e-09 eV/Å", "all is well.", "verdict: pass (1 pass, 1 skipped)"):
        assert word in text


def test_a_terminal_shows_what_was_found_before_a_run_blew_up():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, highlight=False)
    listener = Verdicts(console=console)
    listener.checking("forces")
    listener.checked(Check("forces", PASS, "all is well."))
    listener.stop()
    listener.stop()
    assert console.file.getvalue().count("all is well.") == 1


def test_the_worst_verdict_decides():
    passed, warned, failed, left = (Check("x", verdict, "") for verdict in (PASS, WARN, FAIL, SKIPPED))
    assert overall([passed, left]) == PASS
    assert overall([passed, warned, left]) == WARN
    assert overall([warned, failed, passed]) == FAIL
    assert [exit_code(checks) for checks in ([passed, warned, left], [failed, passed], [])] == [0, 3, 0]
    assert names_in("energy, forces,,energy") == ("forces", "energy")
    Plan().check()


def test_bonds_are_held_in_every_check(tmp_path, monkeypatch):
    """Without them the degrees of freedom, the energy and the other ranks would not fit."""
    monkeypatch.setattr(ranks, "NUMBERS", (2,))
    atoms = bulk("Ar", "sc", a=6.0) * (3, 3, 3)
    partners = atoms.copy()
    partners.positions += 3.8 / 3**0.5
    pairs = atoms + partners
    pairs.set_constraint(FixBondLengths([[i, i + 27] for i in range(27)]))
    ase.io.write(tmp_path / "pairs.traj", pairs)
    model = "lj:epsilon=0.0104,sigma=3.4,cutoff=8.5,shift=true"
    words = (*BATH, "--temperature", 60, "--checks", "ranks,energy,list,ensemble", *SHORT, "--model", model)
    ended = call("validate", "pairs.traj", *words, cwd=tmp_path).expect(0)
    found = verdicts(ended)
    assert set(found) == {"ranks", "energy", "list", "ensemble"}
    assert {found["ranks"], found["list"], found["ensemble"]} == {"pass"}
    ended = call("validate", "pairs.traj", "--init-temperature", 60, "--checks", "ensemble", *SHORT, cwd=tmp_path)
    assert "bonds take degrees of freedom" in ended.expect(0).out
    refused = call("validate", "pairs.traj", *BATH, "--zero-momentum-every", 10, cwd=tmp_path).expect(2)
    assert "--zero-momentum-every" in refused.err
