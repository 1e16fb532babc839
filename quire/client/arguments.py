"""Arguments of public calls: what is wrong is refused where it was given, and the error says what to give."""

from datetime import timedelta
from inspect import iscoroutinefunction
from math import inf, isnan

from quire.errors import InvalidArgument

LONGEST = 1e12
"""The longest time in seconds: in milliseconds since 1970 it still fits into a long of Java."""


def refused(argument: str, value: object, give: str) -> InvalidArgument:
    return InvalidArgument(
        f"{argument} is {str(value)[:100]!r} ({type(value).__name__}): give {give}", argument=argument
    )


def check_text(argument: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise refused(argument, value, "a text")


def check_plain_function(argument: str, value: object, give: str) -> None:
    """See that it can be called, and is no coroutine function, whose work would never be done."""
    if not callable(value) or iscoroutinefunction(value):
        raise refused(argument, value, give)


def check_flag(argument: str, value: object) -> None:
    if not isinstance(value, bool):
        raise refused(argument, value, "True or False")


def check_whole(argument: str, value: object, least: int, most: int | None = None) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        raise refused(argument, value, f"a whole number of {least} or more" if most is None else f"{least} to {most}")


def seconds(argument: str, value: object) -> float:
    """A time in seconds, from a number or a timedelta; not negative, and not beyond ``LONGEST``."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if not isinstance(number, int | float) or isinstance(number, bool) or not 0 <= number <= LONGEST:
        raise refused(argument, value, "seconds or a timedelta, 0 or more")
    return number


def seconds_to_wait(argument: str, value: object) -> float | None:
    """A limit of time in seconds, from a number or a timedelta; None for none. One that is over already is 0."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if number is None or number == inf:
        return None
    if not isinstance(number, int | float) or isinstance(number, bool) or isnan(number):
        raise refused(argument, value, "seconds or a timedelta, or None for no limit")
    return min(max(number, 0.0), LONGEST)
