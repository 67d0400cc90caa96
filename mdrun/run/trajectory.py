"""Frames of the whole system, atoms in the order of the input file whatever rank owns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import torch

from mdrun.comm import Comm
from mdrun.decompose.migrate import pack_rows, unpack_rows
from mdrun.run.simulation import Simulation
from mdrun.run.thermo import Thermometer
from mdrun.state import FIELDS, Field

if TYPE_CHECKING:
    from ase import Atoms

FRAME_FIELDS = (
    *(f for f in FIELDS if f.name in ("ids", "positions", "momenta")),
    Field("forces", (3,), torch.float64),
)


def gather_by_id(
    arrays: Mapping[str, torch.Tensor], fields: Sequence[Field], comm: Comm
) -> dict[str, torch.Tensor] | None:
    """The named per-atom fields of all ranks in the order of the ids on rank 0, None elsewhere; a collective."""
    rows = comm.gather(pack_rows(arrays, fields))
    if rows is None:
        return None
    gathered = unpack_rows(rows, fields)
    order = gathered["ids"].argsort()
    return {name: values[order] for name, values in gathered.items()}


class TrajectoryFile:
    """``trajectory.extxyz``: everything that the input file said of the atoms, with what has moved brought up to date.

    Velocities are the ``momenta`` column, in sqrt(amu·eV), which is what ASE reads back as velocities.
    """

    def __init__(self, path: Path | None, template: Atoms | None, comm: Comm, thermometer: Thermometer) -> None:
        """``path`` and ``template`` are None on ranks that don't write."""
        self._comm = comm
        self._thermometer = thermometer
        self._template = template
        self._file: TextIO | None = path.open("w", encoding="utf-8") if path is not None else None

    def __call__(self, sim: Simulation) -> None:
        thermo = self._thermometer(sim)
        arrays = {**sim.state.fields(), "forces": sim.forces.forces}
        frame = gather_by_id(arrays, FRAME_FIELDS, self._comm)
        if frame is None or self._file is None or self._template is None:
            return
        from ase.calculators.singlepoint import SinglePointCalculator
        from ase.io import write
        from ase.stress import full_3x3_to_voigt_6_stress

        atoms = self._template.copy()
        atoms.info.update(step=sim.step, time_ps=thermo.time_ps)
        if all(sim.state.pbc):
            atoms.set_cell(sim.state.cell.numpy())
        atoms.set_positions(frame["positions"].numpy(), apply_constraint=False)
        atoms.set_momenta(frame["momenta"].numpy(), apply_constraint=False)
        results = {"energy": thermo.potential_eV, "forces": frame["forces"].numpy()}
        if bool(torch.isfinite(thermo.stress).all()):
            results["stress"] = full_3x3_to_voigt_6_stress(thermo.stress.numpy())
        atoms.calc = SinglePointCalculator(atoms, **results)
        write(self._file, atoms, format="extxyz")
        self._file.flush()
