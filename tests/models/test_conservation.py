"""Energy with real weights over two picoseconds. Skipped where the package is missing: bash scripts/models.sh."""

from __future__ import annotations

import numpy as np
import pytest
from ase.build import bulk
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution

from mdrun import units
from mdrun.integrate.verlet import VelocityVerlet
from tests.models.packages import model_of
from tests.systems import simulate

TIME_PS = 2.0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("atoms", "timestep_fs"),
    [
        pytest.param(bulk("NaCl", "rocksalt", a=5.7, cubic=True), 2.0, id="NaCl"),
        pytest.param(bulk("Cu", "fcc", a=3.63, cubic=True), 4.0, id="Cu"),
    ],
)
def test_energy_is_conserved_with_real_weights(atoms, timestep_fs):
    """No drift: the slope is below 1e-5 eV an atom in a ps, 1/4,000 of the kinetic energy at 300 K; what the step
    leaves swings within 3e-4 eV an atom."""
    pytest.importorskip("sevenn", reason="bash scripts/models.sh")
    atoms = atoms.copy()
    # Twice the temperature: half of it goes into the springs of the perfect crystal.
    MaxwellBoltzmannDistribution(atoms, temperature_K=600, rng=np.random.default_rng(1))
    model = model_of("sevennet", atoms, "double")
    run = simulate(atoms, model, VelocityVerlet(timestep_fs * units.FS), int(1000 * TIME_PS / timestep_fs), watch=10)
    energies = run.total_energies / len(atoms)
    times = np.linspace(0.0, TIME_PS, len(energies))
    assert abs(np.polyfit(times, energies, 1)[0]) < 1e-5
    assert np.abs(energies - energies[0]).max() < 3e-4
