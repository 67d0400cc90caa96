"""``mdrun init`` writes a configuration that says what the flags' help says, and that can be read back."""

from __future__ import annotations

import pytest

from mdrun.cli.init import COMMANDS, template
from mdrun.run.config import read_config
from tests.cli.launcher import call


@pytest.mark.parametrize("command", COMMANDS)
def test_a_template_has_every_option_and_asks_for_nothing(command, tmp_path):
    kind = COMMANDS[command][1]
    (tmp_path / "a.toml").write_text(template(command), encoding="utf-8")
    assert read_config(tmp_path / "a.toml", kind) == {}
    keys = {line[2:].split(" = ")[0] for line in template(command).splitlines() if line.startswith("# ")}
    assert keys == set(kind.options())


@pytest.mark.parametrize("command", COMMANDS)
def test_each_line_of_a_template_can_be_uncommented_and_shows_the_default(command, tmp_path):
    kind = COMMANDS[command][1]
    bare = kind(structure="structure.xyz")
    for line in template(command).splitlines():
        if line.startswith("# "):
            (tmp_path / "a.toml").write_text(line[2:], encoding="utf-8")
            ((name, value),) = read_config(tmp_path / "a.toml", kind).items()
            assert getattr(bare, name) in (None, value)


def test_a_file_that_is_there_is_left_alone(tmp_path):
    call("init", "a.toml", cwd=tmp_path).expect(0)
    before = (tmp_path / "a.toml").read_bytes()
    assert "is there already" in call("init", "a.toml", "--command", "relax", cwd=tmp_path).expect(2).err
    assert (tmp_path / "a.toml").read_bytes() == before
    assert "simulate, relax" in call("init", "b.toml", "--command", "fly", cwd=tmp_path).expect(2).err
