"""A stepped broker with its schedule, and short ways to schedule messages on it."""

from typing import Any

import pytest

from quire.broker.schedule import Schedule, ScheduledSend
from quire.testing.stepped import Frame, SteppedBroker
from tests.unit.broker.harness import consumer


class Rig:
    def __init__(self, stepped: SteppedBroker | None = None) -> None:
        self.stepped = stepped or SteppedBroker()
        self.schedule: Schedule = self.stepped.broker.schedule

    def later(
        self, body: bytes = b"m", destination: str = "/queue/q", send: dict[str, Any] | None = None, **timing: Any
    ) -> None:
        """Schedule a message, without a turn."""
        number = self.stepped.broker.core.next_message_id()
        content = b"message-id:ID\\c%d\ntimestamp:%d\ncolour:red\n\n%b" % (number, self.now, body)
        ScheduledSend(self.schedule, destination, **timing).send(content, **(send or {}))

    def stored(self, body: bytes = b"m", **timing: Any) -> str:
        """Schedule a message, and have it stored; its id in the schedule."""
        self.later(body, **timing)
        self.stepped.run()
        return self.schedule.browse().messages[-1].id

    @property
    def now(self) -> int:
        return self.stepped.clock.now_ms()

    def passes(self, seconds: float) -> None:
        for _ in range(round(seconds * 4)):
            self.stepped.advance(0.25)
            self.stepped.run()

    def depth(self, name: str = "q") -> int:
        queue = self.stepped.broker.queues.get(name)
        return queue.depth if queue else 0

    def received(self, name: str = "q") -> list[Frame]:
        """What is in a queue; it is taken out."""
        client = consumer(self.stepped, name, ack="auto")
        frames = client.take("MESSAGE")
        client.vanish()
        self.stepped.run()
        return frames

    def crash(self) -> "Rig":
        return Rig(self.stepped.reopen())


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    found: list[str] = [record.event for record in caplog.records]  # type: ignore[attr-defined]
    return [event for event in found if event.startswith("schedule.")]
