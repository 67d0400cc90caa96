#!/usr/bin/env bash
# Installs the packages of machine-learned potentials (MACE, SevenNet, CHGNet) beside mdrun, all in one environment:
#
#   bash scripts/models.sh          into the project's .venv, which it makes where there is none
#   bash scripts/models.sh DIR      into the virtual environment in DIR, where mdrun is installed already
#
# Some hundred megabytes. mace-torch asks for e3nn 0.4.4 exactly, sevenn for 0.5 or newer: both run with 0.6.0, so
# mace-torch is installed without what it asks for, and that is installed here by name. pip check goes on complaining
# about e3nn. One package alone needs no such thing: pip install 'mdrun[sevennet]'.
#
# Afterwards: mdrun models, and python -m pytest tests/models

set -euo pipefail

if [[ $# -gt 0 ]]; then
    venv=$(cd -P "$1" && pwd)
    cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
else
    source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
    prepare_environment
    venv=$MDRUN_VENV
fi

install=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c scripts/constraints.txt)
"${install[@]}" sevenn==0.13.0 chgnet==0.4.2 e3nn==0.6.0
"${install[@]}" --no-deps mace-torch==0.3.16
"${install[@]}" opt_einsum torch-ema prettytable matscipy h5py torchmetrics python-hostlist configargparse GitPython \
    pyyaml tqdm lmdb orjson matplotlib pandas
"$venv/bin/python" -c 'import mace.modules, sevenn.calculator, chgnet.model' >/dev/null
echo "models: MACE, SevenNet and CHGNet are installed in $venv"
