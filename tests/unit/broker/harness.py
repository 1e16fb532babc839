"""What the tests of the broker's core share: settings with small limits, and short ways to common situations."""

from dataclasses import replace
from typing import Any

from quire.settings import Settings
from quire.testing.stepped import Frame, SteppedBroker, SteppedClient


def settings(**sections: dict[str, Any]) -> Settings:
    """The default settings with some changed: ``settings(queue={"prefetch": 1})``."""
    base = Settings()
    changed = {name: replace(getattr(base, name), **keys) for name, keys in sections.items()}
    return replace(base, **changed)


def filled(count: int, name: str = "q", **sections: dict[str, Any]) -> SteppedBroker:
    """A broker with messages ``0``, ``1``, ... in a queue, all stored."""
    stepped = SteppedBroker(settings(**sections))
    producer = stepped.connect()
    for number in range(count):
        producer.send(name, b"%d" % number)
    stepped.run()
    return stepped


def consumer(stepped: SteppedBroker, name: str = "q", ack: str = "client-individual", **headers: str) -> SteppedClient:
    """A client with one subscription; what it may be given at once has been dispatched to it.

    Args:
        stepped: the broker.
        name: the queue it consumes.
        ack: how it acknowledges.
        **headers: of its SUBSCRIBE frame, without their prefix: ``prefetchSize="1"``.
    """
    client = stepped.connect()
    client.subscribe(name, ack, headers={f"activemq.{name}": value for name, value in headers.items()})
    stepped.run()
    return client


def bodies(frames: list[Frame]) -> list[bytes]:
    """The bodies of frames."""
    return [frame.body for frame in frames]


def is_flagged(frame: Frame) -> bool:
    """Whether a message says that it may have been delivered before."""
    return frame.headers.get("redelivered") == "true"


def numbers(*values: int) -> list[bytes]:
    """Bodies as ``filled`` makes them."""
    return [b"%d" % value for value in values]
