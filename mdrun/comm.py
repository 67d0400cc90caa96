"""Every collective of the program. One process is a communicator of size one: there is no second path.

An error on one rank ends all: it is posted in the rendezvous store, the rank closes its connections, the others
fail in whatever collective they wait in, read the posted error and follow with the same exit code.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import re
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mdrun.clock import timed
from mdrun.errors import InputError, PeerError
from mdrun.last_words import LastWords
from mdrun.launch import launch_environment

if TYPE_CHECKING:
    from mdrun.mailbox import Mailbox

SHARED_MEMORY = "MDRUN_SHARED_MEMORY"  # 0 in the environment: ranks of one host write to sockets all the same


class Comm:
    """A communicator of one process; the parent of the one that spans several.

    Attributes:
        bytes_sent: since the start, what ``exchange`` sent to other ranks.
    """

    rank = 0
    size = 1
    last_words: LastWords | None = None  # where there are others to tell why this one ends

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

    def disconnect(self) -> None:
        """Close the connections, so that no rank waits for this one."""

    def close(self) -> None:
        """End in good order, all ranks together."""


class ProcessComm(Comm):
    """The default process group of ``torch.distributed``: gloo (CPU) and, where there is a GPU, NCCL."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        import torch.distributed as dist

        self._dist = dist
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._timeout_s = timeout_s
        self.last_words = LastWords(dist.distributed_c10d._get_default_store(), self.rank, self.size)
        self._mesh: Any = None

    def _call(self, collective, *args, **kwargs) -> Any:
        try:
            return collective(*args, **kwargs)
        except RuntimeError as error:
            raise PeerError(
                f"rank {self.rank} lost contact with another rank, or waited more than {self._timeout_s:g} s for it "
                f"(--comm-timeout): {_cause(error)}. Look what became of that rank: its memory, its host, the network."
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
        ones = [1] * self.size
        return self._pass_on(torch.tensor(send_sizes, dtype=torch.int64), ones, ones).tolist()

    @timed("communication")
    def exchange(self, rows: Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int]) -> Tensor:
        self._count_bytes(rows, send_sizes)
        return self._pass_on(rows, send_sizes, recv_sizes)

    def _pass_on(self, rows: Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int]) -> Tensor:
        out = rows.new_empty((sum(recv_sizes), *rows.shape[1:]))
        self._call(self._dist.all_to_all_single, out, rows.contiguous(), list(recv_sizes), list(send_sizes))
        return out

    def _count_bytes(self, rows: Tensor, send_sizes: Sequence[int]) -> None:
        row_bytes = rows.element_size() * math.prod(rows.shape[1:])
        self.bytes_sent += (sum(send_sizes) - send_sizes[self.rank]) * row_bytes

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
        out = self._pass_on(rows, send, sizes if self.rank == 0 else [0] * self.size)
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

    def disconnect(self) -> None:
        if self._dist.is_initialized():
            self._dist.destroy_process_group()
            self._mesh = None
            gc.collect()  # connections close with the last reference to the group

    def close(self) -> None:
        if self._dist.is_initialized():
            self._call(self._dist.barrier)
            self._dist.destroy_process_group()


class HostComm(ProcessComm):
    """All ranks on one host: what lies in main memory goes through a mailbox, the rest as the parent sends it."""

    def __init__(self, timeout_s: float, mailbox: Mailbox) -> None:
        super().__init__(timeout_s)
        self._mailbox = mailbox

    @timed("communication")
    def all_gather(self, row: Tensor) -> Tensor:
        if row.device.type != "cpu":
            return super().all_gather(row)
        ones = [1] * self.size
        return self._pass_on(row.expand(self.size, *row.shape), ones, ones)

    @timed("communication")
    def all_sum(self, values: Tensor) -> Tensor:
        return super().all_sum(values) if values.device.type != "cpu" else self.all_gather(values).sum(dim=0)

    @timed("communication")
    def all_max(self, values: Tensor) -> Tensor:
        return super().all_max(values) if values.device.type != "cpu" else self.all_gather(values).amax(dim=0)

    @timed("communication")
    def exchange_and_agree(
        self, rows: Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int], wish: bool | Tensor
    ) -> tuple[Tensor, bool | Tensor]:
        if rows.device.type != "cpu":
            return super().exchange_and_agree(rows, send_sizes, recv_sizes, wish)
        self._count_bytes(rows, send_sizes)
        arrived, answer = self._by_mailbox(rows, send_sizes, recv_sizes, bool(wish))
        return arrived, torch.tensor(answer) if isinstance(wish, Tensor) else answer

    def _pass_on(self, rows: Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int]) -> Tensor:
        if rows.device.type != "cpu":
            return super()._pass_on(rows, send_sizes, recv_sizes)
        return self._by_mailbox(rows, send_sizes, recv_sizes, note=False)[0]

    def _by_mailbox(
        self, rows: Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int], note: bool
    ) -> tuple[Tensor, bool]:
        """The rows that came, and whether any rank left a note."""
        row_bytes = rows.element_size() * math.prod(rows.shape[1:])
        send, receive = ([n * row_bytes for n in sizes] for sizes in (send_sizes, recv_sizes))
        out = torch.empty((sum(recv_sizes), *rows.shape[1:]), dtype=rows.dtype)
        any_note = self._call(self._mailbox.exchange, _as_bytes(rows), send, _as_bytes(out), receive, note)
        return out, any_note

    def disconnect(self) -> None:
        self._mailbox.close()
        super().disconnect()

    def close(self) -> None:
        super().close()
        self._mailbox.close()


def _cause(error: RuntimeError) -> str:
    """The library's words, without its source's address and its jokes."""
    line = str(error).splitlines()[0]
    return re.sub(r"^\[\S+:\d+\] ", "", line).partition(" This is typically")[0].rstrip(".")


def _as_bytes(rows: Tensor) -> np.ndarray:
    """(n,) uint8, a view where that can be."""
    flat = rows.detach().reshape(-1)
    if flat.stride() != (1,):  # of one number or none it may be anything, which can't be seen as bytes
        flat = torch.empty(flat.shape, dtype=flat.dtype).copy_(flat)
    return flat.view(torch.uint8).numpy()


def _shared_mailbox(timeout_s: float) -> Mailbox | None:
    """A mailbox where every rank can open those of all others; None on every rank otherwise."""
    import torch.distributed as dist

    from mdrun.mailbox import Mailbox

    mailbox = None
    if os.environ.get(SHARED_MEMORY, "1") != "0":
        with contextlib.suppress(OSError, AttributeError):  # AttributeError: not on this operating system
            mailbox = Mailbox(dist.get_world_size())
    addresses: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(addresses, mailbox and mailbox.address)
    connected = False
    if mailbox and all(addresses):
        with contextlib.suppress(OSError, AttributeError):
            mailbox.connect(dist.get_rank(), addresses, timeout_s)
            connected = True
    dist.all_gather_object(addresses, connected)
    if mailbox and not all(addresses):
        mailbox.close()
        return None
    return mailbox


@lru_cache(maxsize=8)
def _letter_layout(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Where the rows and where the one heading row of each letter lie when ``sizes`` rows go to or come from ranks."""
    counts = torch.tensor(sizes)
    ranks = torch.arange(len(sizes))
    head = torch.cumsum(counts + 1, 0) - counts - 1
    body = torch.arange(int(counts.sum())) + torch.repeat_interleave(ranks + 1, counts)
    return body.to(device), head.to(device)


def meeting_place(n_ranks: int) -> tuple[Any, list[dict[str, str]]]:
    """Where ranks that this process starts on its host can meet, as under torchrun.

    Returns:
        What must be kept for as long as they live, and the environment variables of each of them.
    """
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # a port that is free for certain
    common = {
        "WORLD_SIZE": str(n_ranks),
        "LOCAL_WORLD_SIZE": str(n_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    return store, [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n_ranks)]


def open_comm(timeout_s: float = 600.0) -> Comm:
    """The communicator that the launcher asks for: torchrun's or srun's variables, or a single process.

    Raises:
        InputError: the ranks could not meet.
    """
    environment = launch_environment(os.environ)
    if int(environment.get("WORLD_SIZE", "1")) == 1:
        return Comm()
    os.environ.update(environment)
    import torch.distributed as dist

    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
        mailbox = _shared_mailbox(timeout_s)
        return HostComm(timeout_s, mailbox) if mailbox else ProcessComm(timeout_s)
    except RuntimeError as error:
        raise InputError(
            f"the {environment['WORLD_SIZE']} ranks could not meet at {environment.get('MASTER_ADDR')}:"
            f"{environment.get('MASTER_PORT')}: {str(error).splitlines()[0]}. Is another job using that port? "
            "Set MASTER_PORT, or start with torchrun --standalone."
        ) from error
