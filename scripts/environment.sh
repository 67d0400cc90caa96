# Sourced by the other scripts. Goes to the repository's root, and gives it a virtual environment in .venv:
#
#   prepare_environment        what mdrun needs to run
#   prepare_environment dev    and what its tests and linters need
#
# A .venv that is whole and up to date is left alone. PYTHON names the interpreter to start from, if not the default.

cd -P "$(dirname "${BASH_SOURCE[0]}")/.."

MDRUN_VENV=.venv

prepare_environment() {
    local extra=${1:-run} recipe
    recipe=$(environment_recipe)
    # pip says where it lives: another place, where the folder was moved or copied and its scripts still point back.
    if [[ $("$MDRUN_VENV/bin/pip" --version 2>/dev/null) != *" $PWD/$MDRUN_VENV/"* ]]; then
        local python
        python=$(find_python)
        echo "environment: making $MDRUN_VENV with $("$python" --version)"
        "$python" -m venv --clear "$MDRUN_VENV"
    fi
    if environment_is "$extra" "$recipe" || environment_is dev "$recipe"; then
        return
    fi
    echo "environment: installing mdrun and what it needs (some minutes the first time)"
    # Not finished until said so at the end: an interrupted installation is done again.
    rm -f "$MDRUN_VENV"/mdrun-*.recipe
    local pip=("$MDRUN_VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c scripts/constraints.txt)
    # By itself first, so that what the others ask of it can't bring another build.
    "${pip[@]}" torch
    if [[ $extra == dev ]]; then
        "${pip[@]}" --editable '.[dev]'
    else
        "${pip[@]}" --editable .
    fi
    printf '%s\n' "$recipe" >"$MDRUN_VENV/mdrun-$extra.recipe"
}

# What the environment is made from: once any of it changes, it is brought up to date.
environment_recipe() {
    cksum pyproject.toml scripts/constraints.txt
}

environment_is() {
    local kept=$MDRUN_VENV/mdrun-$1.recipe
    [[ -f $kept && $(<"$kept") == "$2" ]] && "$MDRUN_VENV/bin/python" -c 'import torch, mdrun' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
        if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "environment: no Python of version 3.11 or newer with its venv module was found; set PYTHON to one." >&2
    return 1
}
