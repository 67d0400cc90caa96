"""The scope of a force model: one context for its life, active during each of its evaluations."""

from __future__ import annotations

import math

import torch

from mdrun.clock import timed
from mdrun.context import DistributedContext, activate_dd_context
from mdrun.domain import Domain
from mdrun.errors import SimulationError
from mdrun.exchanges import EXCHANGES
from mdrun.late import Late
from mdrun.potentials.base import ForceModel, Forces, setup, teardown
from mdrun.strategies.halo import HaloStrategy


class Scope:
    """``with Scope(model, domain, n_atoms) as scope: forces = scope(domain, totals=True)``."""

    def __init__(self, model: ForceModel, domain: Domain, n_atoms: int, strategy: HaloStrategy | None = None):
        self.model = model
        self.strategy = strategy or HaloStrategy()
        domain.ghost_reach = getattr(model, "ghost_reach", 0.0) if domain.comm.size > 1 else 0.0  # one rank has all
        self.context: DistributedContext = self.strategy.open(domain, n_atoms)
        self._sum = Late(domain.backend.device)  # of all forces, which is not finite where one is not
        self._unseen: tuple[Forces, Domain] | None = None

    def __enter__(self) -> Scope:
        setup(self.model, self.context)
        return self

    def __exit__(self, *exc) -> None:
        teardown(self.model)
        self.strategy.close(self.context)

    def warm_up(self, domain: Domain) -> None:
        """Let a model that compiles its loops on first use do so before anybody counts the time.

        Such a model says ``is_compiled = True``; totals are another loop, which the evaluation of step 0 compiles.
        """
        if getattr(self.model, "is_compiled", False):
            self(domain, totals=False)

    @timed("force")
    def __call__(self, domain: Domain, totals: bool) -> Forces:
        """One evaluation, this rank's share.

        Raises:
            SimulationError: a force or the energy is not finite. A bad virial stops nothing where it is only logged.
                Where the backend looks late, ``look_back`` raises it for an evaluation without totals.
        """
        self.strategy.publish(self.context, domain)
        EXCHANGES.begin()
        with activate_dd_context(self.context):
            result = self.model(domain, totals)
        result.forces = result.forces.detach()  # the graph of one step would hold on to all that came before
        if tuple(result.forces.shape) != (domain.n_owned, 3):
            raise ValueError(
                f"model {self.model.name} returned forces of shape {tuple(result.forces.shape)}; "
                f"({domain.n_owned}, 3) was expected: one row for each owned atom"
            )
        self._sum.send(result.forces.sum())
        self._unseen = result, domain
        if totals or not domain.backend.looks_late:
            self.look_back()
        return result

    @timed("force")
    def look_back(self) -> None:
        """Look at the last evaluation, unless that was done; before the domain moves on.

        Raises:
            SimulationError: as above.
        """
        if self._unseen is None:
            return
        (result, domain), self._unseen = self._unseen, None
        if not math.isfinite(self._sum.read()):
            bad = torch.nonzero(~torch.isfinite(result.forces).all(dim=1)).flatten()
            ids = ", ".join(str(int(i)) for i in domain.ids[bad[:8]])
            advice = getattr(self.model, "non_finite_means", "")
            raise SimulationError(
                f"the force on {len(bad)} atom{'s' if len(bad) > 1 else ''} (ids {ids}"
                f"{', ...' if len(bad) > 8 else ''}) of rank {domain.comm.rank} is not finite"
                f"{_nearest(domain, int(bad[0]))}. "
                f"{advice or 'Lower --timestep, relax the structure first, or check the model.'}",
                domain.around(bad, result.forces),
            )
        if result.energy is not None and not math.isfinite(result.energy):
            raise SimulationError(
                f"the energy of rank {domain.comm.rank}'s atoms is not finite ({result.energy}). Check the model."
            )


def _nearest(domain: Domain, row: int) -> str:
    """How near the nearest neighbour of an owned row is, in words; nothing where it has none."""
    neighbors = domain.neighbors[row, : domain.n_neighbors[row]].long()
    distances = (domain.positions[:, neighbors] - domain.positions[:, row, None]).norm(dim=0)
    if not len(distances):
        return ""
    k = int(distances.argmin())
    return f"; atoms {int(domain.ids[row])} and {int(domain.ids[neighbors[k]])} are {float(distances[k]):.3g} Å apart"
