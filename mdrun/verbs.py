"""Five verbs for model authors: what is wanted, never how. Each is the identity outside of a context.

All are collectives: every rank calls them at the same places, whatever it owns. All are differentiable. Compiled
code breaks off around them. ``exchange`` is the name under which the end of a run shows what one sent, ``layer 2`` or
the like; without names they are numbered.
"""

from __future__ import annotations

from torch import Tensor

from mdrun.compiler import never_compiled
from mdrun.context import current_dd_context


@never_compiled
def refresh_neighbors(x: Tensor, exchange: str | None = None) -> Tensor:
    """Fill ghost rows from their owners.

    Args:
        x: (n_owned, ...) or (n_padded, ...); what ghost rows hold is ignored.
        exchange: its name, the same on every rank.

    Returns:
        (n_padded, ...).

    Raises:
        ValueError: another number of rows.
    """
    context = current_dd_context()
    return x if context.policy is None else context.policy.refresh(x, context, exchange)


@never_compiled
def scatter_to_owners(x: Tensor, exchange: str | None = None) -> Tensor:
    """Sum the partial values in ghost rows into their owners, then refresh: (n_padded, ...) to (n_padded, ...).

    Raises:
        ValueError: another number of rows.
    """
    context = current_dd_context()
    return x if context.policy is None else context.policy.scatter(x, context, exchange)


@never_compiled
def sum_into_owners(x: Tensor, exchange: str | None = None) -> Tensor:
    """Sum the partial values in ghost rows into their owners, without the refresh: (n_padded, ...) to (n_owned, ...).

    Raises:
        ValueError: another number of rows.
    """
    context = current_dd_context()
    return x if context.policy is None else context.policy.fold(x, context, exchange)


@never_compiled
def system_sum(values: Tensor, system_index: Tensor, n: int) -> Tensor:
    """Sum owned rows per structure, over all ranks.

    Args:
        values: (n_owned or n_padded, ...); only owned rows count.
        system_index: as many rows, the structure of each.
        n: number of structures.

    Returns:
        (n, ...), the same on every rank. Energies of atoms may depend on it. Slopes that a model takes by itself are
        those of a whole, such as a total of this kind, taken on every rank.

    Raises:
        ValueError: another number of rows.
    """
    context = current_dd_context()
    if context.policy is None:
        return values.new_zeros((n, *values.shape[1:])).index_add(0, system_index, values)
    return context.policy.system_sum(values, system_index, n, context)


def to_local(x: Tensor) -> Tensor:
    """The plain tensor that this rank holds, also where ``x`` is a ``DTensor``."""
    local = getattr(x, "to_local", None)
    return x if local is None else local()
