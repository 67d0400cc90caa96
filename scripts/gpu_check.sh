#!/usr/bin/env bash
# On a machine with a GPU: torch's rows, forces and runs against Numba's, then speed beside the CPU path.
#   bash scripts/gpu_check.sh [atoms along an edge, in fcc cells, 20 by default: 32,000 atoms] [steps, 2000]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

prepare_environment dev
.venv/bin/python -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' ||
  { echo "gpu_check: torch finds no GPU here" >&2; exit 2; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
.venv/bin/python -m pytest tests/test_torch_backend.py tests/test_torch_runs.py
exec .venv/bin/python scripts/gpu_bench.py --cells "${1:-20}" --steps "${2:-2000}"
