"""One rank's piece of space between two rebuilds: owned rows, ghosts, neighbour list.

Kernels see an open, image-free frame: ``positions[:, j] - positions[:, i]``, nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from mdrun import cell as geometry
from mdrun.backends.base import Backend
from mdrun.backends.on_cpu import NumbaBackend
from mdrun.clock import timed
from mdrun.comm import Comm
from mdrun.decompose.halo import HaloPlan, plan_halo
from mdrun.decompose.migrate import migrate, pack_rows, unpack_rows
from mdrun.decompose.partition import Partition, bisect
from mdrun.errors import SimulationError
from mdrun.late import Late
from mdrun.neighborhood import Neighborhood, Rows, neighborhood_of
from mdrun.neighbors.cell_list import SINGLE_ROUNDING
from mdrun.state import FIELDS, State

PARTITION = ("axis", "cut", "lower", "upper")  # a partition's arrays
HALO_FIELDS = tuple(f for f in FIELDS if f.in_halo)
NOWHERE = 1e15  # Å; its square is finite in single precision too
THEN = "positions_then"  # what a state carries for ``Domain.restore``
FAST = 4  # steps from one rebuild to the next, after which displacements are read at once
REPARTITION_AT = 1.02  # cut space anew once the imbalance has grown so far, and by more than chance


@dataclass
class DomainCounts:
    """What happened in this domain since the run began; sums are over rebuilds."""

    rebuilds: int = 0
    dangerous_builds: int = 0
    migrations: int = 0
    repartitions: int = 0
    owned_least: int = 0
    owned_most: int = 0
    owned_sum: int = 0
    ghosts_sum: int = 0
    neighbors_sum: int = 0

    def add_build(self, n_owned: int, n_ghosts: int, n_neighbors: int) -> None:
        self.owned_least = n_owned if self.rebuilds == 0 else min(self.owned_least, n_owned)
        self.owned_most = max(self.owned_most, n_owned)
        self.owned_sum += n_owned
        self.ghosts_sum += n_ghosts
        self.neighbors_sum += n_neighbors
        self.rebuilds += 1


@dataclass
class Partitioner:
    """The partition in force, and how even it was when it was made."""

    partition: Partition | None = None
    imbalance: float = 1.0
    fresh_imbalance: float = 1.0


@dataclass
class Domain:
    """See the module's text. ``follow`` is called once a step, between moving the atoms and computing forces.

    Attributes:
        comm: the ranks that share the atoms.
        cutoff, skin: Å. Ghosts and list reach ``cutoff + skin``.
        ghost_reach: Å, where ghosts must reach farther than the list: a wide halo's layers times the cutoff.
        backend: who handles the rows. Every per-atom tensor, the state's too, lives on its device.
        check_every: look at displacements every so many steps; more than 1 risks dangerous builds.
        packed: (n_padded + 1, 4) x, y, z (Å) and type of each row, owned rows first: one cache line a neighbour. The
            last row lies far from everything; what fills up the list's vectors refers to it.
        positions: (3, n_padded) Å, a view of ``packed``.
        types, charges, ids: (n_padded,).
        neighbors: (n_owned, width) int32 padded rows, the first ``n_neighbors[i]`` of row i valid.
        n_neighbors: (n_owned,) int32.
        plan: the halo's routing.
        boxes: (size, 3, 2) tight fractional box of every rank.
        owned_by_rank: (size,) atoms of every rank.
    """

    comm: Comm
    cutoff: float
    skin: float
    check_every: int = 1
    backend: Backend = field(default_factory=NumbaBackend)
    partitioner: Partitioner = field(default_factory=Partitioner)
    counts: DomainCounts = field(default_factory=DomainCounts)
    ghost_reach: float = 0.0

    def __post_init__(self) -> None:
        self._list = self.backend.neighbor_list()
        self._steps_since_check = 0
        self._single = torch.empty((0, 4), dtype=torch.float32)
        self._was_outrun: bool | Tensor = (
            False  # forces were computed while an atom here was beyond the list's safe reach
        )
        self._found = Late(self.backend.device)  # largest squared displacement here; whether any rank wants to rebuild
        self._looks_late = self._is_unseen = self._is_due = False
        self._steps_since_build = self._n_follows = 0
        self._moved: float | Tensor = 0.0
        self.plan: HaloPlan | None = None

    @property
    def ghost_width(self) -> float:
        return max(self.cutoff, self.ghost_reach) + self.skin

    @property
    def reach(self) -> float:
        """Å, of the list."""
        return self.cutoff + self.skin

    @property
    def cell(self) -> Tensor:
        """(3, 3) Å on the host, as ``follow`` found it last."""
        return self._cell_now

    @property
    def middle(self) -> np.ndarray:
        """(3,) Å, of this rank's rows at the rebuild; 0 where there are none."""
        return np.nan_to_num(self._middle, posinf=0.0, neginf=0.0)

    @property
    def n_padded(self) -> int:
        return len(self.packed) - 1

    def packed_in(self, dtype: type) -> Tensor:
        """``packed`` itself for float64; for float32 with coordinates relative to the middle of the rank's rows."""
        if dtype is np.float64:
            return self.packed
        if len(self._single) != len(self.packed):
            self._single = torch.empty_like(self.packed, dtype=torch.float32)
        self.backend.to_single(self.packed, self._middle, self._single)
        return self._single

    def reach_in_single(self, reach: np.ndarray) -> np.ndarray:
        """Å, so much longer that no pair within reach is missed with coordinates from ``packed_in(np.float32)``."""
        return reach + SINGLE_ROUNDING * (reach + self._half_extent + self.skin)

    @property
    def positions(self) -> Tensor:
        return self.packed[:-1, :3].T

    @property
    def n_ghosts(self) -> int:
        return self.n_padded - self.n_owned

    @property
    def neighbors(self) -> Tensor:
        return self._list.matrix

    @property
    def n_neighbors(self) -> Tensor:
        return self._list.counts

    @property
    def list_growths(self) -> int:
        return self._list.n_growths

    @timed("neighbor")
    def follow(self, state: State) -> None:
        """Bring ghosts to where their owners are now, or rebuild where atoms have moved too far for the list.

        Raises:
            SimulationError: an atom leapt farther than the list reaches, or than the cell is thick.
        """
        self._n_follows += 1
        if self.plan is None or self._is_due or state.n_lattice_changes != self._lattice:
            self.rebuild(state)
            return
        if not torch.equal(state.cell, self._cell_now):
            self._learn_strain(state)
        moved2 = self.backend.move_owned(
            state.positions, self._shifts, self._then, state.cell, self._strain, self.packed
        )
        self._steps_since_build += 1
        self._steps_since_check += 1
        looks = self._steps_since_check >= self.check_every
        if looks:
            self._steps_since_check = 0
        if self._looks_late:
            self._follow_unread(state.cell, torch.as_tensor(moved2), looks)
            return
        is_beyond = moved2**0.5 > self._safe_displacement
        if looks:
            self._refuse_leaps(state, float(moved2))
        else:
            self._was_outrun = self._was_outrun | is_beyond
        if self._refresh_ghosts(state.cell, wants_rebuild=looks and bool(is_beyond)):
            self.rebuild(state)

    def _follow_unread(self, cell: Tensor, moved2: Tensor, looks: bool) -> None:
        """Bring ghosts to where their owners are, and leave the displacement for ``look_back``.

        A rebuild comes a step late. It is wanted where an atom may by then be beyond the safe displacement, at twice
        the pace of the last step; one that is there sooner is counted.
        """
        moved = moved2.sqrt()
        pace, self._moved = moved - self._moved, moved
        will_be_beyond = moved + 2 * pace.clamp(min=0) > self._safe_displacement
        self._was_outrun = self._was_outrun | (moved > self._safe_displacement)
        is_wanted = torch.as_tensor(self._refresh_ghosts(cell, will_be_beyond))
        if looks:
            self._found.send(torch.stack([moved2, is_wanted.to(moved2)]))
            self._is_unseen = True

    @timed("neighbor")
    def look_back(self, state: State) -> None:
        """Where displacements are looked at late: read what ``follow`` found, once the device has work again.

        Raises:
            SimulationError: as ``follow`` does.
        """
        if self._is_unseen:
            self._is_unseen = False
            moved2, is_wanted = self._found.read()
            self._refuse_leaps(state, float(moved2))
            self._is_due = bool(is_wanted)

    def _learn_strain(self, state: State) -> None:
        """The cell's strain since the rebuild, and how far atoms may move beside it before a pair comes near unlisted.

        A pair outside of the reach at the rebuild is now at least ``stretch · reach - 2 u`` apart. Without strain
        the safe displacement u is half the skin.
        """
        self._cell_now = state.cell.clone()
        box = geometry.completed(state.cell, state.pbc)
        if torch.equal(box, self._box_then):
            self._strain, stretch = torch.eye(3, dtype=torch.float64), 1.0
        else:
            self._strain = geometry.deformation(self._box_then, box)
            stretch = geometry.smallest_stretch(self._strain)
        needs = ((self.reach, self.cutoff), (self.ghost_width, self.ghost_width - self.skin))  # of the list, of ghosts
        self._safe_displacement = min(stretch * there - needed for there, needed in needs) / 2

    def _refuse_leaps(self, state: State, moved2: float) -> None:
        box = min([self.ghost_width, *(h for h, p in zip(self._heights.tolist(), state.pbc, strict=True) if p)])
        limit = max(self._safe_displacement, 0) + box  # as far as it may have crept since the rebuild, and a leap
        if moved2 <= limit * limit:  # false for NaN too
            return
        moved = (state.positions - self._then @ self._strain.to(self._then)).norm(dim=1)
        far = torch.nonzero(~(moved <= limit)).flatten()
        if not len(far):  # it has come back in the step that went on meanwhile
            far = moved.argmax()[None]
        ids = ", ".join(str(int(i)) for i in state.ids[far][:8].sort().values)
        raise SimulationError(
            f"rank {self.comm.rank} lost {len(far)} atom{'s' if len(far) > 1 else ''} (ids {ids}"
            f"{', ...' if len(far) > 8 else ''}): moved {float(moved[far].max()):.3g} Å at once, farther than "
            f"{limit:.3g} Å. Lower --timestep or relax the structure first.",
            self.around(far, then=(self._then + self._shifts @ state.cell.to(self._then))[far]),
        )

    def around(self, rows: Tensor, forces: Tensor | None = None, then: Tensor | None = None) -> Neighborhood:
        """What lies around owned rows (k,) that something is wrong with, and around where they were then (k, 3)."""
        ids, types, positions = (values.cpu().numpy() for values in (self.ids, self.types, self.positions.T))
        seen = Rows(self.comm.rank, ids, types, positions, self.n_owned, self.ghost_width)
        return neighborhood_of(rows.cpu().numpy(), seen, forces, None if then is None else then.cpu().numpy())

    def last_build(self) -> tuple[dict[str, Tensor], Tensor, int] | None:
        """Atoms owned here (ids, types, unwrapped positions) and the cell at the last rebuild, which all ranks made
        together, and how many steps ago that was; None before the first."""
        if self.plan is None:
            return None
        then = {"ids": self.ids[: self.n_owned], "types": self.types[: self.n_owned], "positions": self._then}
        return then, self._box_then, self._n_follows

    @timed("neighbor")
    def rebuild(self, state: State) -> None:
        """Wrap, migrate, sort the rows, choose the halo, build the list."""
        box = geometry.completed(state.cell, state.pbc)
        self._heights = geometry.heights(box)
        frac, shifts = self.backend.folded(state.positions, box, state.pbc)
        if self.partitioner.partition is None or self._is_uneven():
            points, weights = frac.cpu().numpy(), np.ones(state.n_owned)
            self.partitioner.partition = bisect(points, weights, self._heights.numpy(), self.comm)
            self.partitioner.fresh_imbalance = 0.0
            self.counts.repartitions += 1
        ids = state.ids
        n_left = migrate(state, self.backend.owners(self.partitioner.partition, frac), self.comm)
        if self.plan is not None:  # at first the whole file leaves rank 0: that is no migration
            self.counts.migrations += n_left
        if state.ids is not ids:  # rows came or went
            frac, shifts = self.backend.folded(state.positions, box, state.pbc)
        frac, self._shifts = self._sort_rows(state, frac, shifts)
        self._learn_boxes(frac, state.n_total)
        width = (self.ghost_width / self._heights).numpy()
        self.plan = plan_halo(frac, self.boxes, width, state.pbc, self.comm, self.backend.images_within)
        self._adopt_ghosts(state)
        self._box_then, self._cell_then, self._lattice = box, state.cell.clone(), state.n_lattice_changes
        self.pbc = state.pbc
        self._learn_strain(state)
        self.backend.move_owned(state.positions, self._shifts, self._then, state.cell, self._strain, self.packed)
        self._refresh_ghosts(state.cell)
        low, high = self.backend.bounds(self.positions) if self.n_padded else (np.zeros(3), np.zeros(3))
        self._middle, self._half_extent = (low + high) / 2, float((high - low).max()) / 2
        self._list.build(self.positions, self.n_owned, self.reach)
        self.counts.add_build(self.n_owned, self.n_ghosts, int(self.n_neighbors.sum()))
        # what every rank knows: that atoms are slow enough for a late look
        self._looks_late = self.backend.looks_late and self._steps_since_build > FAST
        self._was_outrun = self._is_unseen = self._is_due = False
        self._steps_since_check, self._steps_since_build, self._moved = 0, 0, 0.0

    @property
    def positions_then(self) -> Tensor:
        """(n_owned, 3) Å, at the last rebuild."""
        return self._then

    def keep(self) -> dict[str, np.ndarray]:
        """What a run that goes on from here needs beside ``positions_then``, to see the lists and rows that this one
        sees; the same on every rank. A collective, once nothing is left to look back at."""
        partition = self.partitioner.partition
        assert partition is not None
        was_outrun = self.comm.all_max(torch.tensor(float(self._was_outrun)))
        since = (self._steps_since_check, self._steps_since_build, self._looks_late, self._is_due, float(was_outrun))
        return {
            "cell_then": self._cell_then.numpy(),
            "since_rebuild": np.array(since, dtype=np.float64),
            "fresh_imbalance": np.array(self.partitioner.fresh_imbalance),
            **{f"partition_{name}": getattr(partition, name) for name in PARTITION},
        }

    def restore(self, state: State, kept: Mapping[str, np.ndarray]) -> None:
        """Rebuild as the last rebuild was, then follow the atoms to where they are.

        Args:
            state: as it is now, ``carried[THEN]`` its positions at that rebuild. Any rank may hold any atom.
            kept: what ``keep`` gave on any number of ranks; from as many, rows and lists have the same order.
        """
        now, cell = state.positions, state.cell
        state.positions = state.carried.pop(THEN)
        state.cell = torch.from_numpy(kept["cell_then"].copy())
        state.carried["positions_now"] = now
        if len(kept["partition_cut"]) == self.comm.size - 1:
            self.partitioner.partition = Partition(*(kept[f"partition_{name}"] for name in PARTITION))
            self.partitioner.fresh_imbalance = self.partitioner.imbalance = float(kept["fresh_imbalance"])
        self.rebuild(state)
        state.positions, state.cell = state.carried.pop("positions_now"), cell
        self._learn_strain(state)
        moved2 = self.backend.move_owned(
            state.positions, self._shifts, self._then, state.cell, self._strain, self.packed
        )
        self._refresh_ghosts(state.cell)
        self._moved = moved2**0.5
        checked, built, looks_late, is_due, was_outrun = kept["since_rebuild"].tolist()
        self._steps_since_check, self._steps_since_build = int(checked), int(built)
        self._n_follows = self._steps_since_build
        self._looks_late, self._is_due = self.backend.looks_late and bool(looks_late), bool(is_due)
        self._was_outrun = bool(was_outrun)

    def _is_uneven(self) -> bool:
        p = self.partitioner
        if self.comm.size == 1 or p.imbalance <= p.fresh_imbalance:
            return False
        growth = p.imbalance - p.fresh_imbalance
        is_chance = growth * self.owned_by_rank.mean() ** 0.5 < 1  # a rank's atoms, were they a gas's
        return p.imbalance > REPARTITION_AT * p.fresh_imbalance and not is_chance

    def _sort_rows(self, state: State, frac: Tensor, shifts: Tensor) -> tuple[Tensor, Tensor]:
        """Put rows that lie near each other in space near each other in memory, those of (n_owned, 3) arrays too."""
        order = self.backend.order(frac.T, state.ids, (self.ghost_width / 2 / self._heights).numpy())
        state.reorder(order)
        return frac.index_select(0, order), shifts.index_select(0, order)

    def _learn_boxes(self, frac: Tensor, n_total: int) -> None:
        """Every rank's tight box, number of atoms, and whether its atoms outran the last list, in one collective."""
        box = np.stack(self.backend.bounds(frac.T), axis=1)
        row = torch.from_numpy(np.array([*box.ravel(), len(frac), float(self._was_outrun)]))
        table = self.comm.all_gather(row).numpy()
        self.boxes = table[:, :6].reshape(-1, 3, 2)
        self.owned_by_rank = table[:, 6].astype(np.int64)
        self.counts.dangerous_builds += bool(table[:, 7].any())
        if self.owned_by_rank.sum() != n_total:
            raise SimulationError(
                f"{n_total - self.owned_by_rank.sum()} of {n_total} atoms were lost in migration between ranks."
            )
        p = self.partitioner
        p.imbalance = float(self.owned_by_rank.max() / max(self.owned_by_rank.mean(), 1e-300))
        p.fresh_imbalance = p.fresh_imbalance or p.imbalance

    def _adopt_ghosts(self, state: State) -> None:
        """The constant fields of the ghosts, and room for everybody's positions."""
        assert self.plan is not None
        arrays = state.fields()
        packed = pack_rows(arrays, HALO_FIELDS, self.plan.send_indices)
        ghosts = unpack_rows(self.comm.exchange(packed, self.plan.send_sizes, self.plan.recv_sizes), HALO_FIELDS)
        self.ids, self.types, self.charges = (
            torch.cat([arrays[name], ghosts[name]]) for name in ("ids", "types", "charges")
        )
        self.n_owned = state.n_owned
        self.packed = state.positions.new_full((len(self.ids) + 1, 4), NOWHERE)
        self.packed[:-1, 3] = self.types
        self.packed[-1, 3] = 0
        self._then = state.positions.clone()
        self._n_follows = 0

    def _refresh_ghosts(self, cell: Tensor, wants_rebuild: bool | Tensor = False) -> bool | Tensor:
        """Send images to where they are mirrored; whether any rank wants to rebuild."""
        plan = self.plan
        assert plan is not None
        rows = self.backend.images(self.packed, plan.send_indices, plan.send_shifts, cell)
        ghosts, rebuild = self.comm.exchange_and_agree(rows, plan.send_sizes, plan.recv_sizes, wants_rebuild)
        self.packed[self.n_owned : -1, :3] = ghosts
        return rebuild
