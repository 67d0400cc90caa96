"""Numbers of a device that the host looks at a little later, when it need not wait for them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Late:
    """A few numbers on their way from a device: sent without waiting, read once the device has other work again.

    The same on a CPU, where there is nothing to wait for.
    """

    def __init__(self, device: torch.device) -> None:
        self._there = torch.cuda.Event() if device.type == "cuda" else None
        self._host: Tensor | None = None

    def send(self, numbers: Tensor) -> None:
        """Start copying ``numbers`` (any shape, the same each time); they may change afterwards."""
        if self._host is None:
            self._host = torch.empty_like(numbers, device="cpu", pin_memory=self._there is not None)
        self._host.copy_(numbers, non_blocking=True)
        if self._there is not None:
            self._there.record()

    def read(self) -> np.ndarray:
        """What was sent last. Waits for what the device had to do before that, and for nothing that came after."""
        assert self._host is not None
        if self._there is not None:
            self._there.synchronize()
        return self._host.numpy()
