"""What is put to the test, made in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ase import Atoms

from mdrun.backends.on_cpu import NumbaBackend
from mdrun.comm import Comm
from mdrun.integrate.velocities import degrees_of_freedom, draw_momenta
from mdrun.potentials.registry import load_model
from mdrun.run.settings import Settings
from mdrun.validate.subject import Subject
from tests.systems import pfcc, species_of, state_of

FAULTY = f"{Path(__file__).with_name('faulty.py')}:make"


@pytest.fixture
def subject_of() -> Callable[..., Subject]:
    """``subject_of(fault, atoms, temperature_K, model=...)``: 108 perturbed argon atoms by default, drawn at 60 K."""

    def make(
        fault: str = "none", atoms: Atoms | None = None, temperature_K: float = 60.0, model: str | None = None, **more
    ) -> Subject:
        torch.set_num_threads(1)
        atoms = atoms if atoms is not None else pfcc(3, 3, 3)
        values = {"device": "cpu", "backend": "numba", "precision": "double", "seed": 5, "timestep": 4.0} | more
        settings = Settings(structure="argon", model=model or f"{FAULTY},fault={fault}", **values)
        state = state_of(atoms)
        state.momenta = draw_momenta(state.masses, state.mobile, temperature_K, 5, conserves_momentum=True)
        loaded = load_model(settings.model, species_of(atoms), settings.precision)
        n_dof = degrees_of_freedom(state.mobile, momentum_is_zero=True)
        return Subject(Comm(), settings, NumbaBackend(), loaded, state, n_dof)

    return make
