"""An error on its way from one process to another."""

from typing import Any, Self

import msgspec

from quire.errors import QuireError


class Failure(msgspec.Struct, frozen=True):
    """An error (``quire.errors``); ``quire.client.remote`` makes one of it again."""

    code: str
    text: str
    data: dict[str, Any]

    @classmethod
    def of(cls, error: QuireError) -> Self:
        return cls(error.code, str(error), msgspec.to_builtins(error.data, enc_hook=str))
