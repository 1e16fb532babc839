"""What becomes of a query when messages are gone that it was to read."""

import logging

from quire.errors import DataLost
from quire.logs import event


class Losses:
    """Ends the query, or warns of each loss once and lets it go on.

    Args:
        is_fatal: which of the two (``failOnDataLoss``).
    """

    def __init__(self, *, is_fatal: bool) -> None:
        self._is_fatal = is_fatal
        self._told: set[str] = set()

    def found(self, text: str) -> None:
        """Something is gone.

        Args:
            text: what.

        Raises:
            DataLost: that ends the query.
        """
        if self._is_fatal:
            advice = "Set failOnDataLoss=false to go on without them; a longer pinTtl keeps them while a query is away"
            raise DataLost(f"{text}. {advice}")
        if text not in self._told:
            self._told.add(text)
            event("spark.data_lost", f"{text}; the query goes on without them", logging.WARNING)
