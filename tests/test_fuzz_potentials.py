"""Hostile files of potentials and hostile model strings end in a model or in one paragraph."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from mdrun.potentials.named_files import digests_of, with_absolute_paths
from mdrun.potentials.registry import load_model
from tests.mutations import feed, feed_files, hostile, mutations, texts

SETFL = "a\nb\nc\n1 Cu\n6 0.1 6 1.0 5.0\n29 63.546 3.615 fcc\n" + "0.0 0.1 0.2 0.3 0.4 0.5\n" * 2 + "6 5 4 3 2 1\n"
FS = "a\nb\nc\n1 Fe\n6 0.1 6 1.0 5.0\n26 55.8 2.86 bcc\n" + "0.0 0.1 0.2 0.3 0.4 0.5\n" * 2 + "6 5 4 3 2 1\n"
FUNCFL = "Cu\n29 63.546 3.615 fcc\n6 0.1 6 1.0 5.0\n" + "0.0 0.1 0.2 0.3 0.4 0.5\n" * 3
_R = np.linspace(1.0, 5.0, 9)
TABLE = "# UNITS: metal\nAr-Ar\nN 9 R 1.0 5.0\n\n" + "".join(
    f"{k} {r:.3f} {r**-2:.6f} {2 * r**-3:.6f}\n" for k, r in enumerate(_R, 1)
)
SW = (
    "# UNITS: metal\nSi Si Si 2.1683 2.0951 1.80 21.0 1.20 -0.333333333333\n"
    "         7.049556277 0.6022245584 4.0 0.0 0.0\n"
)
TERSOFF = (
    "Si Si Si 3.0 1.0 1.7322 100390.0 16.217 -0.59825 0.78734\n"
    "         1.0999e-6 1.7322 471.18 2.85 0.15 2.4799 1830.8\n"
)
TOML = 'cutoff = 8.5\nshift = true\nmixing = "geometric"\n[species.Ar]\nepsilon = 0.0103\nsigma = 3.4\n'
TOML += "[pairs.Ar-Ar]\nepsilon = 0.01\nsigma = 3.4\n"
FILES = {
    "eam:a.eam.alloy": (SETFL, 29),
    "eam:a.eam.fs": (FS, 26),
    "eam:a.eam": (FUNCFL, 29),
    "table:a.table": (TABLE, 18),
    "sw:a.sw": (SW, 14),
    "tersoff:a.tersoff": (TERSOFF, 14),
    "lj:a.toml": (TOML, 18),
    "morse:a.toml": ("cutoff = 9\n[species.Cu]\nD = 0.34\nalpha = 1.36\nr0 = 2.87\n", 29),
    "dsf:a.toml": ("cutoff = 9\n[species.Cu]\ncharge = 1\n", 29),
}
VALID = [spec for spec in FILES if spec not in ("morse:a.toml", "dsf:a.toml")]


@pytest.mark.parametrize("spec", FILES)
@hostile
def test_a_hostile_file_of_a_potential_is_loaded_or_refused(spec, n_inputs, tmp_path):
    name, _, file = spec.partition(":")
    text, number = FILES[spec]
    feed_files(
        lambda path: load_model(f"{name}:{path}", (number,)), tmp_path / file, mutations(text.encode()), n_inputs
    )


@pytest.mark.parametrize("spec", VALID)
def test_the_files_that_are_mutated_are_valid(spec, tmp_path):
    name, _, file = spec.partition(":")
    text, number = FILES[spec]
    (tmp_path / file).write_text(text)
    assert load_model(f"{name}:{tmp_path / file}", (number,)).cutoff > 1


MODELS = [
    "lj", "lj:epsilon=0.0103,sigma=3.4,cutoff=8.5,shift=true", "emt", "sw", "sw:lambda=21", "tersoff",
    "tersoff:Si=Si(B)",
    "morse:D=0.34,alpha=1.36,r0=2.87,cutoff=9", "buck:A=1000,rho=0.3,C=20,cutoff=9", "yukawa:A=1,kappa=1,cutoff=9",
    "zbl", "zbl:inner=1,outer=2", "dsf:alpha=0.2,cutoff=10", "table:a.table,cutoff=4", "eam:a.eam", "lj + zbl",
    "user.py:model,a=1",
]  # fmt: skip


@pytest.mark.parametrize("number", [14, 18, 29])
@hostile
def test_a_hostile_model_string_is_loaded_or_refused(number, n_inputs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def read(spec: str) -> None:
        digests_of(with_absolute_paths(spec))
        load_model(spec, (number,))
        load_model(with_absolute_paths(spec), (number,))

    feed(read, texts(*MODELS), n_inputs)
    assert os.listdir(tmp_path) == []
    assert Path.cwd() == tmp_path
