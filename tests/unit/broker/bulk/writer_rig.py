"""A bulk writer of a broker that moves a step at a time: it stages, commits, and hears of what becomes durable."""

from collections.abc import Callable
from typing import Any

from quire.broker.bulk.row_reader import Columns, RowReader
from quire.broker.bulk.rows import Row
from quire.errors import QuireError
from quire.management.queues import Management
from quire.testing.stepped import SteppedBroker


def rows(stepped: SteppedBroker, values: list[bytes], destination: str | list[str] = "q", **columns: Any) -> list[Row]:
    given = Columns(destination=destination, value=values, **columns)
    return [
        row
        for step in RowReader(stepped.settings.stomp, stepped.broker.destinations, stepped.broker.routing, given).steps(
            3
        )
        for row in step
    ]


class BulkWriter:
    def __init__(self, stepped: SteppedBroker, producer: str = "p") -> None:
        self.stepped = stepped
        self.producer = producer  # its id

    def stage(self, *values: bytes) -> str:
        return self.stepped.broker.staged.stage(self.producer, rows(self.stepped, list(values)))

    def commit(self, sequence: int, *stages: str) -> int | None:
        return self.stepped.broker.staged.commit(self.producer, sequence, list(stages))

    def outcome(self) -> Callable[[], QuireError | str | None]:
        """What becomes of the open commit: None when it is durable, an error when it failed, ``waiting`` before."""
        told: list[QuireError | None] = []
        Management(self.stepped.broker).confirm(told.append)
        return lambda: told[0] if told else "waiting"

    def is_written(self) -> bool:
        told: list[bool] = []
        self.stepped.broker.staged.when_sent(self.producer, lambda: told.append(True))
        return bool(told)
