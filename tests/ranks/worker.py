"""One rank of a test: ``python -m tests.ranks.worker JOBS OUT.npz`` under the launcher's environment."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from pathlib import Path

import numpy as np
import torch

from mdrun.cache import keep_kernels
from mdrun.comm import open_comm


def work(jobs: str, out: Path) -> None:
    torch.set_num_threads(1)
    keep_kernels()
    from tests.ranks.jobs import JOBS  # whose kernels go where the line above says

    comm = open_comm(timeout_s=60)
    found = {f"{job}/{name}": array for job in jobs.split(",") for name, array in JOBS[job](comm).items()}
    if comm.rank == 0:
        part = out.with_suffix(".part.npz")
        np.savez(part, **found)
        part.rename(out)
    comm.close()


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    code = 0
    try:
        work(sys.argv[1], Path(sys.argv[2]))
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the communication library may abort in the interpreter's own exit
