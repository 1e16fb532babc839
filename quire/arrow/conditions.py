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


_OPERATORS: dict[Comparison, tuple[Callable[[Any, Any], bool], Callable[[pa.Array, pa.Scalar], pa.Array]]] = {
    Comparison.BELOW: (operator.lt, pc.less),
    Comparison.UP_TO: (operator.le, pc.less_equal),
    Comparison.ABOVE: (operator.gt, pc.greater),
    Comparison.FROM: (operator.ge, pc.greater_equal),
}
"""How a value is compared, and a column."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column that is never null: any number of values with ``AMONG``, otherwise one."""

    column: str
    comparison: Comparison
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        if self.comparison is Comparison.AMONG:
            return value in self.values
        return _OPERATORS[self.comparison][0](value, self.values[0])

    def mask(self, column: pa.Array) -> pa.Array:
        kind = COLUMNS[self.column]
        if self.comparison is Comparison.AMONG:
            return pc.is_in(column, value_set=pa.array(self.values, kind))
        return _OPERATORS[self.comparison][1](column, pa.scalar(self.values[0], kind))
