"""Which of Spark's filters the source can apply itself, and how."""

from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from quire.arrow.lanes import Comparison, Condition

_COMPARISONS: dict[type[Filter], Comparison] = {
    EqualTo: Comparison.AMONG,
    In: Comparison.AMONG,
    LessThan: Comparison.BELOW,
    LessThanOrEqual: Comparison.UP_TO,
    GreaterThan: Comparison.ABOVE,
    GreaterThanOrEqual: Comparison.FROM,
}

PUSHED: dict[str, type] = {
    "destination": str,
    "partition": int,
    "offset": int,
    "message_id": str,
    "timestamp": datetime,
    "priority": int,
}
"""The columns whose filters the source applies, and what they are compared with."""


def condition_of(given: Filter) -> Condition | None:
    """The condition that does exactly what a filter does; None if there is none: then Spark has to apply it."""
    comparison = _COMPARISONS.get(type(given))
    if comparison is None:
        return None
    column, value = given.attribute, given.value  # type: ignore[attr-defined]  # all of these have both
    if len(column) != 1 or column[0] not in PUSHED:
        return None
    values = tuple(value) if isinstance(given, In) else (value,)
    values = tuple([one for one in values if one is not None])  # nothing equals null
    if not values or not all([_is_comparable(column[0], one) for one in values]):
        return None
    return Condition(column[0], comparison, values)


def _is_comparable(column: str, value: Any) -> bool:
    if isinstance(value, datetime) and value.tzinfo is None:
        return False
    return isinstance(value, PUSHED[column]) and not isinstance(value, bool)
