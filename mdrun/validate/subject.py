"""What is put to the test: a model, a state to start from, and the ranks that share it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from mdrun.backends.base import Backend
from mdrun.comm import Comm
from mdrun.domain import Domain
from mdrun.integrate.bonds import Bonds, no_bonds
from mdrun.integrate.constraints import Constrained
from mdrun.integrate.verlet import FREE
from mdrun.potentials.base import ForceModel, Forces
from mdrun.potentials.precision import DOUBLE
from mdrun.potentials.registry import granted_precision, load_model
from mdrun.run.ensemble_options import EnsembleOptions
from mdrun.run.ensembles import make_integrator
from mdrun.run.settings import Settings
from mdrun.run.setup import make_domain
from mdrun.run.simulation import Observer, Simulation, start
from mdrun.scope import Scope
from mdrun.state import FIELDS, State
from mdrun.strategies.choice import choose_strategy

# What settings must change to for no bath to be left.
CONSTANT_ENERGY = {f.name: f.default for f in fields(EnsembleOptions)}


@dataclass(frozen=True)
class Subject:
    """One configuration with its momenta. Every check works on copies, so that all start from the same.

    Attributes:
        state: this rank's atoms.
        bonds: of the whole system, held in every run.
    """

    comm: Comm
    settings: Settings
    backend: Backend
    model: ForceModel
    state: State
    n_dof: int
    bonds: Bonds = field(default_factory=no_bonds)

    @property
    def precision(self) -> str:
        """Whose limits hold: the one asked for, or what the model grants."""
        assert self.settings.precision is not None
        return granted_precision(self.model, self.settings.precision)

    @property
    def seed(self) -> int:
        assert self.settings.seed is not None
        return self.settings.seed

    def in_double(self) -> Subject:
        """The same with the model in double precision, where it has that: what differences of its energy are taken of.

        It is loaded anew, and never compiled.
        """
        if self.settings.precision == DOUBLE.name:
            return self
        assert self.settings.model is not None
        model = load_model(self.settings.model, self.state.numbers, DOUBLE.name, self.backend.name)
        return replace(self, settings=replace(self.settings, precision=DOUBLE.name), model=model)

    def scope(self, domain: Domain) -> Scope:
        """As a run of these settings opens it."""
        return Scope(self.model, domain, self.state.n_total, choose_strategy(self.settings.strategy, self.model))

    @contextmanager
    def evaluator(self) -> Iterator[Evaluator]:
        """For forces and energies near the configuration."""
        domain = make_domain(replace(self.settings, check_every=1), self.model.cutoff, self.comm, self.backend)
        with self.scope(domain) as scope:
            yield Evaluator(copy_of(self.state), domain, scope)

    @contextmanager
    def simulation(self, *observers: Observer, **changes: object) -> Iterator[Simulation]:
        """A run from the configuration, at its step 0, with some settings changed."""
        settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        domain = make_domain(settings, self.model.cutoff, self.comm, self.backend)
        with self.scope(domain) as scope:
            state = copy_of(self.state)
            motion = Constrained(self.bonds, self.comm) if len(self.bonds) else FREE
            integrator = make_integrator(settings, self.n_dof, self.comm, state, motion)
            sim = Simulation(state, domain, scope, integrator, self.n_dof, motion, observers=observers)
            start(sim)
            yield sim


def copy_of(state: State) -> State:
    """The same atoms in tensors of their own."""
    return replace(state, cell=state.cell.clone(), **{f.name: getattr(state, f.name).clone() for f in FIELDS})


@dataclass
class Totals:
    """Sums over all ranks; NaN where the model does not tell. ``forces`` (n_owned, 3) are this rank's."""

    energy: float
    virial: Tensor
    forces: Tensor


@dataclass
class Evaluator:
    """Evaluates a state that its owner may move."""

    state: State
    domain: Domain
    scope: Scope

    def __call__(self) -> Totals:
        """Energy, virial and forces of the state as it is now; a collective."""
        found = self.forces(totals=True)
        local = torch.full((10,), torch.nan, dtype=torch.float64)
        if found.energy is not None:
            local[0] = found.energy
        if found.virial is not None:
            local[1:] = found.virial.detach().flatten()
        energy, *virial = self.domain.comm.all_sum(local).tolist()
        return Totals(energy, torch.tensor(virial, dtype=torch.float64).reshape(3, 3), found.forces)

    def forces(self, totals: bool = False) -> Forces:
        """This rank's share alone."""
        self.domain.follow(self.state)
        found = self.scope(self.domain, totals)
        if self.domain.backend.looks_late:
            self.scope.look_back()
            self.domain.look_back(self.state)
        return found

    def rows_of(self, ids: Tensor) -> Tensor:
        """(n,) row of each id that this rank owns now, -1 for the others."""
        here = self.state.ids[None, :] == ids.to(self.state.ids)[:, None]
        found = here.any(dim=1)
        return torch.where(found, here.byte().argmax(dim=1) if here.shape[1] else found.long(), -1)
