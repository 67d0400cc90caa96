"""What the user asked ``validate`` to check: the options of ``simulate``, from the same flags and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mdrun.run.settings import Settings


@dataclass(frozen=True)
class ValidateSettings(Settings):
    """Those of a run. How long it is and what it writes, which a configuration may say, means nothing here."""

    command: ClassVar[str] = "validate"
    flags_alone: ClassVar[tuple[str, ...]] = ("checks", "samples", "short_steps", "long_steps")
