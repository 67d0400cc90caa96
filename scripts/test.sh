#!/usr/bin/env bash
# Runs the tests in .venv, made or brought up to date first, on two cores. Arguments go to pytest:
# scripts/test.sh -k halo
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

prepare_environment dev
exec .venv/bin/python -m pytest -n 2 "$@"
