"""mdrun: molecular dynamics from the shell, the same trajectory on any number of ranks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Resolved on first use: the command line must answer --help without importing torch.
_EXPORTS = {
    "DistributedContext": "mdrun.context",
    "NOT_DISTRIBUTED": "mdrun.context",
    "activate_dd_context": "mdrun.context",
    "current_dd_context": "mdrun.context",
    "refresh_neighbors": "mdrun.verbs",
    "scatter_to_owners": "mdrun.verbs",
    "sum_into_owners": "mdrun.verbs",
    "system_sum": "mdrun.verbs",
    "to_local": "mdrun.verbs",
}
__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'mdrun' has no attribute {name!r}")
