"""``torch.compile`` where it works, the plain function where it does not; which, is known before a run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

F = TypeVar("F", bound=Callable)

MOST_VARIANTS = 64  # of one kernel, told apart by formula, precision, shapes and what is asked of it


@cache
def why_eager(device_type: str) -> str | None:
    """None where torch compiles for the device; else, in a line, what it says it lacks."""
    try:
        torch.compile(lambda x: x + 1, dynamic=True)(torch.zeros(4, device=device_type))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return None


def compiled(function: F, device: torch.device) -> F:
    """The function as one or few kernels for tensors of any shape on a device."""
    if why_eager(device.type) is not None:
        return function
    torch._dynamo.config.recompile_limit = MOST_VARIANTS
    return torch.compile(function, dynamic=True, fullgraph=True)  # type: ignore[return-value]


def compiled_for_each_shape(function: F, backend: str) -> F:
    """The function, compiled anew for each shape that its tensors have; in several parts where it breaks off."""
    torch._dynamo.config.recompile_limit = MOST_VARIANTS
    return torch.compile(function, dynamic=False, backend=backend)  # type: ignore[return-value]


def never_compiled(function: F) -> F:
    """The function, at which compiled code breaks off: neither it nor what it calls is compiled.

    It gets torch's own mark once torch's compiler is there, which takes a second and a half to load.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        plain = torch.compiler.disable(function) if "torch._dynamo" in sys.modules else function
        return plain(*args, **kwargs)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def of_fixed_shape(tensor: Tensor) -> Tensor:
    """The tensor itself; a kernel is compiled for its shape, and takes it for no other's that happens to be alike."""
    torch._dynamo.mark_static(tensor)
    return tensor
