"""Answers as JSON: what was asked for, or an error."""

import msgspec
from starlette.responses import Response

from quire.errors import QuireError

JSON = "application/json"


def json_answer(content: object, status: int = 200) -> Response:
    """What was asked for."""
    return Response(msgspec.json.encode(content), status, media_type=JSON)


def error_answer(error: QuireError, status: int | None = None) -> Response:
    """An error.

    Args:
        error: which.
        status: in place of its own one (``quire.errors.ERRORS``).
    """
    detail = {"code": error.code, "text": str(error), "advice": error.entry.advice, "data": error.data}
    content = msgspec.json.encode({"error": detail}, enc_hook=str)
    return Response(content, status or error.entry.http, media_type=JSON)
