"""The distributed context: what a force model may know of the distribution while it runs, read ambiently.

``current_dd_context()`` is read the way ``torch.no_grad()`` is: nothing is threaded through arguments. A context is
built once for a scope and updated in place at each force evaluation; a model keeps one reference that always shows
the present. Outside of any, the inert ``NOT_DISTRIBUTED`` answers, so that code for many ranks runs unchanged on one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import torch

from mdrun.decompose.halo import HaloMeta


@dataclass
class HaloConfig:
    """Constant within a scope: the partition in force, the ghost width (Å), the process group, the rank."""

    partitioner: Any
    ghost_width: float
    process_group: Any
    rank: int


@dataclass
class GatherMeta:
    """Routing of the sharded path: rows owned here, and rows in all."""

    n_owned: int
    n_global: int


@dataclass
class DistributedContext:
    """See the module's text. Values that vary by step are for eager code; compiled code gets them as tensors."""

    mesh: Any = None
    policy: Any = None
    strategy: Any = None
    halo_config: HaloConfig | None = None
    n_systems_global: int | None = None
    n_atoms_total: int | None = None
    halo_meta: HaloMeta | None = None
    gather_meta: GatherMeta | None = None
    owned_offset: int = 0
    cap_state: dict[str, int] = field(default_factory=dict)
    graph_padder: Any = None
    cap_atoms: bool = True
    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def is_halo(self) -> bool:
        return self.halo_meta is not None

    @property
    def is_sharded(self) -> bool:
        return self.gather_meta is not None

    @property
    def is_distributed(self) -> bool:
        return self.is_halo or self.is_sharded or (self.mesh is not None and self.mesh.size() > 1)

    @property
    def rank(self) -> int:
        if self.halo_config is not None:
            return self.halo_config.rank
        return self.mesh.get_rank() if self.mesh is not None else 0

    @property
    def world_size(self) -> int:
        if self.halo_meta is not None:
            return len(self.halo_meta.send_sizes)
        return self.mesh.size() if self.mesh is not None else 1

    @property
    def n_owned(self) -> int | None:
        meta = self.halo_meta or self.gather_meta
        return None if meta is None else meta.n_owned

    @property
    def n_padded(self) -> int | None:
        if self.halo_meta is not None:
            return self.halo_meta.n_padded
        return None if self.gather_meta is None else self.gather_meta.n_global

    @property
    def compiling(self) -> bool:
        return torch.compiler.is_compiling()

    def maybe_pad_graph(self, data: Any) -> Any:
        """``data`` padded to the persistent capacities, or untouched where no padder is set."""
        if self.graph_padder is None:
            return data
        return self.graph_padder.pad(data, self.cap_state, cap_atoms=self.cap_atoms)


class _NotDistributed(DistributedContext):
    """What is shown where there is no scope: every field at its default, for good.

    All code outside of a scope shares it, so nothing can be stored in it; scratch space is a fresh dict each time.
    """

    def __init__(self) -> None:
        pass  # the defaults of the class serve

    def __getattr__(self, name: str) -> Any:
        if name in ("cap_state", "extras"):
            return {}
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"NOT_DISTRIBUTED is shared by all code outside of a scope: {name} can't be set")

    def __reduce__(self) -> str:
        return "NOT_DISTRIBUTED"  # a copy or a pickle of it is itself


NOT_DISTRIBUTED = _NotDistributed()

_active: ContextVar[DistributedContext] = ContextVar("mdrun_dd_context", default=NOT_DISTRIBUTED)


def current_dd_context() -> DistributedContext:
    """The active context, or ``NOT_DISTRIBUTED``; never None."""
    return _active.get()


@contextmanager
def activate_dd_context(context: DistributedContext) -> Iterator[DistributedContext]:
    """Make ``context`` the current one within the block; re-entrant, restored on exceptions, one for each thread."""
    token = _active.set(context)
    try:
        yield context
    finally:
        _active.reset(token)
