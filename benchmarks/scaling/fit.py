"""Derives the cost of each kind of work from measurements of several kinds at once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.scaling.costs import Work


class Fit(NamedTuple):
    """What was derived.

    Attributes:
        costs: of one unit of each kind of work.
        error: how far measurements are from what the costs make of them, at the most, as a share.
    """

    costs: Work
    error: float


def fit(
    amounts: Sequence[Work], totals: Sequence[float], kinds: Sequence[str], known: Sequence[float] | None = None
) -> Fit:
    """What one unit of each kind of work costs, so that the costs come as close as possible to the measured totals.

    Every measurement counts alike, however large it is: what is minimized is the sum of the squares of the relative
    errors. No cost is negative: a kind that would be is left out.

    Args:
        amounts: the work of each measurement.
        totals: what each of them took.
        kinds: the fields of ``Work`` that may cost anything.
        known: the parts of the totals whose cause is known, and is no cost of these.
    """
    rest = 1 - np.array(known or [0.0] * len(totals)) / totals
    left = list(kinds)
    found = Work()
    while left:
        shares = np.array([[getattr(amount, kind) for kind in left] for amount in amounts]) / np.array(totals)[:, None]
        units = np.linalg.norm(shares, axis=0)  # messages and bytes are of very different sizes
        costs = np.linalg.lstsq(shares / units, rest, rcond=None)[0]
        if costs.min() >= 0:
            found = Work(**dict(zip(left, map(float, costs / units), strict=True)))
            break
        left.pop(int(costs.argmin()))
    errors = [found.cost(amount) / total - part for amount, total, part in zip(amounts, totals, rest, strict=True)]
    return Fit(found, float(max(map(abs, errors))))
