"""Every option of simulate, by what it changes; options from a file, over which flags win."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.constraints import FixAtoms, FixCartesian

from mdrun.units import KB
from tests.cli.conftest import CASEBOOK_ARGON
from tests.cli.launcher import Ended, call
from tests.systems import pfcc


@pytest.fixture
def simulate(crystal, tmp_path):
    """``simulate(options..)``: a run of the crystal in ``tmp_path/a.run`` that ends well."""

    def run(*options: object, structure: Path | str = crystal) -> Ended:
        return call("simulate", structure, *options, "--out", "a.run", "--overwrite", cwd=tmp_path).expect(0)

    return run


@pytest.fixture
def found(tmp_path):
    """``found()``: the rows of thermo.csv, the frames, the status and the configuration of that run."""

    class Found:
        def __init__(self) -> None:
            folder = tmp_path / "a.run"
            with (folder / "thermo.csv").open() as file:
                self.rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
            text = (folder / "trajectory.extxyz").read_text()
            self.frames: list[Atoms] = ase.io.read(folder / "trajectory.extxyz", ":") if text else []
            self.status: dict[str, Any] = json.loads((folder / "status.json").read_text())
            self.config = tomllib.loads((folder / "config.toml").read_text())
            self.files = {path.name for path in folder.iterdir()}

    return Found


def test_the_defaults_are_those_of_the_help(simulate, found):
    simulate()
    run = found()
    assert run.status["step"] == 1000
    assert [row["step"] for row in run.rows] == [*range(0, 1001, 100)]
    assert run.rows[-1]["time_ps"] == 1.0
    assert [frame.info["step"] for frame in run.frames] == [0, 1000]
    assert run.config["model"] == "lj"  # the species chose, and the choice is kept
    assert {"checkpoint.npz"} == {name for name in run.files if name.startswith("checkpoint")}


def test_nothing_is_written_at_an_interval_of_zero(simulate, found):
    ended = simulate("--steps", 30, "--log-every", 0, "--trajectory-every", 0, "--checkpoint-every", 0)
    run = found()
    assert (run.rows, run.frames) == ([], [])
    assert "checkpoint.npz" not in run.files
    assert run.status["step"] == 30
    assert "end: " in ended.out  # the last step's energy is told all the same


def test_no_steps_evaluate_once(simulate, found):
    simulate("--steps", 0, "--model", CASEBOOK_ARGON)
    run = found()
    assert [row["step"] for row in run.rows] == [0]
    assert run.rows[0]["potential_eV"] == pytest.approx(-2.516339933395, abs=1e-8)
    assert run.rows[0]["pressure_GPa"] == pytest.approx(0.142511538, abs=1e-7)
    assert np.linalg.norm(run.frames[0].get_forces(), axis=1).max() == pytest.approx(0.126363147, abs=1e-8)
    assert (run.status["step"], run.status["state"]) == (0, "finished")


def test_a_time_is_as_many_steps_as_it_takes(simulate, found):
    simulate("--time", 0.05, "--timestep", 2.5, "--log-every", 20)
    run = found()
    assert run.status["step"] == 20
    assert [row["time_ps"] for row in run.rows] == pytest.approx([0, 0.05])


def test_init_temperature_is_met_exactly_and_the_seed_repeats_it(simulate, found):
    ended = simulate("--init-temperature", 40, "--seed", 7, "--steps", 20, "--log-every", 1)
    first = found()
    assert first.rows[0]["temperature_K"] == pytest.approx(40, abs=1e-9)
    assert np.abs(first.frames[0].get_momenta().sum(axis=0)).max() < 1e-6  # the file's 8 decimals
    assert "drawn at 40 K, seed 7" in ended.out
    simulate("--init-temperature", 40, "--seed", 7, "--steps", 20, "--log-every", 1)
    assert found().rows == first.rows
    simulate("--init-temperature", 40, "--seed", 0, "--steps", 20, "--log-every", 1)
    assert found().rows[1] != first.rows[1]


def test_without_a_seed_every_run_has_its_own_and_keeps_it(simulate, found):
    seeds = set()
    for _ in range(2):
        ended = simulate("--init-temperature", 40, "--steps", 0)
        seeds.add(found().config["seed"])
        assert f"seed {found().config['seed']}" in ended.out
    assert len(seeds) == 2


def test_velocities_of_the_file_are_used_unless_new_ones_are_drawn(simulate, found, write):
    pair = write(["Ar 0 0 0 0.5 0 0", "Ar 20 0 0 -0.5 0 0"], 'pbc="F F F"', columns="species:S:1:pos:R:3:momenta:R:3")
    ended = simulate("--steps", 0, structure=pair)
    assert found().rows[0]["kinetic_eV"] == pytest.approx(0.006258136, abs=1e-9)
    assert found().rows[0]["temperature_K"] == pytest.approx(48.4151, abs=1e-3)
    assert "velocities: from the file" in ended.out
    assert "counts 3 degrees of freedom (3N - 3)" in ended.out
    ended = simulate("--steps", 0, "--init-temperature", 10, structure=pair)
    assert found().rows[0]["temperature_K"] == pytest.approx(10)
    assert "in place of the file's" in ended.out


def test_a_thermostat_heats_a_crystal_at_rest(simulate, found):
    ended = simulate(
        "--ensemble", "nvt", "--thermostat", "langevin", "--temperature", 60, "--friction", 100, "--timestep", 2,
        "--steps", 400, "--log-every", 1, "--seed", 5,
    )  # fmt: skip
    temperatures = np.array([row["temperature_K"] for row in found().rows[100:]])
    # 300 samples that forget each other within some 5 steps, each of relative width sqrt(2 / 96): 4 sigma below 15 %.
    assert temperatures.mean() == pytest.approx(60, rel=0.15)
    kept = [row["temperature_K"] for row in found().rows[81:]]  # all but the first fifth of 401
    average = found().status["averages"]["temperature_K"]
    assert average["mean"] == pytest.approx(np.mean(kept), rel=1e-12)
    (shown,) = (line.split() for line in ended.out.splitlines() if line.startswith("temperature_K "))
    assert float(shown[1]) == pytest.approx(average["mean"], rel=1e-5)
    assert average["error"] is None  # so much friction makes the atoms creep
    assert "too short to tell" in " ".join(shown)
    assert "NVT, Langevin (BAOAB), 2 fs, 60 K, friction 100 /ps, seed 5" in ended.out
    assert "counts 96 degrees of freedom (3N)" in ended.out


@pytest.mark.parametrize("thermostat", ["nose-hoover", "bussi", "andersen", "berendsen"])
def test_every_thermostat_follows_a_ramp(thermostat, simulate, found):
    ended = simulate(
        "--ensemble", "nvt", "--thermostat", thermostat, "--temperature", "30:60", "--model", "lj:shift=true",
        *(("--friction", 50) if thermostat == "andersen" else ("--thermostat-time", 20)), "--init-temperature", 60,
        "--timestep", 2, "--steps", 400, "--log-every", 4, "--seed", 5,
    )  # fmt: skip
    rows = found().rows
    early, late = (np.mean([row["temperature_K"] for row in part]) for part in (rows[15:40], rows[-25:]))
    assert early < late
    assert "30 to 60 K" in ended.out
    assert ("samples no ensemble" in ended.out) == (thermostat == "berendsen")
    heat = np.ptp([row["conserved_eV"] - row["total_eV"] for row in rows])
    assert rows[0]["conserved_eV"] == rows[0]["total_eV"]
    assert abs(rows[-1]["conserved_eV"] - rows[0]["conserved_eV"]) < 0.1 * heat


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--barostat", "mtk"], ["NPT, Martyna-Tobias-Klein (iso)", "Nosé-Hoover"]),
        (["--box", "xyz", "--couple", "xy"], ["xyz, xy coupled"]),
        (["--box", "triclinic", "--pressure", "0.1,0.1,0.1,0.01,0,0"], ["triclinic", "yz 0.01"]),
        (["--barostat", "stochastic"], ["stochastic cell rescaling", "Bussi"]),
        (["--barostat", "stochastic", "--thermostat", "langevin"], ["Langevin"]),
        (["--barostat", "berendsen"], ["samples no ensemble"]),
    ],
)
def test_a_barostat_moves_the_cell_and_the_work_is_accounted_for(options, words, simulate, found):
    ended = simulate(
        "--ensemble", "npt", "--temperature", 40, "--pressure", 0.1, "--barostat-time", 300, "--model", "lj:shift=true",
        "--init-temperature", 60, "--timestep", 2, "--steps", 200, "--log-every", 4, "--trajectory-every", 200,
        "--seed", 5, *options,
    )  # fmt: skip
    for word in (*words, "40 K", "300 fs"):
        assert word in ended.out
    rows = found().rows
    volumes = np.array([row["volume_A3"] for row in rows])
    assert np.abs(volumes / volumes[0] - 1).max() > 1e-3
    bath = np.ptp([row["conserved_eV"] - row["total_eV"] for row in rows])
    assert abs(rows[-1]["conserved_eV"] - rows[0]["conserved_eV"]) < 0.1 * bath
    frames = found().frames
    assert frames[-1].get_volume() == pytest.approx(volumes[-1], rel=1e-6)


def test_without_a_thermostat_the_enthalpy_is_conserved(simulate, found):
    ended = simulate(
        "--ensemble", "nph", "--pressure", 0.1, "--init-temperature", 60, "--timestep", 2, "--steps", 200,
        "--model", "lj:shift=true", "--log-every", 4,
    )  # fmt: skip
    assert "NPH, Martyna-Tobias-Klein (iso), 2 fs, 0.1 GPa" in ended.out
    conserved = np.array([row["conserved_eV"] for row in found().rows])
    assert np.ptp(conserved) < 0.05 * np.ptp([row["total_eV"] for row in found().rows])


def test_what_fixed_atoms_mean_is_told(simulate):
    ended = simulate("--ensemble", "nvt", "--temperature", 50, "--freeze", "Ar", "--steps", 1)
    assert "note: every atom is fixed: nothing will move" in ended.out
    assert "--init-temperature gives" not in ended.out
    words = ("--init-temperature", 50, "--ensemble", "nph", "--pressure", 0, "--freeze", "0-3", "--steps", 1)
    assert "note: 4 fixed atoms do not follow the cell" in simulate(*words).out


def test_a_scaling_thermostat_says_so_where_nothing_moves(simulate):
    ended = simulate("--ensemble", "nvt", "--thermostat", "bussi", "--temperature", 50, "--steps", 1)
    assert "all atoms start at rest: --init-temperature" in ended.out


@pytest.mark.parametrize("temperature", ["warm", "300:", "300:-1", "nan", "1:2:3"])
def test_a_temperature_that_is_none_is_refused(temperature, crystal, tmp_path):
    ended = call("simulate", crystal, "--ensemble", "nvt", "--temperature", temperature, cwd=tmp_path).expect(2)
    assert f"--temperature {temperature} won't do" in ended.err


def test_a_model_chosen_by_number_and_by_species(simulate, found):
    assert "note: no --model: the species chose lj" in simulate("--steps", 0).out
    ended = simulate("--steps", 0, "--model", "lj:epsilon=0.0104,sigma=3.4,cutoff=8.5,shift=true")
    assert "no --model" not in ended.out
    assert found().rows[0]["potential_eV"] == pytest.approx(-2.312026349346, abs=1e-8)
    simulate("--steps", 0, "--model", f"{CASEBOOK_ARGON} + {CASEBOOK_ARGON}")
    assert found().rows[0]["potential_eV"] == pytest.approx(2 * -2.516339933395, abs=1e-8)


def test_the_frame_the_format_and_the_copies_are_chosen(simulate, found, tmp_path):
    frames = [Atoms("Ar", cell=[a] * 3, pbc=True) for a in (4.0, 5.0, 6.0)]
    ase.io.write(tmp_path / "frames.dat", frames, format="extxyz")
    chosen = ("--format", "extxyz", "--index", 0, "--replicate", 6, 5, 4, "--model", CASEBOOK_ARGON, "--steps", 0)
    simulate(*chosen, structure="frames.dat")
    run = found()
    assert len(run.frames[0]) == 120
    assert run.frames[0].cell.lengths() == pytest.approx([24, 20, 16])
    assert run.rows[0]["potential_eV"] == pytest.approx(120 * -0.043551809, abs=1e-6)
    assert (run.config["index"], run.config["replicate"], run.config["format"]) == (0, [6, 5, 4], "extxyz")
    ended = simulate("--format", "extxyz", "--steps", 0, structure="frames.dat")
    assert found().frames[0].cell.lengths() == pytest.approx([6] * 3)
    assert "choose with --index" in ended.out


def test_species_name_the_types_of_a_lammps_file(simulate, found, tmp_path):
    box = "".join(f"0 20 {axis}lo {axis}hi\n" for axis in "xyz")
    text = f"types\n\n2 atoms\n2 atom types\n{box}\nAtoms # atomic\n\n1 1 1 1 1\n2 2 5 1 1\n"
    (tmp_path / "pair.data").write_text(text)
    simulate("--species", "Ar,Kr", "--steps", 0, structure="pair.data")
    assert found().frames[0].get_chemical_symbols() == ["Ar", "Kr"]


def test_skin_and_check_every_change_the_work_but_not_the_path(simulate, found):
    ends = {}
    for name, options in {"wide": ("--skin", 2, "--check-every", 5), "none": ("--skin", 0)}.items():
        simulate("--init-temperature", 80, "--seed", 1, "--steps", 50, "--trajectory-every", 50, *options)
        ends[name] = found()
    builds = {name: run.status["rank_figures"][0]["rebuilds"] for name, run in ends.items()}
    assert builds["none"] == 51  # every step, and the first
    assert builds["wide"] < 10
    # the file's 8 decimals
    assert ends["wide"].frames[-1].positions == pytest.approx(ends["none"].frames[-1].positions, abs=2e-8)


def test_threads_are_as_many_as_asked(simulate, found):
    ended = simulate("--steps", 1, "--threads", 1)
    assert found().status["threads"] == 1
    assert "decomposition: 1 rank of 1 thread," in ended.out


def test_options_stand_in_a_file_and_flags_win(simulate, found, tmp_path, crystal):
    (tmp_path / "options.toml").write_text(
        f'structure = "{crystal}"\nsteps = 7\ntimestep = 2\n"log-every" = 1\ntrajectory_every = 7\nseed = 0\n'
        '"init-temperature" = 30\n"comm-timeout" = 5.5\nreplicate = [2, 1, 1]\n'
    )
    ended = call("simulate", "--config", "options.toml", "--steps", 3, "--out", "a.run", cwd=tmp_path).expect(0)
    run = found()
    assert [row["step"] for row in run.rows] == [0, 1, 2, 3]
    assert run.rows[-1]["time_ps"] == pytest.approx(0.006)
    assert (run.config["seed"], run.config["comm_timeout"], len(run.frames[0])) == (0, 5.5, 64)
    assert "seed 0" in ended.out
    call("simulate", "--config", "options.toml", "--time", 0.01, "--out", "b.run", cwd=tmp_path).expect(0)
    assert json.loads((tmp_path / "b.run" / "status.json").read_text())["step"] == 5


def test_the_run_directory_is_named_after_the_structure(tmp_path, crystal):
    call("simulate", crystal, "--steps", 0, cwd=tmp_path).expect(0)
    assert (tmp_path / "crystal.run" / "status.json").exists()  # where the shell stands, not where the file lies


def test_masses_charges_columns_and_constraints_are_kept(simulate, found, tmp_path):
    atoms = pfcc(2, 2, 2)
    atoms.set_masses(np.linspace(30, 50, 32))
    atoms.set_initial_charges(np.linspace(-1, 1, 32))
    atoms.set_array("label", np.arange(32) % 5)
    atoms.set_constraint([FixAtoms([0, 5]), FixCartesian(3, mask=[True, False, False])])
    ase.io.write(tmp_path / "kept.xyz", atoms)
    options = ("--init-temperature", 80, "--steps", 30, "--trajectory-every", 30, "--seed", 2)
    ended = simulate(*options, structure="kept.xyz")
    assert "Ar32, 2 fixed" in ended.out
    assert "counts 89 degrees of freedom" in ended.out  # 96 - 6 - 1, and momentum is not conserved
    start, end = found().frames
    for name in ("masses", "initial_charges", "label"):
        assert end.arrays[name] == pytest.approx(atoms.arrays[name], abs=1e-7)
    still = np.abs(end.positions - start.positions) == 0
    fixed = np.zeros((32, 3), bool)
    fixed[[0, 5]] = fixed[3, 0] = True
    assert (still == fixed).all()
    assert (start.get_momenta()[fixed] == 0).all()
    momenta = start.get_momenta()
    kinetic = (momenta**2 / atoms.get_masses()[:, None]).sum() / 2
    assert 2 * kinetic / (89 * KB) == pytest.approx(80, rel=1e-5)
    held = np.zeros((32, 3), bool)
    for constraint in end.constraints:
        held[constraint.index] = constraint.mask if isinstance(constraint, FixCartesian) else True
    assert (held == fixed).all()


def test_debug_shows_where(tmp_path):
    ended = call("simulate", "missing.xyz", "--debug", cwd=tmp_path).expect(2)
    assert "Traceback" in ended.err
    assert ended.err.splitlines()[-1] == "mdrun: there is no file missing.xyz."
