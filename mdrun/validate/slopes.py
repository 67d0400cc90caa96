"""Derivatives of a function that is noisy, and may step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

GOLDEN = (5**0.5 - 1) / 2
DOUBT = 4.0  # a step within reach changes a derivative by up to 3.3 times what it does to the doubt
FAR = 300.0  # times the largest width: where a function that seems constant is looked at again


@dataclass(frozen=True)
class Slope:
    """A derivative, and how far the differences that it was made from lay apart."""

    value: float
    doubt: float


def slope(
    function: Callable[[float], float], widths: Sequence[float], tolerance: float, expected: float | None = None
) -> Slope:
    """df/dx at 0, from central differences at several widths (L. F. Richardson, Phil. Trans. A 210 (1911) 307).

    At each width there are two differences, the narrower by the golden ratio. A function that steps by δ n times
    within a width adds n δ / 2 width to a difference, and no two whole numbers n are in that ratio: the two then
    disagree. Bends of the function show from one width to the next, of which few remain; one near 0 shows at the
    narrowest alone. A derivative is trusted where both agree; else a smaller width is tried, until rounding shows.

    Args:
        widths: to try, in this order, each much smaller than the one before.
        tolerance: of the derivative.
        expected: what it should be; where it is not, narrower widths have the last word.

    Returns:
        The first whose doubt is below a quarter of the tolerance and that is as expected, else the narrowest of small
        doubt, else the least doubtful.
    """
    best, before = Slope(float("nan"), float("inf")), None
    for width in widths:
        right, left, right_near, left_near = (function(x * width) for x in (1, -1, GOLDEN, -GOLDEN))
        if right == left == right_near == left_near and function(FAR * widths[0]) != right:
            break  # it moves, but here by less than its last digit tells: no slope, and none at smaller widths
        wide, narrow = (right - left) / (2 * width), (right_near - left_near) / (2 * GOLDEN * width)
        value = (narrow - GOLDEN**2 * wide) / (1 - GOLDEN**2)
        if before is not None:
            found = Slope(value, max(abs(wide - narrow), abs(value - before)))
            if is_trusted(found, tolerance) or (found.doubt < best.doubt and not is_trusted(best, tolerance)):
                best = found
            if is_trusted(found, tolerance) and (expected is None or abs(value - expected) <= tolerance):
                break
        before = value
    return best


def is_trusted(found: Slope, tolerance: float) -> bool:
    """Whether the derivative is good to the tolerance, steps or not."""
    return found.doubt * DOUBT <= tolerance
