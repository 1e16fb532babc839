"""Conditions on columns: what need not be read, or need not be handed on."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.arrow.columns import COLUMNS


class Comparison(StrEnum):
    """How a column is compared."""

    AMONG = "in"
    BELOW = "<"
    UP_TO = "<="
    ABOVE = ">"
    FROM = ">="


_PLAIN: dict[Comparison, Callable[[Any, Any], bool]] = {
    Comparison.BELOW: operator.lt,
    Comparison.UP_TO: operator.le,
    Comparison.ABOVE: operator.gt,
    Comparison.FROM: operator.ge,
}
_KERNELS: dict[Comparison, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    Comparison.BELOW: pc.less,
    Comparison.UP_TO: pc.less_equal,
    Comparison.ABOVE: pc.greater,
    Comparison.FROM: pc.greater_equal,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column that is never null: any number of values with ``AMONG``, otherwise one."""

    column: str
    comparison: Comparison
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Whether it holds for a value."""
        if self.comparison is Comparison.AMONG:
            return value in self.values
        return _PLAIN[self.comparison](value, self.values[0])

    def mask(self, column: pa.Array) -> pa.Array:
        """Where it holds in a column."""
        kind = COLUMNS[self.column]
        if self.comparison is Comparison.AMONG:
            return pc.is_in(column, value_set=pa.array(self.values, kind))
        return _KERNELS[self.comparison](column, pa.scalar(self.values[0], kind))
