"""Every collective of the program. One process is a communicator of size one: there is no second path.

An error on one rank ends all: it is posted in the rendezvous store, the rank closes its connections, the others
fail in whatever collective they wait in, read the posted error and follow with the same exit code.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mdrun.clock import timed
from mdrun.errors import InputError, PeerError
from mdrun.launch import launch_environment

ERROR_KEY = "mdrun/error"
COUNT_KEY = "mdrun/errors"
TOLD_KEY = "mdrun/told"
PATIENCE = 5.0  # seconds for rank 0 to write down what happened before the others let the launcher kill it


class Comm:
    """A communicator of one process; the parent of the one that spans several.

    Attributes:
        bytes_sent: since the start, what ``exchange`` sent to other ranks.
    """

    rank = 0
    size = 1

    def __init__(self) -> None:
        self.bytes_sent = 0

    def all_gather(self, row: Tensor) -> Tensor:
        """(size, *row.shape): the row of every rank, in rank order."""
        return row[None]

    def all_sum(self, values: Tensor) -> Tensor:
        """Sum over ranks; every rank holds the same bits."""
        return values

    def all_max(self, values: Tensor) -> Tensor:
        """Largest value over ranks, element by element. NaN is not promised to win: pass a flag beside it."""
        return values

    def exchange_sizes(self, send_sizes: Sequence[int]) -> list[int]:
        """How many rows each rank will send here, given how many this one sends to each."""
        return list(send_sizes)

    def exchange(self, rows: Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int]) -> Tensor:
        """Rows sorted by receiver go out, rows sorted by sender come back: (sum(recv_sizes), *rows.shape[1:])."""
        return rows

    def exchange_and_agree(
        self, rows: Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int], wish: bool | Tensor
    ) -> tuple[Tensor, bool | Tensor]:
        """``exchange``, and whether any rank had the wish: the answer rides on the rows, for no collective more.

        Where the wish is a tensor, so is the answer: no device is waited for.
        """
        return rows, wish

    def gather(self, rows: Tensor) -> Tensor | None:
        """All ranks' rows one after another on rank 0; None elsewhere."""
        return rows

    def broadcast(self, value: Any) -> Any:
        """Rank 0's object on every rank."""
        return value

    def device_mesh(self) -> Any:
        """The ``DeviceMesh`` of all ranks; None for a single process."""
        return None

    def post_error(self, message: str, code: int, last_good_step: int | None) -> bool:
        """Tell the other ranks why this one ends. True if this rank is the first, whose message counts."""
        return True

    def posted_error(self) -> tuple[str, int, int | None] | None:
        """What another rank posted, or None."""
        return None

    def abort(self) -> None:
        """Close the connections, so that no rank waits for this one."""

    def close(self) -> None:
        """End in good order, all ranks together."""


class ProcessComm(Comm):
    """Gloo (CPU) and, where there is a GPU, NCCL, over ``torch.distributed``."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        import torch.distributed as dist

        self._dist = dist
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._timeout_s = timeout_s
        self._store = dist.distributed_c10d._get_default_store()
        self._mesh: Any = None

    def _call(self, collective, *args, **kwargs) -> None:
        try:
            collective(*args, **kwargs)
        except RuntimeError as error:
            raise PeerError(
                f"rank {self.rank} lost contact with another rank, or waited more than {self._timeout_s:g} s for it "
                f"(--comm-timeout): {str(error).splitlines()[0]}"
            ) from error

    @timed("communication")
    def all_gather(self, row: Tensor) -> Tensor:
        out = row.new_empty((self.size, *row.shape))
        self._call(self._dist.all_gather, list(out.unbind()), row.contiguous())
        return out

    @timed("communication")
    def all_sum(self, values: Tensor) -> Tensor:
        out = values.clone()
        self._call(self._dist.all_reduce, out)
        return out

    @timed("communication")
    def all_max(self, values: Tensor) -> Tensor:
        out = values.clone()
        self._call(self._dist.all_reduce, out, op=self._dist.ReduceOp.MAX)
        return out

    @timed("communication")
    def exchange_sizes(self, send_sizes: Sequence[int]) -> list[int]:
        send = torch.tensor(send_sizes, dtype=torch.int64)
        recv = torch.empty_like(send)
        self._call(self._dist.all_to_all_single, recv, send)
        return recv.tolist()

    @timed("communication")
    def exchange(self, rows: Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int]) -> Tensor:
        out = rows.new_empty((sum(recv_sizes), *rows.shape[1:]))
        self._call(self._dist.all_to_all_single, out, rows.contiguous(), list(recv_sizes), list(send_sizes))
        row_bytes = rows.element_size() * (rows[0].numel() if len(rows) else 0)
        self.bytes_sent += (sum(send_sizes) - send_sizes[self.rank]) * row_bytes
        return out

    @timed("communication")
    def exchange_and_agree(
        self, rows: Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int], wish: bool | Tensor
    ) -> tuple[Tensor, bool | Tensor]:
        send_body, send_head = _letter_layout(tuple(send_sizes), rows.device)
        recv_body, recv_head = _letter_layout(tuple(recv_sizes), rows.device)
        letters = rows.new_empty((len(rows) + self.size, *rows.shape[1:]))
        letters[send_body] = rows
        letters[send_head] = wish.to(letters.dtype) if isinstance(wish, Tensor) else float(wish)
        arrived = self.exchange(letters, [n + 1 for n in send_sizes], [n + 1 for n in recv_sizes])
        answer = arrived[recv_head].any()
        return arrived[recv_body], answer if isinstance(wish, Tensor) else bool(answer)

    @timed("communication")
    def gather(self, rows: Tensor) -> Tensor | None:
        sizes = self.all_gather(torch.tensor(len(rows))).tolist()
        send = [len(rows) if r == 0 else 0 for r in range(self.size)]
        recv = sizes if self.rank == 0 else [0] * self.size
        out = rows.new_empty((sum(recv), *rows.shape[1:]))
        self._call(self._dist.all_to_all_single, out, rows.contiguous(), recv, send)
        return out if self.rank == 0 else None

    def broadcast(self, value: Any) -> Any:
        box = [value]
        self._call(self._dist.broadcast_object_list, box, src=0)
        return box[0]

    def device_mesh(self) -> Any:
        if self._mesh is None:
            from torch.distributed.device_mesh import init_device_mesh

            self._mesh = init_device_mesh("cpu", (self.size,), mesh_dim_names=("space",))
        return self._mesh

    def post_error(self, message: str, code: int, last_good_step: int | None) -> bool:
        try:
            is_first = self._store.add(COUNT_KEY, 1) == 1
            if is_first:
                self._store.set(ERROR_KEY, json.dumps([message, code, last_good_step]))
        except RuntimeError:  # the store went with rank 0, which held it and must speak
            return self.rank == 0
        return is_first

    def posted_error(self) -> tuple[str, int, int | None] | None:
        try:
            if not self._comes(ERROR_KEY):
                return None
            message, code, last_good_step = json.loads(self._store.get(ERROR_KEY))
        except RuntimeError:
            return None
        return message, code, last_good_step

    def _comes(self, key: str) -> bool:
        """Whether the store gets the key before patience ends. Asked again and again: a wait that ran out would leave
        the connection to the store unusable."""
        deadline = time.monotonic() + PATIENCE
        while not self._store.check([key]):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def abort(self) -> None:
        if not self._dist.is_initialized():
            return
        self._dist.destroy_process_group()
        self._mesh = None
        gc.collect()  # connections close with the last reference to the group
        # A launcher kills all once one has ended: let rank 0 write the run's last words first.
        try:
            if self.rank == 0:
                self._store.set(TOLD_KEY, "1")
                time.sleep(0.2)
            else:
                self._comes(TOLD_KEY)
        except RuntimeError:
            pass

    def close(self) -> None:
        if self._dist.is_initialized():
            self._call(self._dist.barrier)
            self._dist.destroy_process_group()


@lru_cache(maxsize=8)
def _letter_layout(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Where the rows and where the one heading row of each letter lie when ``sizes`` rows go to or come from ranks."""
    counts = torch.tensor(sizes)
    ranks = torch.arange(len(sizes))
    head = torch.cumsum(counts + 1, 0) - counts - 1
    body = torch.arange(int(counts.sum())) + torch.repeat_interleave(ranks + 1, counts)
    return body.to(device), head.to(device)


def open_comm(timeout_s: float = 600.0) -> Comm:
    """The communicator that the launcher asks for: torchrun's or srun's variables, or a single process.

    Raises:
        InputError: the ranks could not meet.
    """
    environment = launch_environment(os.environ)
    if int(environment.get("WORLD_SIZE", "1")) == 1:
        return Comm()
    os.environ.update(environment)
    try:
        return ProcessComm(timeout_s)
    except RuntimeError as error:
        raise InputError(
            f"the {environment['WORLD_SIZE']} ranks could not meet at {environment.get('MASTER_ADDR')}:"
            f"{environment.get('MASTER_PORT')}: {str(error).splitlines()[0]}. Is another job using that port? "
            "Set MASTER_PORT, or start with torchrun --standalone."
        ) from error
