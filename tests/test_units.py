"""Constants against ASE's, which users convert with."""

from __future__ import annotations

import pytest
from ase import units as ase_units

from mdrun import units


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (units.FS, ase_units.fs),
        (units.PS, 1000 * ase_units.fs),
        (units.KB, ase_units.kB),
        (units.GPA, ase_units.GPa),
        (units.G_CM3, ase_units.kg / 1000 / (ase_units.m / 100) ** 3),
        (units.COULOMB, ase_units.Hartree * ase_units.Bohr),
    ],
)
def test_constants_are_those_of_ase_to_the_last_digits(ours, theirs):
    assert ours == pytest.approx(theirs, rel=1e-15)


def test_a_femtosecond_is_the_casebooks_number_of_ase_time_units():
    assert abs(units.FS - 0.0982269479) < 5e-11


def test_nanoseconds_a_day_count_the_seconds_of_a_day():
    # 1 fs a step and 1000 steps a second: 1 ps a second, 86.4 ns in 86400 s
    assert units.ns_per_day(1.0, 1000.0) == pytest.approx(86.4, rel=1e-15)
