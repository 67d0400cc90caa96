"""From settings to a simulation ready to run, on every rank."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from mdrun.backends.base import Backend
from mdrun.backends.on_cpu import NumbaBackend
from mdrun.comm import Comm
from mdrun.compiler import why_eager
from mdrun.domain import Domain
from mdrun.errors import InputError
from mdrun.integrate.bonds import Bonds
from mdrun.launch import keep_large_blocks
from mdrun.potentials.base import ForceModel, UnknownSpecies
from mdrun.potentials.named_files import digests_of, with_absolute_paths
from mdrun.potentials.registry import (
    compile_terms,
    default_model,
    has_graph,
    load_model,
    notes_of_precision,
    refuse_unasked_code,
    runs_torch,
    without_precision,
)
from mdrun.potentials.torch_models import NoTorchPath
from mdrun.run.devices import with_devices
from mdrun.run.ensemble_options import has_barostat
from mdrun.run.ensembles import motion_of_cell, warnings
from mdrun.run.origin import FROM_ZERO, Origin
from mdrun.run.settings import Settings
from mdrun.run.starting import give_velocities
from mdrun.state import FIELDS, State
from mdrun.strategies.names import AUTO, HALO
from mdrun.structures import Structure, load_structure
from mdrun.structures.selection import select


@dataclass(frozen=True)
class Shared:
    """What rank 0 learned from the input and every rank needs; but for bonds small, whatever the number of atoms.

    Attributes:
        settings: with the model, the seed, device, backend and precision filled in.
        counted: what ``n_dof`` counts, in words.
        spares_drift: the thermostat leaves the motion of the centre of mass alone, and no temperature counts it.
        bonds: of fixed length, of the whole system.
        notes: things to tell the user once.
        origin: of the run's times.
        inputs: what was in each file that the model names, by its path; see ``mdrun.potentials.named_files``.
    """

    settings: Settings
    cell: np.ndarray
    pbc: tuple[bool, bool, bool]
    numbers: tuple[int, ...]
    formula: str
    n_atoms: int
    n_fixed: int
    n_dof: int
    counted: str
    spares_drift: bool
    bonds: Bonds
    velocities: str
    notes: tuple[str, ...]
    inputs: Mapping[str, str]
    origin: Origin = FROM_ZERO

    @property
    def n_steps(self) -> int:
        """In all, those that were made before this process began included."""
        return self.settings.n_steps_from(self.origin)

    @property
    def model(self) -> str:
        assert self.settings.model is not None
        return self.settings.model

    @property
    def precision(self) -> str:
        assert self.settings.precision is not None
        return self.settings.precision

    @property
    def seed(self) -> int:
        assert self.settings.seed is not None
        return self.settings.seed


def read_structure(settings: Settings) -> Structure:
    """Raises:
    InputError: it is wrong.
    """
    return load_structure(
        Path(settings.structure),
        format=settings.format,
        index=settings.index,
        replicate=settings.replicate,
        species=settings.species.split(",") if settings.species else None,
        freeze=settings.freeze,
        constrain_bonds=settings.constrain_bonds,
    )


def read_input(settings: Settings, structure: Structure | None = None) -> tuple[Shared, State, Structure]:
    """Everything that can be known to be wrong is found here, on rank 0, before any work.

    Args:
        structure: in place of the one that the settings name.

    Raises:
        InputError: the structure, the model or their combination is wrong.
    """
    structure = read_structure(settings) if structure is None else structure
    notes = [*structure.notes]
    if settings.trajectory_atoms is not None:
        select(settings.trajectory_atoms, structure.atoms, "--trajectory-atoms")
    numbers = structure.species
    if settings.model is None:
        settings = replace(settings, model=default_model(numbers))
        notes.append(f"no --model: the species chose {settings.model}")
    assert settings.model is not None
    refuse_unasked_code(settings.model, settings.trust_model)
    inputs = digests_of(with_absolute_paths(settings.model))
    try:
        settings, model, reasons = where_the_model_runs(settings, numbers)
    except UnknownSpecies as error:
        raise UnknownSpecies(
            error.model, error.numbers, error.known, _where(structure.atoms.numbers, error.numbers)
        ) from error
    notes += reasons
    notes += getattr(model, "warnings", ())
    if settings.strategy not in (AUTO, HALO) and not has_graph(model):
        notes.append(f"--strategy {settings.strategy} changes nothing for {model.name}: it has no graph to deal out")
    if settings.compile:
        notes += compile_terms(model, settings.device)
    assert settings.precision is not None
    notes += notes_of_precision(model, settings.precision)
    if settings.seed is None:
        settings = replace(settings, seed=secrets.randbits(32))
    state = first_state(structure)
    start = give_velocities(state, structure, settings)
    notes += start.notes
    if has_barostat(settings):
        motion_of_cell(settings, start.freedom.count, state)  # tells what is wrong with it before any work
    notes += warnings(settings, state)
    n_fixed = int((~structure.mobile).all(axis=1).sum())
    shared = Shared(
        settings=settings,
        cell=state.cell.numpy(),
        pbc=state.pbc,
        numbers=numbers,
        formula=structure.formula,
        n_atoms=structure.n_atoms,
        n_fixed=n_fixed,
        n_dof=start.freedom.count,
        counted=str(start.freedom),
        spares_drift=start.spares_drift,
        bonds=start.bonds,
        velocities=start.velocities,
        notes=tuple(notes),
        inputs=inputs,
    )
    return shared, state, structure


def where_the_model_runs(settings: Settings, numbers: tuple[int, ...]) -> tuple[Settings, ForceModel, list[str]]:
    """The settings with device, backend and precision filled in, the model, and what to tell the user of them."""
    found = with_devices(settings)
    assert found.model is not None
    assert found.precision is not None
    try:
        model = load_model(found.model, numbers, found.precision, found.backend)
    except NoTorchPath as error:
        if (settings.device, settings.backend) != ("auto", "auto"):
            raise
        cpu, model, _ = where_the_model_runs(replace(settings, device="cpu"), numbers)
        return cpu, model, [f"on the CPU: {str(error).partition(';')[0]}"]
    trouble = why_eager(found.device) if found.backend == "torch" else None
    return found, model, [f"torch can't compile here, and is slower: {trouble}"] if trouble else []


def make_model(settings: Settings, numbers: tuple[int, ...], backend: Backend) -> ForceModel:
    """The model of this rank, once device, backend and precision are settled; compiled where that is asked for."""
    assert settings.model is not None
    assert settings.precision is not None
    model = load_model(settings.model, numbers, settings.precision, backend.name)
    if settings.compile:
        compile_terms(model, backend.device.type)
    return model


def _where(numbers: np.ndarray, missing: tuple[int, ...]) -> str:
    rows = np.flatnonzero(np.isin(numbers, missing))
    listed = ", ".join(str(i) for i in rows[:8]) + (", ..." if len(rows) > 8 else "")
    return f" (atom{'s' if len(rows) > 1 else ''} {listed})"


def first_state(structure: Structure) -> State:
    """All atoms in file order, at rest."""
    atoms = structure.atoms
    return State(
        cell=torch.from_numpy(np.array(atoms.cell.array, dtype=np.float64)),
        pbc=(bool(atoms.pbc[0]), bool(atoms.pbc[1]), bool(atoms.pbc[2])),
        numbers=structure.species,
        ids=torch.arange(structure.n_atoms),
        types=torch.from_numpy(np.searchsorted(structure.species, atoms.numbers).astype(np.int32)),
        charges=torch.from_numpy(np.array(structure.charges, dtype=np.float64)),
        masses=torch.from_numpy(np.array(structure.masses, dtype=np.float64)),
        mobile=torch.from_numpy(np.array(structure.mobile, dtype=bool)),
        positions=torch.from_numpy(np.array(atoms.positions, dtype=np.float64)),
        momenta=torch.zeros((structure.n_atoms, 3), dtype=torch.float64),
        n_total=structure.n_atoms,
    )


def empty_state(shared: Shared) -> State:
    """What a rank holds before the first migration brings it its atoms."""
    return State(
        cell=torch.from_numpy(shared.cell.copy()),
        pbc=shared.pbc,
        numbers=shared.numbers,
        n_total=shared.n_atoms,
        **{f.name: torch.empty((0, *f.width), dtype=f.dtype) for f in FIELDS},
    )


def make_domain(settings: Settings, cutoff: float, comm: Comm, backend: Backend) -> Domain:
    """The domain of this rank, before its first rebuild.

    Raises:
        InputError: the model's cutoff is no length.
    """
    if not 0 < cutoff < float("inf"):
        raise InputError(f"the model's cutoff is {cutoff!r} Å; it must be a positive length.")
    return Domain(comm, cutoff, settings.skin, settings.check_every, backend)


def set_threads(wanted: int | None) -> int:
    """Numba's and torch's threads alike: as asked, else this process's cores shared among the ranks of the machine."""
    import numba

    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = len(os.sched_getaffinity(0))
    n_threads = wanted if wanted is not None else max(cores // local_ranks, 1)
    most = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    if n_threads > most:
        if wanted is not None:
            raise InputError(f"--threads {wanted}: this process may use {most} (NUMBA_NUM_THREADS).")
        n_threads = most
    numba.set_num_threads(n_threads)
    torch.set_num_threads(n_threads)
    return n_threads


def prepare_process(model: ForceModel, backend: Backend) -> None:
    """Threads and memory as the model uses them."""
    if runs_torch(model):
        keep_large_blocks()
    elif backend.name == NumbaBackend.name and not without_precision(model):
        torch.set_num_threads(1)  # the threads of both, torch's and Numba's, would spin for the same cores
