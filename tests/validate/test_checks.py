"""Each check passes a sound model, and fails the fault that it is there for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk

from mdrun.validate.energy import check_energy, largest_jump
from mdrun.validate.forces import check_forces
from mdrun.validate.list_safety import check_list
from mdrun.validate.stress import check_stress, strained_planes
from mdrun.validate.verdict import FAIL, PASS, SKIPPED, WARN
from tests.systems import pfcc

CUT = "lj:epsilon=0.0104,sigma=3.4,cutoff=8.5"


def copper() -> Atoms:
    atoms = bulk("Cu", cubic=True) * (2, 2, 2)
    atoms.rattle(0.1, seed=1)
    return atoms


def slab() -> Atoms:
    atoms = pfcc(2, 2, 2)
    atoms.pbc = (True, True, False)
    atoms.cell[:] = atoms.cell.array @ np.array([[0.8, 0.6, 0], [-0.6, 0.8, 0], [0.1, 0.2, 1]])
    return atoms


@pytest.mark.parametrize("model", [None, CUT, "emt"])
def test_forces_and_stress_of_sound_models_pass(subject_of, model):
    subject = subject_of(atoms=copper() if model == "emt" else None, model=model)
    for check in (check_forces(subject, 4), check_stress(subject)):
        assert check.verdict == PASS, check
        assert check.value < check.limit


def test_a_cutoff_without_shift_is_seen_through(subject_of):
    """At 1e-3 Å some differences hold a step of the energy a thousand times what is tolerated."""
    check = check_forces(subject_of(model=CUT), 40)
    assert (check.verdict, check.numbers["components"]) == (PASS, 120)
    assert check.numbers["left_out"] < 3


@pytest.mark.parametrize("precision", ["mixed", "single"])
def test_forces_in_less_than_double_are_judged_by_the_energy_in_double(subject_of, precision):
    subject = subject_of(model=CUT + ",shift=true", precision=precision)
    for check in (check_forces(subject, 4), check_stress(subject)):
        assert check.verdict == PASS, check
        assert check.value > 1e-12  # single precision is seen
    assert "taken in double" in check_forces(subject, 2).meaning


def test_a_force_that_is_one_percent_off_fails(subject_of):
    check = check_forces(subject_of("force"), 4)
    assert check.verdict == FAIL
    assert check.value > 100 * check.limit
    assert "not its energy's" in check.meaning


def test_the_one_wrong_force_is_named(subject_of):
    check = check_forces(subject_of("one force"), 108)
    assert check.verdict == FAIL
    assert "atom 7 along y" in check.meaning


def test_samples_are_the_same_for_a_seed_and_others_for_another(subject_of):
    one, same, other = (check_forces(subject_of(seed=s), 3).numbers["atoms"] for s in (1, 1, 2))
    assert one == same != other


def test_an_energy_too_coarse_for_differences_is_no_verdict(subject_of):
    assert check_forces(subject_of("coarse"), 4).verdict == WARN
    assert check_stress(subject_of("coarse")).verdict == WARN


def test_what_a_model_does_not_tell_is_not_checked(subject_of):
    silent = subject_of("energy")
    assert [check_forces(silent, 4).verdict, check_stress(silent).verdict] == [SKIPPED] * 2
    assert check_energy(silent, 50).verdict == SKIPPED
    assert check_stress(subject_of("no virial")).verdict == SKIPPED


def test_a_virial_of_the_wrong_sign_fails(subject_of):
    check = check_stress(subject_of("virial"))
    assert check.verdict == FAIL
    assert "sign" in check.meaning


def test_a_slab_is_strained_in_its_plane_and_a_cluster_not_at_all(subject_of):
    planes = strained_planes(torch.from_numpy(slab().cell.array), slab().pbc)
    normal = np.cross(*slab().cell.array[:2])
    assert list(planes) == ["uu", "uv", "vv"]
    for plane in planes.values():
        assert plane.numpy() @ normal == pytest.approx(0, abs=1e-10)
    good, bad = check_stress(subject_of(atoms=slab())), check_stress(subject_of("virial", atoms=slab()))
    assert (good.verdict, good.unit, bad.verdict) == (PASS, "eV", FAIL)
    cluster = pfcc(2, 2, 2)
    cluster.pbc = False
    assert check_stress(subject_of(atoms=cluster)).verdict == SKIPPED


def test_energy_falls_with_the_square_of_the_time_step(subject_of):
    check = check_energy(subject_of(timestep=10.0), 100)
    assert check.verdict == PASS, check
    assert check.numbers["order"] == pytest.approx(2, abs=0.2)


def test_a_fluctuation_of_jumping_forces_alone_is_no_failure(subject_of):
    """At half a femtosecond forces that jump at the cutoff are all that is left; longer steps show the order."""
    check = check_energy(subject_of(timestep=0.5), 400)
    assert check.verdict == PASS, check
    assert check.numbers["fluctuation_of_kinetic"] < 1e-3


def test_an_energy_that_steps_is_told_from_a_wrong_force(subject_of):
    steps, wrong = check_energy(subject_of(model=CUT), 100), check_energy(subject_of("force"), 100)
    assert (steps.verdict, wrong.verdict) == (WARN, FAIL)
    assert "cutoff" in steps.meaning
    assert "shift=true" in steps.meaning
    assert steps.numbers["largest_jump_eV"] == pytest.approx(4 * 0.0104 * (3.4 / 8.5) ** 6, rel=0.05)
    assert abs(wrong.numbers["order"]) < 1
    assert largest_jump(subject_of("force")) == largest_jump(subject_of()) == 0.0


def test_a_time_step_too_long_fails(subject_of):
    assert check_energy(subject_of(timestep=58.0, temperature_K=160.0), 200).verdict == FAIL


def test_a_list_that_is_looked_at_too_seldom_fails(subject_of):
    """Fast atoms leave a thin skin long before anybody looks."""
    good = check_list(subject_of(temperature_K=300.0, skin=0.5), 200)
    bad = check_list(subject_of(temperature_K=300.0, skin=0.2, check_every=50), 200)
    assert (good.verdict, bad.verdict) == (PASS, FAIL)
    assert good.numbers["dangerous_builds"] == 0
    assert good.numbers["steps_between_rebuilds"] < 60
    assert bad.numbers["dangerous_builds"] > 0
    assert "--check-every (now 50)" in bad.meaning


def test_a_pair_that_stands_at_the_cutoff_spoils_nothing(subject_of):
    """Its force jumps there, so the energy bends within a millionth of an Å of the place."""
    atoms = Atoms("Ar3", [[1.0, 1, 1], [9.5 - 3e-7, 1, 1], [4.9, 1.5, 0.7]], cell=[40, 20, 20], pbc=True)
    subject = subject_of(atoms=atoms)
    for check in (check_forces(subject, 3), check_stress(subject)):
        assert check.verdict == PASS, check
