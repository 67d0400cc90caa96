"""Units at the border are ASE's (Å, eV, amu, fs, K, GPa); inside, time is in ASE's Å·sqrt(amu/eV).

The numbers are CODATA 2014, the set that ASE uses, so that trajectories agree with ASE's to the last digit.
They stand here as literals because ``ase.units`` takes longer to import than the command line may take to answer;
a test compares them with ASE's.
"""

from __future__ import annotations

FS = 0.09822694788464063  # one femtosecond in Å·sqrt(amu/eV)
PS = 1000.0 * FS
KB = 8.617330337217213e-05  # eV/K
GPA = 0.006241509125883258  # one GPa in eV/Å³
G_CM3 = 0.6022140858549161  # one g/cm³ in amu/Å³
COULOMB = 14.399645351950548  # e²/(4 π ε0) in eV·Å
# The same in LAMMPS's metal units, for models whose reference is LAMMPS: 2.4e-8 of its value less.
LAMMPS_COULOMB = 14.399645

# Order of a symmetric tensor's components at the border, ASE's (Voigt's), and where they stand.
VOIGT = {"xx": (0, 0), "yy": (1, 1), "zz": (2, 2), "yz": (1, 2), "xz": (0, 2), "xy": (0, 1)}


def ns_per_day(timestep_fs: float, steps_per_second: float) -> float:
    """Simulated nanoseconds for each day on the clock."""
    return timestep_fs * steps_per_second * 86400e-6
