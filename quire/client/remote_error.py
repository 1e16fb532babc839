"""The broker's errors on the client's side: whichever front door told one, it is raised as the type it had there."""

from typing import Any

from quire.errors import QuireError


def remote_error(code: str, text: str, data: dict[str, Any]) -> QuireError:
    """The error for a code the broker sent.

    Args:
        code: the stable code.
        text: what went wrong, as the broker said it.
        data: what it went wrong with.

    Returns:
        An error of the type with that code; a plain ``QuireError`` for a code only a newer broker knows.
    """
    for error_class in error_classes():
        if error_class.code == code:
            return error_class(text, **data)
    return QuireError(f"{text} ({code})", **data)


def error_classes() -> list[type[QuireError]]:
    """Every type of error, a parent before its children."""
    found = [QuireError]
    for error_class in found:
        found += error_class.__subclasses__()
    return found
