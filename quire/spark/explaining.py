"""Errors on their way through Spark, which shows their texts only."""

from collections.abc import Iterator
from contextlib import contextmanager

from quire.errors import QuireError


@contextmanager
def explaining() -> Iterator[None]:
    """Say with each error what to do, and its code, as the command line does."""
    try:
        yield
    except QuireError as error:
        raise type(error)(f"{error}. {error.entry.advice} [{error.code}]", **error.data) from error
