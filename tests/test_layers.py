"""Every import points downwards, those inside functions too; who alone may name what; how long a file may grow."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mdrun"
MOST_LINES = 500
# From the ground up; a line may import its own and those above it in this list.
LAYERS = (
    "mdrun errors units clock exchanges launch cache digests npz",
    "cell philox noise state vectors lanes late lookup buffers compiler",
    "mailbox last_words comm",
    "decompose neighbors backends neighborhood domain",
    "graph nodes fixed_shapes context strategies verbs",
    "potentials",
    "scope",
    "integrate optimize",
    "structures",
    "run",
    "validate",
    "report",
    "cli __main__",
)
LAYER_OF = {name: level for level, names in enumerate(LAYERS) for name in names.split()}


def module_name(path: Path) -> str:
    """``run.job``; a package by its own name, the root as ``mdrun``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__") or "mdrun"


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Dotted names that the tree imports, ``a.b.c`` for ``from a.b import c`` too, and their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are written from the root"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def tree_of(module: str) -> ast.AST:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def own_imports(module: str) -> Iterator[tuple[str, int]]:
    """Modules of mdrun that a module imports."""
    for name, line in imports(tree_of(module)):
        if name.split(".")[0] == "mdrun":
            parts = name.split(".")[1:]
            known = [".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in MODULES]
            yield (known[0] if known else "mdrun"), line


def level(module: str) -> int:
    return LAYER_OF[module.split(".")[0]]


def test_every_module_has_its_layer():
    assert {module.split(".")[0] for module in MODULES} == set(LAYER_OF)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downwards(module):
    upwards = [f"line {line}: {name}" for name, line in own_imports(module) if level(name) > level(module)]
    assert upwards == []


def test_imports_make_no_circle():
    graphlib.TopologicalSorter({m: {name for name, _ in own_imports(m)} - {m} for m in MODULES}).prepare()


def names_used(module: str) -> set[str]:
    """Dotted names that the module's text imports or reaches through attributes; no docstrings."""
    tree = tree_of(module)
    attributes = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return attributes | {name for name, _ in imports(tree)}


@pytest.mark.parametrize(
    ("name", "places"), [("torch.distributed", {"comm"}), ("typer", {"cli"}), ("rich", {"cli", "report"})]
)
def test_who_alone_names_it(name, places):
    users = {m for m in MODULES if any(used == name or used.startswith(name + ".") for used in names_used(m))}
    assert {m for m in users if m.split(".")[0] not in places} == set()
    assert users


@pytest.mark.parametrize("module", MODULES)
def test_nothing_unpickles(module):
    assert not {name for name, _ in imports(tree_of(module))} & {"pickle", "cPickle", "dill", "cloudpickle"}


def test_no_file_outgrows_its_reader():
    files = [path for folder in ("mdrun", "tests", "scripts") for path in (ROOT / folder).rglob("*.py")]
    long = {str(p.relative_to(ROOT)): n for p in files if (n := p.read_text(encoding="utf-8").count("\n")) > MOST_LINES}
    assert long == {}


def test_imports_hidden_in_functions_are_seen():
    hidden = ast.parse("def f():\n    from mdrun.cli import app\n    import torch.distributed as d\n")
    assert dict(imports(hidden)) == {"mdrun.cli.app": 2, "torch.distributed": 3}
