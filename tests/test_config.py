"""What a configuration says wrong is told as it stands there: file, line, the key's spelling."""

from __future__ import annotations

from pathlib import Path

import pytest

from mdrun.errors import InputError
from mdrun.run.config import settings_from
from mdrun.run.relax_settings import RelaxSettings
from mdrun.run.settings import Settings

# A line that is out of range, by option, and others that it needs beside it.
NPT = "ensemble = 'npt'\ntemperature = 300\npressure = 0\n"
NVT = "ensemble = 'nvt'\ntemperature = 300\n"
BAD = {
    "structure": [("'/'", "")],
    "replicate": [("[1, 0, 1]", "")],
    "timestep": [("-1", ""), ("0", ""), ("nan", ""), ("inf", "")],
    "steps": [("-1", "")],
    "time": [("-1", ""), ("nan", "")],
    "init_temperature": [("-1", ""), ("inf", "")],
    "zero_momentum_every": [("-1", "")],
    "max_temperature": [("0", ""), ("nan", "")],
    "seed": [("-1", ""), (str(2**63), "")],
    "device": [("'tpu'", "")],
    "backend": [("'jax'", "")],
    "precision": [("'half'", "")],
    "strategy": [("'best'", "")],
    "threads": [("0", "")],
    "skin": [("-0.5", ""), ("inf", "")],
    "check_every": [("0", "")],
    "log_every": [("-1", ""), ("0", "max_temperature = 5\n")],
    "trajectory_every": [("-1", "")],
    "trajectory": [("['../a.traj']", ""), ("['a.dcd']", ""), ("['a.traj', 'a.traj']", "")],
    "trajectory_precision": [("'18'", ""), ("'float32'", "")],
    "checkpoint_every": [("-1", ""), ("'often'", ""), ("'0s'", "")],
    "allow_changes": [("'timstep'", ""), ("'timestep,nonsense'", "")],
    "max_hours": [("0", "")],
    "comm_timeout": [("0", ""), ("nan", "")],
    "ensemble": [("'nvu'", ""), ("'nvt'", ""), ("'npt'", "temperature = 5\n")],
    "thermostat": [("'oven'", NVT), ("'bussi'", ""), ("'langevin'", NPT)],
    "temperature": [("-1", "ensemble = 'nvt'\n"), ("'hot'", "ensemble = 'nvt'\n"), ("5", ""),
                    ("0", "ensemble = 'npt'\npressure = 0\n")],
    "ramp_steps": [("0", NVT), ("5", NVT)],
    "thermostat_time": [("0", NPT), ("5", NVT)],
    "friction": [("-1", NVT), ("1", NPT)],
    "barostat": [("'press'", NPT), ("'mtk'", NVT), ("'berendsen'", "ensemble = 'nph'\npressure = 0\n")],
    "pressure": [("'1,2'", "ensemble = 'nph'\n"), ("'nan'", "ensemble = 'nph'\n"), ("0", ""),
                 ("'1,2,3'", "ensemble = 'nph'\n"), ("'1,1,1,1,0,0'", "ensemble = 'nph'\n"),
                 ("'1,2,3'", "ensemble = 'nph'\nbox = 'xyz'\ncouple = 'xy'\n")],
    "barostat_time": [("0", NPT), ("5", NVT)],
    "compressibility": [("0", NPT + "barostat = 'stochastic'\n"), ("1", NPT)],
    "box": [("'round'", NPT), ("'xx'", NPT), ("'xyz'", NVT)],
    "couple": [("'xx'", NPT), ("'xy'", NPT + "box = 'z'\n")],
}  # fmt: skip
ANYTHING = {
    "format", "index", "species", "freeze", "constrain_bonds", "model", "trust_model", "out", "overwrite", "resume",
    "compile", "trajectory_atoms", "wrap",
}  # fmt: skip
CASES = [(name, value, others) for name, cases in BAD.items() for value, others in cases]
OF_RELAX = [
    ("fmax", "0", ""), ("stress_max", "-1", ""), ("optimizer", "'newton'", ""), ("cell", "'round'", ""),
    ("pressure", "inf", "cell = 'full'\n"), ("pressure", "1", ""), ("cell_mask", "'zzz'", "cell = 'full'\n"),
    ("cell_mask", "'xx'", ""), ("skin", "-1", ""), ("log_every", "-1", ""),
]  # fmt: skip


def refused(text: str, path: Path, kind: type[Settings] = Settings, **flags) -> str:
    path.write_text(text)
    with pytest.raises(InputError) as told:
        settings_from(path, {} if text.startswith("structure") else {"structure": "a.xyz", **flags}, kind)
    return str(told.value)


def test_every_option_is_tried():
    assert set(BAD) | ANYTHING == set(Settings.options())


@pytest.mark.parametrize("kind", ["-", "_"])
@pytest.mark.parametrize(("name", "value", "others"), CASES)
def test_a_value_out_of_range_is_told_by_its_line_and_key(name, value, others, kind, tmp_path):
    key = name.replace("_", kind)
    text = f"{key} = {value}\n" if name == "structure" else f"# mine\n\n{key} = {value}\n{others}"
    told = refused(text, tmp_path / "run.toml")
    line = 1 if name == "structure" else 3
    assert told.startswith(f"{tmp_path / 'run.toml'}, line")
    assert str(line) in told.split(":")[0].removeprefix(str(tmp_path / "run.toml")).replace(",", "").split()
    assert f"{key} " in told or f"{key}:" in told
    assert f"--{name.replace('_', '-')} " not in told


@pytest.mark.parametrize(("name", "value", "others"), OF_RELAX)
def test_of_relax_too(name, value, others, tmp_path):
    told = refused(f"\n{name} = {value}\n{others}", tmp_path / "run.toml", RelaxSettings)
    assert told.startswith(f"{tmp_path / 'run.toml'}, line")
    assert "2" in told.split(":")[0].removeprefix(str(tmp_path / "run.toml")).replace(",", "").split()
    assert f"{name} " in told


def test_all_lines_that_do_not_go_together_are_told(tmp_path):
    text = "ensemble = 'npt'\npressure = 0\ntemperature = 300\nthermostat = 'langevin'\nbarostat = 'mtk'\n"
    told = refused(text, tmp_path / "run.toml")
    assert told.startswith(
        f"{tmp_path / 'run.toml'}, lines 4 and 5: thermostat langevin does not go with barostat mtk."
    )


@pytest.mark.parametrize(
    ("flags", "text", "words"),
    [
        (
            {"thermostat": "langevin"},
            NPT + "barostat = 'mtk'\n",
            "line 4: --thermostat langevin does not go with b",
        ),
        (
            {"barostat": "mtk"},
            NPT + "thermostat = 'langevin'\n",
            "line 4: thermostat langevin does not go with --b",
        ),
        ({"ensemble": "nve"}, "temperature = 300\n", "line 1: temperature is the thermostat's, and nve has none."),
        ({"max_temperature": 5.0}, "\nlog-every = 0\n", "line 2: log-every 0 won't do"),
        ({"overwrite": True}, "resume = true\n", "line 1: resume goes on with the run in --out, --overwrite replaces"),
    ],
)
def test_flags_and_lines_that_do_not_go_together_are_told_apart(flags, text, words, tmp_path):
    assert f"run.toml, {words}" in refused(text, tmp_path / "run.toml", **flags)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"timestep": 2.0}, "timestep = -1\n"),
        ({"steps": 5}, "time = -1\n"),
        ({"time": 5.0}, "steps = -1\n"),
        ({"ensemble": "nvt", "temperature": "5"}, "temperature = 'hot'\n"),
        ({"trajectory": ["a.traj"]}, "trajectory = ['a.dcd']\n"),
    ],
)
def test_a_bad_value_that_a_flag_replaces_is_no_mistake(flags, text, tmp_path):
    (tmp_path / "run.toml").write_text(text)
    settings = settings_from(tmp_path / "run.toml", {"structure": "a.xyz", **flags})
    for name, value in flags.items():
        assert getattr(settings, name) == (tuple(value) if isinstance(value, list) else value)


def test_a_bad_flag_is_told_as_a_flag_whatever_the_file_says(tmp_path):
    assert refused("timestep = -1\n", tmp_path / "run.toml", timestep=-2.0).startswith("--timestep -2.0 won't do")
