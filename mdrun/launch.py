"""How this process starts: as which of how many, with what habits of memory. Imports nothing heavy."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Mapping


def launch_environment(env: Mapping[str, str]) -> dict[str, str]:
    """torchrun's variables, taken over from srun's where torchrun did not start us.

    A batch script's own environment names its tasks too: only variables of a *step* mean that srun started us.
    """
    if "WORLD_SIZE" in env and "RANK" in env:
        names = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        return {name: env[name] for name in names if name in env}
    if int(env.get("SLURM_STEP_NUM_TASKS", "1")) > 1 and "SLURM_PROCID" in env:
        job = int(env.get("SLURM_JOB_ID", "0"))
        per_node = re.match(r"\d+", env.get("SLURM_STEP_TASKS_PER_NODE", "1"))
        return {
            "WORLD_SIZE": env["SLURM_STEP_NUM_TASKS"],
            "RANK": env["SLURM_PROCID"],
            "LOCAL_RANK": env.get("SLURM_LOCALID", "0"),
            "LOCAL_WORLD_SIZE": per_node.group() if per_node else "1",
            "MASTER_ADDR": env.get("MASTER_ADDR", first_host(env.get("SLURM_STEP_NODELIST", "localhost"))),
            "MASTER_PORT": env.get("MASTER_PORT", str(20000 + job % 20000)),
        }
    return {}


def first_host(nodelist: str) -> str:
    """``node[07-09,12],gpu3`` → ``node07``."""
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+))?", nodelist)
    return "localhost" if match is None else match.group(1) + (match.group(2) or "")


def give_back_large_blocks() -> None:
    """Let arrays of 4 MiB and more return to the system when they are freed, where the C library is GNU's.

    It learns by itself to keep freed blocks of up to 32 MiB, and lays others between them: the arrays of a million
    atoms, replaced at each rebuild, then leave a fifth of the memory in holes.
    """
    _mallopt(M_MMAP_THRESHOLD, 4 << 20)


def keep_large_blocks() -> None:
    """Let freed arrays of up to 32 MiB serve again: a network makes thousands of them in each step.

    Their pages, given back and fetched anew, would be a fifth of its time.
    """
    _mallopt(M_MMAP_THRESHOLD, 32 << 20)
    _mallopt(M_TRIM_THRESHOLD, 1 << 30)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h


def _mallopt(parameter: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(parameter, value)
