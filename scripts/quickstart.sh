#!/usr/bin/env bash
# From nothing to a result: makes .venv, installs mdrun, runs argon on one rank and on two, says where to look.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

prepare_environment
export PATH="$PWD/.venv/bin:$PATH"
export OMP_NUM_THREADS=1  # or torchrun says at length that it has set it

results=quickstart.run
# Shifted, or the energy would step by a little each time that a pair crosses the cutoff.
simulation=(inputs/argon.extxyz --model lj:shift=true --init-temperature 80 --timestep 2 --steps 2000 --seed 1
            --log-every 20 --trajectory-every 200 --overwrite)

headline() { printf '\n== %s\n' "$*"; }

headline "500 argon atoms, 4 ps at constant energy, on one rank"
mdrun simulate "${simulation[@]}" --out "$results/one-rank"

headline "the same on two ranks: half of the atoms each, the neighbouring ones as ghosts"
torchrun --standalone --nproc-per-node 2 --no-python mdrun simulate "${simulation[@]}" --out "$results/two-ranks"

headline "where the results are"
last_moment() { # run
    tail -n 1 "$results/$1/thermo.csv" | awk -F, -v run="$1" \
        '{printf "                      %-9s  step %d, %.4f K, %.6f eV in all, %.4f GPa\n", run, $1, $3, $6, $7}'
}
cat <<END
$results/one-rank/ and $results/two-ranks/ hold the same trajectory:
  thermo.csv          energies, temperature, pressure; their last rows:
$(last_moment one-rank; last_moment two-ranks)
  trajectory.extxyz   frames that ASE reads: .venv/bin/ase gui $results/one-rank/trajectory.extxyz
  ranks.csv           what each rank owned, mirrored, sent and spent
  status.json         how it ended, speed, memory, versions
  config.toml         every option: mdrun simulate --config $results/one-rank/config.toml --out again.run
Next, in this shell: source .venv/bin/activate; mdrun simulate YOUR-STRUCTURE --init-temperature 300
END
