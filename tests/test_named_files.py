"""Which words of a model's text are files, and that what counts of them is what is in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mdrun.potentials.catalogue import IN_PACKAGES
from mdrun.potentials.named_files import FILE, FILE_OR_NAME, NO_FILE, by_content, digests_of, with_absolute_paths
from mdrun.potentials.registry import LOADERS

NAMES = ["a.toml", "a.eam", "b.eam", "a.table", "a.py", "w.pt", "Si.sw", "a.model", "plain"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        Path(name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "files"),
    [
        ("lj", []),
        ("lj:epsilon=0.01,sigma=3.4", []),
        ("lj:a.toml", ["a.toml"]),
        ("morse:a.toml,cutoff=8.5", ["a.toml"]),
        ("buck:a.toml", ["a.toml"]),
        ("yukawa:a.toml", ["a.toml"]),
        ("table:a.table,cutoff=4", ["a.table"]),
        ("eam:a.eam", ["a.eam"]),
        ("eam: a.eam", ["a.eam"]),
        ("sw:lambda=21", []),
        ("sw:Si.sw,Si=Si(B)", ["Si.sw"]),
        ("tersoff", []),
        ("metatomic:a.model", ["a.model"]),
        ("mace:a.model,head=plain", ["a.model"]),
        ("sevennet:7net-MF-0,modal=PBE", []),
        ("sevennet:a.model", ["a.model"]),
        ("chgnet", []),
        ("emt", []),
        ("ase:a.eam:C,x=plain", []),  # a module and a class
        ("ase:m:C,toml=a.toml,x=1.5,weights=w.pt", ["a.toml", "w.pt"]),
        ("a.py:make", ["a.py"]),
        ("a.py:make,weights=w.pt,x=1.5,kind=plain", ["a.py", "w.pt"]),
        ("registered:a.model,weights=w.pt", ["a.model", "w.pt"]),
        ("registered:large", []),
        ("lj:a.toml + eam:a.eam + a.py:make,w = w.pt", ["a.toml", "a.eam", "a.py", "w.pt"]),
    ],
)
def test_files_are_found_and_the_rest_stays_as_it_is(spec, files, folder):
    kept = with_absolute_paths(spec)
    digests = digests_of(kept)
    assert list(digests) == [str(folder / name) for name in files]
    assert digests == digests_of(kept)
    back = kept
    for file in sorted(digests, key=len, reverse=True):
        back = back.replace(file, Path(file).name)
    assert back == spec
    same = by_content(kept, digests)
    for name in files:
        Path(name).write_text("other")
        assert by_content(kept, digests_of(kept)) != same
        Path(name).write_text(name)
    assert by_content(kept, digests_of(kept)) == same


def test_the_same_content_elsewhere_is_the_same_model(folder):
    (folder / "moved").mkdir()
    for name in NAMES:
        (folder / "moved" / name).write_text(name)
    for spec in ("eam:{}a.eam + lj:{}a.toml", "{}a.py:make,weights={}w.pt", "mace:{}a.model", "ase:m:C,toml={}a.toml"):
        here, there = with_absolute_paths(spec.format("", "")), with_absolute_paths(spec.format("moved/", "moved/"))
        digests = digests_of(here)
        for name in NAMES:
            Path(name).rename(folder / f"{name}.gone")
        assert here != there
        assert by_content(here, digests) == by_content(there, digests_of(there))
        for name in NAMES:
            (folder / f"{name}.gone").rename(folder / name)


def test_the_same_files_in_other_terms_are_another_model():
    one, other = "eam:a.eam + table:b.eam", "eam:b.eam + table:a.eam"
    assert by_content(one, digests_of(one)) != by_content(other, digests_of(other))


def test_every_built_in_model_says_what_stands_behind_its_colon():
    assert FILE | FILE_OR_NAME | NO_FILE | {"ase"} == set(LOADERS)
    assert frozenset(IN_PACKAGES) == FILE_OR_NAME


@pytest.mark.parametrize(
    "spec", ["eam:", "eam:no.eam", "lj:.", "a.py:make,x=/dev/null", "mace:" + "x" * 5000, "a:b:c/"]
)
def test_what_is_no_file_has_no_digest(spec):
    assert not set(digests_of(with_absolute_paths(spec))) - {str(Path("a.py").resolve())}
