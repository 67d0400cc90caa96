#!/usr/bin/env bash
# On a machine with a GPU: torch's rows, forces and runs against Numba's, then speed beside the CPU path.
#   bash scripts/gpu_check.sh [options of gpu_bench.py: --systems lj,tersoff --atoms 32000 --steps 2000 --repeats 3]
# DEVICE=cpu tries the same, the slow tests left out, on a machine without one.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

device=${DEVICE:-cuda}
prepare_environment dev
slow=()
if [[ $device == cuda ]]; then
    .venv/bin/python -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' ||
        { echo "gpu_check: torch finds no GPU here" >&2; exit 2; }
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
    slow=(-m "slow or not slow")
fi
.venv/bin/python -m pytest "${slow[@]}" tests/test_torch_backend.py tests/test_torch_runs.py
exec .venv/bin/python scripts/gpu_bench.py --device "$device" "$@"
