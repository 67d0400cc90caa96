"""One of the ranks that ``mdrun.validate.others`` starts: ``python -m mdrun.validate.worker FOLDER``."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(folder: Path) -> int:
    from mdrun.cache import keep_kernels

    keep_kernels()  # before any module that holds one is imported

    import numpy as np

    from mdrun.comm import open_comm
    from mdrun.run.devices import open_backend
    from mdrun.run.ending import Witness, end_with_error
    from mdrun.run.setup import make_model, prepare_process, set_threads
    from mdrun.validate.others import ANSWERS, load
    from mdrun.validate.ranks import answers
    from mdrun.validate.subject import Subject

    comm = open_comm(timeout_s=120.0)
    try:
        settings, state, n_dof, bonds = load(folder, is_first=comm.rank == 0)
        set_threads(settings.threads)
        backend = open_backend(settings)
        state.move_to(backend.device)
        model = make_model(settings, state.numbers, backend)
        prepare_process(model, backend)
        found = answers(Subject(comm, settings, backend, model, state, n_dof, bonds))
        if found is not None:
            with (folder / f"partial.{ANSWERS}").open("wb") as file:
                np.savez(file, allow_pickle=False, **found)
            os.replace(folder / f"partial.{ANSWERS}", folder / ANSWERS)
        comm.close()
    except Exception as error:
        return end_with_error(error, comm, Witness())
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the communication library may abort in the interpreter's own exit
