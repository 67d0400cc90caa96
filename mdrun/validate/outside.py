"""The kinetic energy as physical_validation judges it, where that is installed (``pip install mdrun[validate]``)."""

from __future__ import annotations

import contextlib
import io

import numpy as np

from mdrun import units


def second_opinion(kinetic: np.ndarray, n_dof: int, temperature_K: float, n_atoms: int, seed: int) -> dict[str, float]:
    """Its strict test's p value, and how many errors mean and width are off by its own reckoning; {} without it.

    Args:
        kinetic: eV, in the order of time.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return _ask(kinetic, n_dof, temperature_K, n_atoms, seed)
    except ImportError:
        return {}


def _ask(kinetic: np.ndarray, n_dof: int, temperature_K: float, n_atoms: int, seed: int) -> dict[str, float]:
    from physical_validation import data
    from physical_validation.kinetic_energy import distribution

    unit = data.UnitData(
        kb=units.KB, energy_str="eV", energy_conversion=96.485, length_str="Å", length_conversion=0.1,
        volume_str="Å3", volume_conversion=1e-3, temperature_str="K", temperature_conversion=1.0,
        pressure_str="eV/Å3", pressure_conversion=1.602e6, time_str="ps", time_conversion=1.0,
    )  # fmt: skip
    system = data.SystemData(
        natoms=n_atoms, nconstraints=0, ndof_reduction_tra=3 * n_atoms - n_dof, ndof_reduction_rot=0,
        mass=np.ones(n_atoms), molecule_idx=np.arange(n_atoms), nconstraints_per_molecule=np.zeros(n_atoms),
    )  # fmt: skip
    simulation = data.SimulationData(
        units=unit,
        system=system,
        ensemble=data.EnsembleData("NVT", natoms=n_atoms, volume=1.0, temperature=temperature_K),
        observables=data.ObservableData(kinetic_energy=kinetic, potential_energy=kinetic),
        dt=1.0,
    )
    p = distribution(simulation, strict=True, verbosity=0)
    mean, width = distribution(simulation, strict=False, verbosity=0, bootstrap_seed=seed % 2**31)
    return {
        "physical_validation_p_shape": float(p),
        "physical_validation_deviation_of_mean": float(mean),
        "physical_validation_deviation_of_width": float(width),
    }
