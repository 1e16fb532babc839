"""What the log says when the next message of some lanes cannot be read."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from quire.errors import StoreError
from quire.logs import event


class DamageReport(NamedTuple):
    """An event of the log.

    Attributes:
        name: the event's.
        where: whose lanes they are.
        facts: the same, for programs.
    """

    name: str
    where: str
    facts: Mapping[str, object]

    def log(self, fault: StoreError) -> None:
        """Write it."""
        event(self.name, f"{self.where}: {fault} {fault.entry.advice}", logging.ERROR, **self.facts, **fault.data)
