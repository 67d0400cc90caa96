"""``mdrun models``: what --model takes, and what each needs."""

from __future__ import annotations


def models() -> None:
    """List the models: which are installed, species, cutoff (Å), layers, how ranks share them, licence."""
    from mdrun.report.models import show_models

    show_models()
