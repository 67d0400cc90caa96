"""What is computed in which precision, and the same arithmetic in single precision."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Precision:
    """Of a force model on a CPU; positions, momenta and what the ranks add up stay in float64 always.

    Attributes:
        terms: what each pair or triplet is computed in. In float32, from coordinates relative to the middle of the
            rank's atoms.
        sums: what an atom's force and energy are summed in. Where pairs are computed in whole vectors, the few terms
            that meet in one lane are added as terms first.
    """

    name: str
    terms: type
    sums: type


PRECISIONS = {
    p.name: p
    for p in (
        Precision("double", np.float64, np.float64),
        Precision("mixed", np.float32, np.float64),
        Precision("single", np.float32, np.float32),
    )
}
DOUBLE = PRECISIONS["double"]


def in_single(function: Callable) -> Callable:
    """A copy of a plain function whose float literals, and the float constants of its module, are float32.

    Python's literals are doubles and would drag a whole loop along; now Numba keeps float32 arguments in float32.
    What the function calls is left as it is.

    Raises:
        TypeError: the function has a closure, which a copy would lose.
    """
    if function.__closure__:
        raise TypeError(f"{function.__qualname__} has a closure; single precision needs a plain function")
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    namespace: dict[str, Any] = {
        name: np.float32(value) if type(value) is float else value for name, value in function.__globals__.items()
    }
    literals = _Literals()
    tree = ast.increment_lineno(
        ast.fix_missing_locations(literals.visit(tree)), inspect.getsourcelines(function)[1] - 1
    )
    namespace |= literals.values
    # Under the name of its file, where Numba looks for a place to keep what it compiles.
    exec(compile(tree, inspect.getsourcefile(function) or "<single>", "exec"), namespace)
    return namespace[definition.name]


class _Literals(ast.NodeTransformer):
    """Names in place of float literals."""

    def __init__(self) -> None:
        self.values: dict[str, np.float32] = {}

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if type(node.value) is not float:
            return node
        name = f"_single_{len(self.values)}"
        self.values[name] = np.float32(node.value)
        return ast.copy_location(ast.Name(name, ast.Load()), node)
