"""Moving atoms to the ranks that own them, every field of theirs with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mdrun.comm import Comm
from mdrun.state import Field, State


def row_bytes(field: Field) -> int:
    """Bytes of one atom's value."""
    return math.prod(field.width) * field.dtype.itemsize


def pack_rows(arrays: Mapping[str, Tensor], fields: Sequence[Field], rows: Tensor | None = None) -> Tensor:
    """(n, bytes) uint8: the named fields of the chosen rows side by side, so that one message carries them all."""
    columns = []
    for f in fields:
        values = arrays[f.name] if rows is None else arrays[f.name].index_select(0, rows)
        # Fresh memory: an empty tensor may carry strides and offsets that can't be seen as bytes.
        plain = torch.empty((len(values), *f.width), dtype=f.dtype, device=values.device).copy_(values)
        columns.append(plain.view(torch.uint8).view(len(values), row_bytes(f)))
    return torch.cat(columns, dim=1)


def unpack_rows(rows: Tensor, fields: Sequence[Field]) -> dict[str, Tensor]:
    """The inverse of ``pack_rows``."""
    arrays, start = {}, 0
    for f in fields:
        n_bytes = row_bytes(f)
        values = torch.empty((len(rows), *f.width), dtype=f.dtype, device=rows.device)
        values.view(torch.uint8).view(len(rows), n_bytes).copy_(rows[:, start : start + n_bytes])
        arrays[f.name] = values
        start += n_bytes
    return arrays


def migrate(state: State, owners: Tensor, comm: Comm) -> int:
    """Send each row to the rank in ``owners`` (n_owned,); afterwards the state holds what this rank owns.

    Returns:
        The number of rows that left this rank.
    """
    leaving = torch.nonzero(owners != comm.rank).flatten()
    leaving = leaving[owners[leaving].argsort(stable=True)]
    send_sizes = torch.bincount(owners[leaving], minlength=comm.size).tolist()
    recv_sizes = comm.exchange_sizes(send_sizes)
    arrays, table = state.fields(), state.table
    arrived = comm.exchange(pack_rows(arrays, table, leaving), send_sizes, recv_sizes)
    if len(leaving) or len(arrived):
        staying = torch.nonzero(owners == comm.rank).flatten()
        news = unpack_rows(arrived, table)
        state.replace_fields({n: torch.cat([a.index_select(0, staying), news[n]]) for n, a in arrays.items()})
    return len(leaving)
