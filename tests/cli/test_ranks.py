"""Several ranks, as torchrun and srun start them: one output, all atoms in order, the numbers of one rank."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms

from mdrun.launch import first_host, launch_environment
from tests.cli.conftest import CASEBOOK_ARGON
from tests.cli.launcher import MDRUN, Ended, call, srun, torchrun, wait_all
from tests.systems import pfcc

NVE = (
    "--model", CASEBOOK_ARGON, "--init-temperature", 60, "--seed", 4, "--timestep", 2, "--steps", 100,
    "--log-every", 10, "--trajectory-every", 10,
)  # fmt: skip
NVT = (
    "--ensemble", "nvt", "--temperature", 300, "--friction", 10, "--seed", 1, "--steps", 100, "--trajectory-every", 100,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A liquid-like crystal two domains long, and the casebook's two lone atoms (A-31), heavy enough to stay apart."""
    path = tmp_path_factory.mktemp("ranks")
    ase.io.write(path / "argon.xyz", pfcc(8, 2, 2))
    lone = Atoms("Ar2", positions=[[5, 10, 10], [25, 10, 10]], cell=[40, 20, 20], pbc=True)
    ase.io.write(path / "lone.xyz", lone)
    return path


@pytest.fixture(scope="module")
def ends(folder) -> dict[str, list[Ended]]:
    """Of every way to start; what each process said."""
    words = ("simulate", "argon.xyz", *NVE, "--out")
    one = call(*words, "one", cwd=folder).expect(0)
    program = torchrun(2, "--no-python", MDRUN, *words, "program", cwd=folder).wait()
    module = torchrun(2, "-m", "mdrun", "simulate", "lone.xyz", *NVT, "--out", "module", cwd=folder).wait()
    step = wait_all(srun(3, *words, "step", cwd=folder))
    return {"one": [one], "program": [program], "module": [module], "step": step}


def thermo(path: Path) -> dict[str, np.ndarray]:
    with (path / "thermo.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def test_every_way_to_start_ends_well_and_only_rank_0_speaks(ends):
    for ways in ends.values():
        for ended in ways:
            ended.expect(0)
    for text in (ends["program"][0].out, ends["module"][0].out, ends["step"][0].out):
        for word in ("structure:", "output:", "finished"):
            assert sum(line.startswith(word) for line in text.splitlines()) == 1
    assert [(e.out, e.err) for e in ends["step"][1:]] == [("", "")] * 2
    assert ends["step"][0].err == ""
    assert "decomposition: 2 ranks" in ends["program"][0].out
    assert "decomposition: 3 ranks of 1 thread, 42 to 43 atoms each" in ends["step"][0].out


@pytest.mark.parametrize("way", ["program", "step"])
def test_ranks_change_no_number(ends, folder, way):
    one, several = thermo(folder / "one"), thermo(folder / way)
    assert list(one) == list(several)
    for name in one:
        assert several[name] == pytest.approx(one[name], rel=1e-9, abs=1e-8), name
    assert several["potential_eV"][0] == pytest.approx(-9.953635110781, abs=1e-8)  # PFCC(8, 2, 2) of the casebook


@pytest.mark.parametrize("way", ["program", "step"])
def test_frames_hold_all_atoms_in_the_order_of_the_input(ends, folder, way):
    frames = ase.io.read(folder / way / "trajectory.extxyz", ":")
    expected = ase.io.read(folder / "one" / "trajectory.extxyz", ":")
    assert len(frames) == 11
    assert frames[0].positions == pytest.approx(pfcc(8, 2, 2).positions, abs=1e-8)
    for frame, same in zip(frames, expected, strict=True):
        assert len(frame) == 128
        assert frame.positions == pytest.approx(same.positions, abs=2e-8)
        assert frame.get_forces() == pytest.approx(same.get_forces(), abs=2e-8)
        assert frame.get_momenta() == pytest.approx(same.get_momenta(), abs=2e-8)
        assert frame.get_stress() == pytest.approx(same.get_stress(), abs=1e-10)


@pytest.mark.parametrize(("way", "n_ranks"), [("program", 2), ("step", 3)])
def test_figures_of_every_rank_are_kept(ends, folder, way, n_ranks):
    with (folder / way / "ranks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["rank"]) for row in rows] == [*range(n_ranks)] * 11
    for step in range(0, 101, 10):
        assert sum(float(row["owned"]) for row in rows if row["step"] == str(step)) == 128
    assert all(float(row["bytes_per_step"]) > 0 for row in rows[-n_ranks:])
    assert all(row["migrations"] == "0" for row in rows[:n_ranks])  # dealing the atoms out is none
    status = json.loads((folder / way / "status.json").read_text())
    assert (status["ranks"], status["n_atoms"], len(status["rank_figures"])) == (n_ranks, 128, n_ranks)
    table = [line.split() for line in ends[way][0].out.splitlines() if line.split()[0] in map(str, range(n_ranks))]
    assert len(table) == 2 * n_ranks


def test_atoms_on_different_ranks_get_different_noise_the_same_as_on_one(ends, folder):
    """A-31: 10 and 15 Å apart and more, they do not feel each other: only the noise moves them."""
    call("simulate", "lone.xyz", *NVT, "--out", "lone-one", cwd=folder).expect(0)
    call("simulate", "lone.xyz", *NVT, "--seed", 2, "--out", "lone-other", cwd=folder).expect(0)
    moves = {}
    for name in ("module", "lone-one", "lone-other"):
        start, end = ase.io.read(folder / name / "trajectory.extxyz", ":")
        moves[name] = end.positions - start.positions
    assert np.abs(moves["module"]).min() > 1e-4
    assert np.abs(moves["module"][0] - moves["module"][1]).min() > 1e-3
    assert moves["module"] == pytest.approx(moves["lone-one"], abs=2e-8)
    assert np.abs(moves["lone-other"] - moves["lone-one"]).min() > 1e-4


@pytest.fixture(scope="module")
def relative(folder) -> Path:
    """The directory of a run that nobody gave a seed, with every name relative to where the user stands (A-51)."""
    place = folder / "here"
    place.mkdir()
    (folder / "model").mkdir()
    (folder / "model" / "m.py").write_text(Path(__file__).with_name("plugins.py").read_text())
    words = ("simulate", "../argon.xyz", "--model", "../model/m.py:make", "--init-temperature", 50, "--steps", 10)
    more = ("--ensemble", "nvt", "--temperature", 50, "--log-every", 10, "--out", "out/fresh.run")
    for ended in wait_all(srun(2, *words, *more, cwd=place)):
        ended.expect(0)
    return place / "out" / "fresh.run"


def test_names_are_kept_from_the_root(relative, folder):
    kept = tomllib.loads((relative / "config.toml").read_text())
    assert kept["structure"] == str(folder / "argon.xyz")
    assert kept["model"] == f"{folder / 'model' / 'm.py'}:make"
    assert kept["out"] == str(relative)


def test_a_seed_that_nobody_gave_is_the_same_on_all_ranks(relative, tmp_path):
    """Drawn once and sent round: the run with the seed that the directory kept is the same, from elsewhere too."""
    call("simulate", "--config", relative / "config.toml", "--out", "again", cwd=tmp_path).expect(0)
    fresh, again = thermo(relative), thermo(tmp_path / "again")
    for name in fresh:
        assert fresh[name] == pytest.approx(again[name], rel=1e-9, abs=1e-9), name


def test_a_batch_script_alone_is_no_step():
    """Inside sbatch, but not under srun, the variables name tasks that nobody started."""
    batch = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_NNODES": "2"}
    assert launch_environment(batch) == launch_environment({**batch, "SLURM_STEP_NUM_TASKS": "1"}) == {}


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("node07", "node07"),
        ("node[07-09,12],gpu3", "node07"),
        ("a-1,b", "a-1"),
        ("n[3,5]", "n3"),
        ("c[001-512]", "c001"),
    ],
)
def test_ranks_meet_on_the_first_node(nodes, host):
    step = {
        "SLURM_JOB_ID": "1234567", "SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5", "SLURM_LOCALID": "1",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_STEP_NODELIST": nodes,
    }  # fmt: skip
    assert first_host(nodes) == host
    assert launch_environment(step) == {
        "WORLD_SIZE": "8", "RANK": "5", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": host,
        "MASTER_PORT": str(20000 + 1234567 % 20000),
    }  # fmt: skip
    torchrun_wins = {"WORLD_SIZE": "2", "RANK": "1", **step}
    assert launch_environment(torchrun_wins) == {"WORLD_SIZE": "2", "RANK": "1"}


def test_a_pressure_that_several_ranks_do_not_have_is_told(folder, tmp_path):
    calculator = "ase:ase.calculators.lj:LennardJones,sigma=3.4,epsilon=0.0104,rc=6,smooth=true,reach=6"
    words = (folder / "argon.xyz", "--model", calculator, "--init-temperature", 40, "--device", "cpu", "--steps")
    note = "gives no virial on several ranks; it may on one: no pressure in thermo.csv"
    assert "no virial" not in call("simulate", *words, 2, "--out", "one", cwd=tmp_path).expect(0).out
    assert "no virial" not in call("resume", "one", "--steps", 4, cwd=tmp_path).expect(0).out
    ended = torchrun(2, "-m", "mdrun", "simulate", *words, 2, "--out", "two", cwd=tmp_path).wait().expect(0)
    assert note in " ".join(ended.out.split())
    bath = ("--ensemble", "npt", "--temperature", 40, "--pressure", 0, "--out", "npt")
    refused = torchrun(2, "-m", "mdrun", "simulate", *words, 2, *bath, cwd=tmp_path).wait()
    assert "no virial on several ranks; it may on one" in " ".join(refused.err.split())


def test_relax_takes_a_strategy(tmp_path):
    ase.io.write(tmp_path / "argon.xyz", pfcc(2, 2, 2))
    net = Path(__file__).parents[2] / "inputs/message_passing.py"
    words = ("relax", "argon.xyz", "--model", f"{net}:make", "--steps", 2, "--log-every", 1)
    call(*words, "--out", "one", cwd=tmp_path).expect(75)
    ended = torchrun(2, "-m", "mdrun", *words, "--strategy", "partition", "--out", "two", cwd=tmp_path).wait()
    assert "by partition" in " ".join(ended.out.split())
    one, two = (np.loadtxt(tmp_path / out / "thermo.csv", delimiter=",", skiprows=1) for out in ("one", "two"))
    np.testing.assert_allclose(one[:, 1:4], two[:, 1:4], rtol=1e-9, atol=1e-9)
