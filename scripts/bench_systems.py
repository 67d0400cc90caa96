"""The systems of the benchmark, for mdrun and for each peer; everything is written into a scratch folder."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.io import write

SIGMA, EPSILON, MASS = 3.405, 0.0103235, 39.948  # argon, Å, eV, amu
DENSITY = 0.8442  # reduced
TAU_FS = SIGMA * (MASS / EPSILON) ** 0.5 * 10.180505710774743  # the Lennard-Jones unit of time
KB = 8.617330337217213e-05
POTENTIALS = Path(__file__).parent.parent / "tests" / "data" / "potentials"

Runner = Callable[[int], float]  # number of steps -> seconds of the loop


@dataclass(frozen=True)
class Asked:
    """How much work a section does.

    Attributes:
        repeats: rounds that count.
        cells: fcc cells along each side of the large system.
        sizes: atoms of the systems of machine-learned models.
    """

    repeats: int
    cells: int
    sizes: tuple[int, ...]


def rounds(repeats: int, configurations: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """What each measures, A B A B; the first round warms caches and does not count."""
    found: dict[str, list[float]] = {name: [] for name in configurations}
    for turn in range(repeats + 1):
        for name, measured in configurations.items():
            value = measured()
            if turn > 0:
                found[name].append(value)
            print(f"  {name}: {value:.4g}{'' if turn else ' (warm-up)'}", file=sys.stderr)
    return found


def in_turn(repeats: int, configurations: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The median of each."""
    return {name: statistics.median(values) for name, values in rounds(repeats, configurations).items()}


@dataclass
class System:
    """One row group of the table: the same atoms for everyone."""

    name: str
    n_atoms: int
    n_steps: int
    mdrun: dict[str, Runner]
    peers: dict[str, Runner] = field(default_factory=dict)


def status(python: Path, scratch: Path, structure: Path, *options: str, ranks: int = 1, threads: int = 1) -> dict:
    """What ``status.json`` says after a run as a user starts it."""
    out = scratch / "bench.run"
    command = ["-m", "mdrun", "simulate", str(structure), "--out", str(out), "--overwrite", *options]
    command += ["--threads", str(threads)]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    run([str(python), *(launcher if ranks > 1 else []), *command], OMP_NUM_THREADS=str(threads))
    return json.loads((out / "status.json").read_text())


QUIET = ("--trajectory-every", "0", "--checkpoint-every", "0")


def mdrun(python: Path, scratch: Path, structure: Path, *options: str) -> Runner:
    """The program on one core, without frames and checkpoints; seconds are the loop's, from status.json."""

    def seconds(n_steps: int) -> float:
        done = status(python, scratch, structure, "--steps", str(n_steps), *QUIET, *options)
        return float(done["loop_seconds"])

    return seconds


def lammps(peers: Path, scratch: Path, deck: str, *options: str, threads: int = 1) -> Runner:
    """LAMMPS on a deck that reads the variable ``n``; seconds are its own loop time."""

    def seconds(n_steps: int) -> float:
        path = scratch / "in.lammps"
        path.write_text(deck)
        command = [str(peers / "lmp"), "-in", str(path), "-var", "n", str(n_steps), "-log", "none", *options]
        text = run(command, OMP_NUM_THREADS=str(threads))
        found = re.search(r"Loop time of ([\d.]+)", text)
        assert found, text
        return float(found.group(1))

    return seconds


def run(command: list[str], **environment: str) -> str:
    """Standard output of a command that must succeed."""
    import os

    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def argon(cells: int) -> Atoms:
    """Face-centred cubic argon at the reduced density of the LAMMPS benchmark, 4 cells³ atoms."""
    a = (4 / DENSITY) ** (1 / 3) * SIGMA
    return bulk("Ar", "fcc", a=a, cubic=True).repeat((cells, cells, cells))


LJ_DECK = """
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
thermo 100
run $n
"""
SOLID_DECK = """
units metal
atom_style atomic
lattice {lattice} {a}
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 {mass}
pair_style {style}
pair_coeff * * {file} {element}
velocity all create {kelvin} 376847 loop geom
neighbor 1.0 bin
neigh_modify every 1 delay 5 check yes
fix 1 all nve
timestep {timestep_ps}
thermo 50
run $n
"""
LJ_OPTIONS = (
    "--model", f"lj:epsilon={EPSILON},sigma={SIGMA},cutoff={2.5 * SIGMA}", "--timestep", f"{0.005 * TAU_FS:.6f}",
    "--init-temperature", f"{1.44 * EPSILON / KB:.4f}", "--seed", "1",
)  # fmt: skip


def gromacs(peers: Path, scratch: Path, cells: int, threads: int = 1) -> Runner:
    """GROMACS in mixed precision on the same argon, its list buffered to the same reach."""

    def seconds(n_steps: int) -> float:
        folder = scratch / "gromacs"
        folder.mkdir(exist_ok=True)
        atoms = argon(cells)
        with (folder / "c.gro").open("w") as out:
            out.write(f"argon\n{len(atoms)}\n")
            for i, (x, y, z) in enumerate(atoms.positions / 10, 1):
                k = i % 100000
                out.write(f"{k:5d}AR   {'AR':>5s}{k:5d}{x:8.3f}{y:8.3f}{z:8.3f}\n")
            out.write("".join(f"{length / 10:10.5f}" for length in np.diag(atoms.cell)) + "\n")
        (folder / "t.top").write_text(
            f"[ defaults ]\n1 2 no 1.0 1.0\n[ atomtypes ]\nAR 18 {MASS} 0.0 A {SIGMA / 10} {EPSILON * 96.48533}\n"
            f"[ moleculetype ]\nAR 1\n[ atoms ]\n1 AR 1 AR AR 1 0.0 {MASS}\n[ system ]\nargon\n"
            f"[ molecules ]\nAR {len(atoms)}\n"
        )
        reach = 2.5 * SIGMA / 10
        (folder / "m.mdp").write_text(
            f"integrator=md\ndt={0.005 * TAU_FS / 1000:.6f}\nnsteps={n_steps}\ncutoff-scheme=Verlet\n"
            f"coulombtype=cut-off\nrcoulomb={reach}\nrvdw={reach}\nvdwtype=cut-off\nnstlist=20\n"
            f"verlet-buffer-tolerance=-1\nrlist={2.8 * SIGMA / 10}\ngen_vel=yes\ngen_temp=172\n"
            "nstcalcenergy=100\nnstenergy=100\ncomm-mode=linear\n"
        )
        here = ["-c", "c.gro", "-f", "m.mdp", "-p", "t.top", "-o", "t.tpr", "-maxwarn", "5"]
        shell = f"cd {folder} && {peers / 'gmx'}"
        run(["bash", "-c", f"{shell} grompp {' '.join(here)}"])
        run(["bash", "-c", f"{shell} mdrun -s t.tpr -ntmpi 1 -ntomp {threads} -nb cpu -noconfout -g l.log"])
        found = re.search(r"^ *Time:\s+\S+\s+(\S+)", (folder / "l.log").read_text(), re.M)
        assert found
        return float(found.group(1))

    return seconds


def ase_emt(peers: Path, scratch: Path, structure: Path) -> Runner:
    """ASE's velocity Verlet and EMT calculator, the reference that mdrun's EMT takes its parameters from."""
    script = (
        "import sys, time; from ase import units; from ase.io import read; from ase.md.verlet import VelocityVerlet\n"
        "from ase.calculators.emt import EMT; from ase.md.velocitydistribution import MaxwellBoltzmannDistribution\n"
        "atoms = read(sys.argv[1]); atoms.calc = EMT(); atoms.get_forces(); dyn = VelocityVerlet(atoms, 5 * units.fs)\n"
        "MaxwellBoltzmannDistribution(atoms, temperature_K=600)  # at rest, it would compute nothing anew\n"
        "t = time.perf_counter(); dyn.run(int(sys.argv[2])); print(time.perf_counter() - t)\n"
    )

    def seconds(n_steps: int) -> float:
        few = max(n_steps // 20, 2)  # it takes seconds a step
        python = str(peers / "venv" / "bin" / "python")
        return float(run([python, "-c", script, str(structure), str(few)], OMP_NUM_THREADS="1")) * n_steps / few

    return seconds


def systems(python: Path, peers: Path, scratch: Path) -> list[System]:
    """Everything that the benchmark knows."""

    def ours(path: Path, *options: str) -> dict[str, Runner]:
        return {f"mdrun, {p}": mdrun(python, scratch, path, *options, "--precision", p) for p in ("double", "mixed")}

    def lj(name: str, cells: int, n_steps: int) -> System:
        path = scratch / f"argon{cells}.extxyz"
        write(path, argon(cells))
        deck = LJ_DECK.format(cells=cells)
        return System(
            name,
            4 * cells**3,
            n_steps,
            ours(path, *LJ_OPTIONS),
            {"LAMMPS": lammps(peers, scratch, deck), "GROMACS, mixed": gromacs(peers, scratch, cells)},
        )

    def solid(name: str, element: str, lattice: str, a: float, cells: int, style: str, file: str, **more) -> System:
        n_steps, kelvin, fs, mass = more["n_steps"], more["kelvin"], more["fs"], more["mass"]
        atoms = bulk(element, lattice, a=a, cubic=True).repeat((cells, cells, cells))
        path = scratch / f"{element}{cells}.extxyz"
        write(path, atoms)
        deck = SOLID_DECK.format(
            lattice=lattice, a=a, cells=cells, mass=mass, style=style, element=element, kelvin=kelvin,
            file=POTENTIALS / file, timestep_ps=fs / 1000,
        )  # fmt: skip
        options = ("--timestep", str(fs), "--init-temperature", str(kelvin), "--seed", "1")
        model = ("--model", f"{style.split('/')[0]}:{POTENTIALS / file}")
        theirs = {"LAMMPS": lammps(peers, scratch, deck)}
        if style.startswith("eam"):
            theirs["LAMMPS -sf opt"] = lammps(peers, scratch, deck, "-sf", "opt")
        return System(name, len(atoms), n_steps, ours(path, *model, *options), theirs)

    silicon = {"n_steps": 60, "kelvin": 1000, "fs": 1.0, "mass": 28.0855}
    copper = bulk("Cu", "fcc", a=3.615, cubic=True).repeat((20, 20, 20))
    copper_path = scratch / "emt.extxyz"
    write(copper_path, copper)
    emt_options = ("--model", "emt", "--timestep", "5", "--init-temperature", "1600", "--seed", "1")
    return [
        lj("LJ liquid, 32,000", 20, 400),
        lj("LJ liquid, 4,000", 10, 2000),
        solid(
            "Cu EAM, 32,000", "Cu", "fcc", 3.615, 20, "eam/alloy", "Cu_mishin1.eam.alloy", n_steps=100, kelvin=1600,
            fs=5.0, mass=63.55,
        ),
        solid("Si Stillinger-Weber, 32,768", "Si", "diamond", 5.431, 16, "sw", "Si.sw", **silicon),
        solid("Si Tersoff, 32,768", "Si", "diamond", 5.431, 16, "tersoff", "Si.tersoff", **silicon),
        System(
            "Cu EMT, 32,000",
            len(copper),
            60,
            ours(copper_path, *emt_options),
            {"ASE": ase_emt(peers, scratch, copper_path)},
        ),
        lj("LJ liquid, 1,000,188", 63, 40),
    ]  # fmt: skip
