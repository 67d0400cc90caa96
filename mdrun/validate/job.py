"""The whole job of ``validate``: read, warm up, check, write down what was found."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from mdrun.clock import CLOCK
from mdrun.comm import Comm
from mdrun.errors import InputError
from mdrun.noise import normals
from mdrun.philox import STREAM_VELOCITIES
from mdrun.run.devices import open_backend
from mdrun.run.ending import Witness
from mdrun.run.ensembles import conserves_momentum
from mdrun.run.progress import versions
from mdrun.run.settings import Settings
from mdrun.run.setup import Shared, empty_state, make_model, prepare_process, read_input, set_threads
from mdrun.run.simulation import run
from mdrun.state import State
from mdrun.validate.energy import check_energy
from mdrun.validate.ensemble import check_ensemble
from mdrun.validate.forces import check_forces
from mdrun.validate.list_safety import check_list
from mdrun.validate.ranks import check_ranks
from mdrun.validate.stress import check_stress
from mdrun.validate.subject import CONSTANT_ENERGY, Subject
from mdrun.validate.verdict import FAIL, Check, Plan, exit_code, overall, skipped

FILE = "validate.json"
SHAKE = 0.05  # Å, standard deviation: in a perfect crystal at rest any force is zero, a wrong one too
MIXING = 5.0  # of the warm-up's thermostat: friction times the time
MOVING = ("energy", "list", "ensemble")  # checks that need motion


class Listener(Protocol):
    """Who tells the user, on rank 0 alone."""

    def started(self, shared: Shared, notes: list[str], n_ranks: int, n_threads: int) -> None: ...

    def checking(self, name: str) -> None: ...

    def checked(self, check: Check) -> None: ...

    def finished(self, checks: list[Check], path: Path) -> None: ...


@dataclass(frozen=True)
class Findings:
    """What all checks found."""

    checks: list[Check]

    @property
    def exit_code(self) -> int:
        return exit_code(self.checks)


class Validation(Witness):
    """All checks of one structure, model and ensemble."""

    def __init__(
        self, settings: Settings, comm: Comm, listener: Listener, plan: Plan, out: str | os.PathLike | None = None
    ) -> None:
        """``out`` is the directory of ``validate.json``, STRUCTURE.validate by default."""
        self.settings = replace(settings, steps=None, time=None)
        self.plan = plan
        self.comm = comm
        self.listener = listener
        self.path = Path(out or Path(Path(settings.structure).name).with_suffix(".validate")) / FILE
        self.checks: list[Check] = []
        self._shared: Shared | None = None
        self._running: str | None = None
        self._began = time.perf_counter()

    def execute(self) -> Findings:
        """Make the checks.

        Raises:
            InputError: before any work, the user's input is wrong.
            SimulationError: a run became unphysical, which ends it all; ``failed`` writes that down.
        """
        self.plan.check()
        n_threads = set_threads(self.settings.threads)
        is_writer = self.comm.rank == 0
        shared, state, notes = None, None, list[str]()
        if is_writer:
            shared, state, notes = read_start(self.settings)
            if shared.settings.zero_momentum_every:
                raise InputError("validate does not stop the motion of the whole: give --zero-momentum-every 0.")
            if shared.spares_drift:
                raise InputError(
                    f"{shared.settings.structure} drifts as a whole, which the thermostat spares and validate can't "
                    "take out of the temperature. Give velocities without a drift, as --init-temperature draws them."
                )
            claim(self.path.parent)
        shared, notes = self.comm.broadcast((shared, notes))
        self._shared = shared
        backend = open_backend(shared.settings)
        state = state or empty_state(shared)
        state.move_to(backend.device)
        model = make_model(shared.settings, shared.numbers, backend)
        prepare_process(model, backend)
        given = Subject(self.comm, shared.settings, backend, model, state, shared.n_dof, shared.bonds)
        if is_writer:
            self.listener.started(shared, notes, self.comm.size, n_threads)
            self.listener.checking("warming up")
        self._running = "warm-up"
        subject, moves = warmed_up(given, self.plan.short_steps)
        for name in self.plan.checks:
            self._make(name, subject, moves)
        self._running = None
        if is_writer:
            self._write("finished")
            self.listener.finished(self.checks, self.path)
        return Findings(self.checks)

    def _make(self, name: str, subject: Subject, moves: bool) -> None:
        self._running = name
        if self.comm.rank == 0:
            self.listener.checking(name)
        began = time.perf_counter()
        if name in MOVING and not moves:
            check = skipped(name, "nothing moves: give --init-temperature, or a structure with velocities.")
        else:
            check = self._calls()[name](subject)
        check = replace(check, numbers=check.numbers | {"seconds": round(time.perf_counter() - began, 3)})
        self.checks.append(self.comm.broadcast(check))
        if self.comm.rank == 0:
            self.listener.checked(check)
            self._write("running")

    def _calls(self) -> dict[str, Callable[[Subject], Check]]:
        plan = self.plan
        return {
            "forces": lambda subject: check_forces(subject, plan.n_samples),
            "stress": check_stress,
            "ranks": check_ranks,
            "energy": lambda subject: check_energy(subject, plan.short_steps),
            "list": lambda subject: check_list(subject, plan.short_steps),
            "ensemble": lambda subject: check_ensemble(subject, plan.long_steps),
        }

    def failed(self, reason: str, code: int, last_good_step: int | None) -> None:
        """Write down why it ended early, where reading the input came to its end."""
        if self._shared is None or self.comm.rank != 0:
            return
        if self._running is not None:
            self.checks.append(Check(self._running, FAIL, reason))
        self._write("failed", code)

    def _write(self, state: str, code: int | None = None) -> None:
        """Replace ``validate.json`` in one step, so that a reader never sees half of it."""
        assert self._shared is not None
        text = json.dumps(self._as_json(state, code, self._shared), indent=2, allow_nan=False)
        partial = self.path.with_name(f".{FILE}.{os.getpid()}")
        partial.write_text(text + "\n")
        os.replace(partial, self.path)

    def _as_json(self, state: str, code: int | None, shared: Shared) -> dict[str, Any]:
        return {
            "state": state,
            "verdict": overall(self.checks),
            "exit_code": exit_code(self.checks) if code is None and state == "finished" else code,
            "structure": shared.settings.structure,
            "n_atoms": shared.n_atoms,
            "formula": shared.formula,
            "ranks": self.comm.size,
            "seconds": round(time.perf_counter() - self._began, 3),
            "settings": asdict(shared.settings),
            "plan": asdict(self.plan),
            "versions": versions(),
            "checks": [check.as_json() for check in self.checks],
        }


def read_start(settings: Settings) -> tuple[Shared, State, list[str]]:
    """The input for a bath that does not change, of atoms that move if there is a bath; and what to tell of that.

    Raises:
        InputError: as ``read_input`` does.
    """
    notes = []
    temperatures = settings.temperatures
    if temperatures is not None and temperatures[0] != temperatures[1]:
        notes.append(f"--temperature {settings.temperature}: checked at {temperatures[0]:g} K")
    if temperatures is not None:
        settings = replace(settings, temperature=temperatures[0])
    shared, state, _ = read_input(settings)
    if temperatures is not None and temperatures[0] > 0 and not bool(state.momenta.any()):
        started = replace(settings, init_temperature=temperatures[0], seed=shared.settings.seed)
        shared, state, _ = read_input(started)
        notes.append(f"nothing moved: velocities drawn at the bath's {temperatures[0]:g} K")
    return shared, state, [*shared.notes, *notes]


def claim(directory: Path) -> None:
    """Make the directory.

    Raises:
        InputError: it can't be, or can't be written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {directory} can't be made: {error.strerror}.") from error
    if not os.access(directory, os.W_OK):
        raise InputError(f"--out {directory} can't be written to.")


def warmed_up(given: Subject, n_steps: int) -> tuple[Subject, bool]:
    """The state that all checks start from, and whether it moves.

    After a few steps no atom is where symmetry would hide a mistake. Where there is a bath, a Langevin thermostat makes
    them: in a crystal, one that scales all momenta alike would leave every mode with what it was given at first. Where
    nothing moves, the atoms are shaken instead, by noise of the seed, unless bonds hold them.
    """
    settings = given.settings
    mixing: dict[str, object] = {}
    if settings.temperature:
        per_ps = MIXING * 1000 / (n_steps * settings.timestep)
        bath = {"ensemble": "nvt", "thermostat": "langevin", "temperature": settings.temperature, "friction": per_ps}
        mixing = CONSTANT_ENERGY | bath
    with given.simulation(**mixing) as sim:
        before = _momentum(sim.state, given.comm)
        moves = float(given.comm.all_sum(sim.state.kinetic_energy().cpu())) > 0 or bool(settings.temperature)
        if moves:
            run(sim, n_steps)
            if conserves_momentum(settings):
                _restore_momentum(sim.state, before, given.comm)
        elif not len(given.bonds):
            noise = normals(given.seed, STREAM_VELOCITIES, 1, sim.state.ids)  # 0 draws velocities
            sim.state.positions += SHAKE * noise.to(sim.state.positions) * sim.state.mobile
        CLOCK.reset()
        return replace(given, state=sim.state), moves


def _momentum(state: State, comm: Comm) -> torch.Tensor:
    """(5,): total momentum, total mass, number of components that are fixed."""
    fixed = (~state.mobile).sum().to(state.masses)
    return comm.all_sum(torch.cat([state.momenta.sum(dim=0), state.masses.sum()[None], fixed[None]]).cpu())


def _restore_momentum(state: State, before: torch.Tensor, comm: Comm) -> None:
    """Give the whole the momentum that it had, which the degrees of freedom count on; unless atoms are fixed."""
    now = _momentum(state, comm)
    if now[4] == 0:
        state.momenta += state.masses[:, None] * ((before - now)[:3] / now[3]).to(state.momenta)
