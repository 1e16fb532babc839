"""What becomes of a query when messages are gone that it was to read."""

import logging

from quire.errors import DataLost, StreamReplaced
from quire.logs import event


class Losses:
    """Ends the query if losses are fatal (``failOnDataLoss``), else warns of each loss once and lets it go on."""

    def __init__(self, *, is_fatal: bool) -> None:
        self._is_fatal = is_fatal
        self._told: set[str] = set()

    def found(self, text: str) -> None:
        """Something is gone."""
        if self._is_fatal:
            advice = "Set failOnDataLoss=false to continue without them; a longer pinTtl keeps them for a stopped query"
            raise DataLost(f"{text}. {advice}")
        self._tell(f"{text}; the query continues without them")

    def replaced(self, text: str) -> None:
        """A stream is not the one that the query has read."""
        if self._is_fatal:
            raise StreamReplaced(text)
        self._tell(f"{text}; the query continues at the beginning of the present stream")

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            event("spark.data_lost", text, logging.WARNING)
