"""Fixed atoms, bonds of fixed length and the motion of the whole, as a user asks for them."""

from __future__ import annotations

import csv
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms, units
from ase.build import bulk, molecule
from ase.constraints import FixAtoms, FixBondLengths
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution

from mdrun.structures import load_structure
from tests.cli.conftest import CASEBOOK_ARGON
from tests.cli.launcher import Ended, call, torchrun
from tests.molecules import lengths_of
from tests.systems import pfcc

FREE = f"{Path(__file__).with_name('plugins.py')}:make"
UNDER_PRESSURE = ("--ensemble", "npt", "--temperature", 300, "--pressure", 0.5, "--barostat-time", 200)
ENSEMBLES = {
    "nve": (),
    **{f"npt, {kind}": (*UNDER_PRESSURE, "--barostat", kind) for kind in ("mtk", "stochastic", "berendsen")},
    **{
        thermostat: ("--ensemble", "nvt", "--temperature", 300, "--thermostat", thermostat)
        for thermostat in ("langevin", "nose-hoover", "bussi", "andersen", "berendsen")
    },
}


@pytest.fixture
def simulate(tmp_path):
    """``simulate(atoms, options..)``: what was said, and the rows of thermo.csv and the frames after them."""

    def run(atoms: Atoms, *options: object, name: str = "a.traj") -> tuple[Ended, list[dict[str, float]], list[Atoms]]:
        ase.io.write(tmp_path / name, atoms)
        words = ("simulate", name, "--seed", 1, "--overwrite", "--out", "a.run", *options)
        ended = call(*words, cwd=tmp_path).expect(0)
        with (tmp_path / "a.run" / "thermo.csv").open() as file:
            rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
        return ended, rows, ase.io.read(tmp_path / "a.run" / "trajectory.extxyz", ":")

    return run


@pytest.fixture
def refuse(tmp_path):
    """``refuse(atoms, options..)``: the one paragraph."""

    def run(atoms: Atoms, *options: object) -> str:
        ase.io.write(tmp_path / "a.traj", atoms)
        ended = call("simulate", "a.traj", *options, cwd=tmp_path).expect(2)
        assert ended.err.count("\n") == 1
        return ended.err

    return run


def argon108() -> Atoms:
    return bulk("Ar", "fcc", a=5.26, cubic=True).repeat(3)


# Fixed atoms


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_of_two_atoms_the_fixed_one_stays(tmp_path, n_ranks):
    lines = ["2", 'pbc="F F F" Properties=species:S:1:pos:R:3:move_mask:L:1', "Ar 0 0 0 F", "Ar 3.6 0 0 T"]
    (tmp_path / "a.xyz").write_text("\n".join(lines) + "\n")
    words = ("simulate", "a.xyz", "--model", CASEBOOK_ARGON, "--steps", 200, "--trajectory-every", 50)
    if n_ranks == 1:
        ended = call(*words, cwd=tmp_path)
    else:
        ended = torchrun(n_ranks, "-m", "mdrun", *words, cwd=tmp_path).wait()
    assert "2 atoms, Ar2, 1 fixed" in ended.expect(0).out
    frames = ase.io.read(tmp_path / "a.run" / "trajectory.extxyz", ":")
    assert len(frames) == 5
    for frame in frames:
        assert frame.positions[0].tolist() == [0, 0, 0]
        (constraint,) = frame.constraints
        assert constraint.index.tolist() == [0]
        assert np.linalg.norm(frame.get_forces(apply_constraint=False)[0]) > 1e-3  # which are the raw ones
    assert frames[-1].positions[1, 0] != frames[0].positions[1, 0]


@pytest.mark.parametrize("name", ENSEMBLES)
def test_frozen_atoms_keep_their_bits_in_every_ensemble(simulate, name, tmp_path):
    atoms = pfcc(2, 2, 2)
    more = ("--init-temperature", 300, "--model", CASEBOOK_ARGON, "--steps", 50, "--timestep", 4)
    ended, rows, frames = simulate(atoms, "--freeze", "0-9, z>8 and x<3", *more, *ENSEMBLES[name])
    chosen = (np.arange(32) < 10) | ((atoms.positions[:, 2] > 8) & (atoms.positions[:, 0] < 3))
    with np.load(tmp_path / "a.run" / "checkpoint.npz") as kept:
        assert kept["positions"][chosen].tobytes() == atoms.positions[chosen].tobytes()
        assert (kept["positions"][~chosen] != atoms.positions[~chosen]).all()
        assert (kept["mobile"] == ~chosen[:, None]).all()
    assert frames[-1].constraints[0].index.tolist() == np.flatnonzero(chosen).tolist()
    assert f"{chosen.sum()} fixed" in ended.out
    assert f"counts {3 * (~chosen).sum()} degrees of freedom (free)" in ended.out
    assert rows[0]["temperature_K"] == pytest.approx(300, abs=1e-9)


def test_temperature_counts_what_is_free(simulate):
    atoms = argon108()
    atoms.set_constraint(FixAtoms(range(54)))
    MaxwellBoltzmannDistribution(atoms, temperature_K=300, rng=np.random.default_rng(1))
    ended, rows, _ = simulate(atoms, "--steps", 0)
    assert "counts 162 degrees of freedom" in ended.out
    assert rows[0]["temperature_K"] == pytest.approx(267.71, abs=0.005)


def test_where_all_atoms_are_frozen_there_is_no_temperature(simulate, refuse):
    _, rows, frames = simulate(pfcc(1, 1, 2), "--freeze", "Ar", "--steps", 10, "--log-every", 5)
    assert [row["temperature_K"] for row in rows] == [0, 0, 0]
    assert (frames[-1].positions == frames[0].positions).all()
    _, rows, _ = simulate(
        pfcc(1, 1, 2), "--freeze", "Ar", "--steps", 10, "--ensemble", "nvt", "--temperature", 90, "--log-every", 5
    )
    assert [row["temperature_K"] for row in rows] == [0, 0, 0]
    assert "every atom is fixed" in refuse(pfcc(1, 1, 2), "--freeze", "Ar", "--init-temperature", 90)


def test_a_selection_is_of_the_copies_too(simulate):
    _, _, frames = simulate(bulk("Ar", "fcc", a=5.26), "--replicate", 3, 2, 2, "--freeze", "8-11", "--steps", 0)
    assert frames[0].constraints[0].index.tolist() == [8, 9, 10, 11]


def test_what_a_selection_gets_wrong_is_told(refuse):
    for text, words in (("99", "no atom 99"), ("Cu", "Cu is not in the structure"), ("z>1e3", "no atom")):
        assert words in refuse(pfcc(1, 1, 1), "--freeze", text)


# Bonds


def box_of_water() -> Atoms:
    one = molecule("H2O")
    one.set_cell([5, 5, 5])
    one.pbc = True
    one.wrap()  # hydrogens on the other side
    return one


def test_water_keeps_its_bonds(simulate, tmp_path):
    held = ("--constrain-bonds", "H", "--replicate", 2, 2, 2, "--model", FREE)
    bath = ("--init-temperature", 300, "--ensemble", "nvt", "--temperature", 300, "--steps", 200, "--log-every", 50)
    ended, rows, frames = simulate(box_of_water(), *held, *bath, "--trajectory-every", 50)
    assert "bonds: 16 of fixed length, 2 in each of 8 molecules" in ended.out
    assert "counts 56 degrees of freedom (3N - 16 bonds)" in ended.out
    assert rows[0]["temperature_K"] == pytest.approx(300, abs=1e-9)
    structure = load_structure(tmp_path / "a.traj", replicate=(2, 2, 2), constrain_bonds="H")
    with np.load(tmp_path / "a.run" / "checkpoint.npz") as kept:
        last = kept["positions"]  # with all their digits
    for positions, digits in ((last, 1e-12), *((frame.positions, 3e-8) for frame in frames)):
        lengths = lengths_of(positions, structure.bonds, structure.atoms.cell.array)
        assert lengths == pytest.approx([molecule("H2O").get_distance(0, 1)] * 16, abs=digits)
    assert np.abs(frames[-1].positions - frames[0].positions).max() > 0.1


def test_the_file_s_bonds_are_held_and_its_velocities_made_to_fit(simulate):
    atoms = Atoms("Ar2", positions=[[0, 0, 0], [1.1, 0, 0]])
    atoms.set_momenta([[1.0, 0.5, 0], [-1.0, -0.5, 0]])
    atoms.set_constraint(FixBondLengths([(0, 1)]))
    ended, rows, frames = simulate(atoms, "--model", FREE, "--steps", 50, "--trajectory-every", 50)
    assert "bonds: 1 of fixed length, 1 in each of 1 molecule\n" in ended.out
    assert "counts 2 degrees of freedom (3N - 3 - 1 bond)" in ended.out
    assert "note: 0.02503 of 0.03129 eV" in ended.out
    assert rows[0]["kinetic_eV"] == pytest.approx(0.25 / atoms.get_masses()[0], rel=1e-9)
    assert frames[-1].get_distance(0, 1) == pytest.approx(1.1, abs=2e-8)
    assert abs(frames[-1].positions[0, 1]) > 0.01


def test_bonds_under_a_barostat_are_refused(refuse):
    water = box_of_water()
    options = ("--constrain-bonds", "H", "--model", FREE, "--ensemble", "npt", "--temperature", 300, "--pressure", 0)
    assert "does not go with bonds of fixed length" in refuse(water, *options)


def test_bonds_are_not_relaxed_and_that_is_said(tmp_path):
    atoms = pfcc(1, 1, 2)
    atoms.set_constraint(FixBondLengths([(0, 1)]))
    ase.io.write(tmp_path / "a.traj", atoms)
    assert "lengths of 1 bonds, which relax can't hold" in call("relax", "a.traj", cwd=tmp_path).expect(2).err


# Motion of the whole


def test_a_cluster_that_is_stopped_counts_six_less(simulate):
    atoms = pfcc(2, 2, 2)
    atoms.pbc = False
    more = ("--init-temperature", 40, "--steps", 20, "--log-every", 10, "--trajectory-every", 20, "--timestep", 4)
    ended, rows, frames = simulate(atoms, "--zero-momentum-every", 10, *more)
    assert "counts 90 degrees of freedom (3N - 6)" in ended.out
    assert "momentum and angular momentum zeroed every 10 steps" in ended.out
    assert rows[0]["temperature_K"] == pytest.approx(40, abs=1e-9)
    for frame in frames:
        assert np.abs(frame.get_momenta().sum(axis=0)).max() < 1e-6  # the file's 8 decimals
        assert np.abs(frame.get_angular_momentum()).max() < 1e-5
    bath = ("--ensemble", "nvt", "--temperature", 40)
    assert "(3N)" in simulate(atoms, "--zero-momentum-every", 10, *more, *bath)[0].out
    assert "(3N - 6)" in simulate(atoms, "--zero-momentum-every", 1, *more, *bath)[0].out
    pair = atoms[:2]
    assert "counts 1 degrees of freedom" in simulate(pair, "--zero-momentum-every", 1, *more)[0].out
    alone = simulate(atoms[:1], "--zero-momentum-every", 1, *more)
    assert alone[1][-1]["temperature_K"] == pytest.approx(40)


def test_a_crystal_that_is_stopped_counts_three_less(simulate):
    atoms = pfcc(2, 2, 2)
    atoms.set_momenta(np.random.default_rng(1).standard_normal((32, 3)) + 1.0)
    ended, rows, _ = simulate(atoms, "--zero-momentum-every", 5, "--steps", 10, "--log-every", 1)
    assert "counts 93 degrees of freedom (3N - 3)" in ended.out
    assert "of the file's kinetic energy were motion of the whole: taken off" in ended.out
    assert np.ptp([row["conserved_eV"] for row in rows]) < 1e-3


def test_stopping_a_system_with_fixed_atoms_is_refused(refuse):
    text = refuse(pfcc(1, 1, 1), "--freeze", "0", "--zero-momentum-every", 10)
    assert "--zero-momentum-every does not go with fixed atoms" in text


def test_a_thermostat_spares_a_drift_and_says_so(simulate):
    atoms = pfcc(2, 2, 2)
    MaxwellBoltzmannDistribution(atoms, temperature_K=100, rng=np.random.default_rng(1))
    velocity = np.array([5e-3, 0, 0]) / units.fs
    atoms.set_momenta(atoms.get_momenta() + atoms.get_masses()[:, None] * velocity)
    bath = ("--ensemble", "nvt", "--temperature", 100, "--thermostat", "bussi", "--thermostat-time", 20)
    ended, rows, frames = simulate(atoms, *bath, "--steps", 200, "--log-every", 10, "--trajectory-every", 200)
    assert "which the thermostat spares and no temperature counts" in ended.out
    assert "counts 93 degrees of freedom (3N - 3)" in ended.out
    before, after = (frame.get_momenta().sum(axis=0) for frame in frames)
    np.testing.assert_allclose(after, before, atol=1e-6)
    assert np.mean([row["temperature_K"] for row in rows[5:]]) == pytest.approx(100, abs=25)
