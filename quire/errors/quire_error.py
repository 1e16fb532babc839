"""The root of Quire's errors."""

from typing import Any, ClassVar

from quire.errors.error_table import ERRORS, ErrorEntry


class QuireError(Exception):
    """The root of Quire's errors."""

    code: ClassVar[str] = "internal-error"  # the stable code, a key of ``ERRORS``

    def __init__(self, text: str, **data: Any) -> None:
        super().__init__(text)
        self.data = data  # the keyword arguments

    @property
    def entry(self) -> ErrorEntry:
        """Its row of the table."""
        return ERRORS[self.code]
