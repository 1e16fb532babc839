"""What the tests of the broker's core share: settings with small limits, and short ways to common situations."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from quire.broker.dead_letter import CAUSE, ORIGIN
from quire.errors import StoreCorrupt
from quire.message import Message, header_lines
from quire.sessions.session import LocalSession
from quire.settings import Policies, Policy, Settings
from quire.settings.policy import read_composites, read_policies
from quire.store.memory import MemoryStore
from quire.testing.stepped import Frame, SteppedBroker, SteppedClient

AT_ONCE = {"initial_redelivery_delay": 0.0, "redelivery_delay": 0.0}


def settings(
    policy: dict[str, Any] | None = None,
    policies: Sequence[dict[str, Any]] = (),
    composites: Sequence[dict[str, Any]] = (),
    **sections: dict[str, Any],
) -> Settings:
    """The default settings with some changed. What comes back comes back at once, unless a test says otherwise.

    Args:
        policy: keys of ``[policy]``: ``{"maximum_redeliveries": 2}``.
        policies: entries of ``[[policies]]``: ``[{"destination": "a.>", "maximum_redeliveries": 2}]``.
        composites: entries of ``[[composites]]``.
        **sections: keys of other sections: ``memory={"limit": 1000}``.
    """
    base = Settings()
    changed = {name: replace(getattr(base, name), **keys) for name, keys in sections.items()}
    entries = read_policies(list(policies), "test")
    return replace(
        base,
        policies=Policies(replace(Policy(), **{**AT_ONCE, **(policy or {})}), entries),
        composites=read_composites(list(composites), "test"),
        **changed,
    )


def filled(count: int, name: str = "q", **changes: Any) -> SteppedBroker:
    """A broker with messages ``0``, ``1``, ... in a queue, all stored."""
    stepped = SteppedBroker(settings(**changes))
    producer = stepped.connect()
    for number in range(count):
        producer.send(name, b"%d" % number)
    stepped.run()
    return stepped


def consumer(stepped: SteppedBroker, name: str = "q", ack: str = "client-individual", **headers: str) -> SteppedClient:
    """A client with one subscription; what it may be given at once has been dispatched to it."""
    client = stepped.connect()
    client.subscribe(name, ack, headers={f"activemq.{name}": value for name, value in headers.items()})
    stepped.run()
    return client


def drain(stepped: SteppedBroker, receiver: SteppedClient, after_each: float = 0.0) -> list[bytes]:
    """Take and acknowledge messages until none comes any more."""
    got = []
    while messages := receiver.take("MESSAGE"):
        got += bodies(messages)
        for message in messages:
            receiver.ack(message)
        stepped.advance(after_each)
        stepped.run()
    return got


def bodies(frames: list[Frame]) -> list[bytes]:
    return [frame.body for frame in frames]


def is_flagged(frame: Frame) -> bool:
    return frame.headers.get("redelivered") == "true"


def numbers(*values: int) -> list[bytes]:
    return [b"%d" % value for value in values]


class DamagedStore(MemoryStore):
    """An open store in memory in which one record can be damaged: it cannot be loaded any more."""

    def __init__(self, damaged: int = 0) -> None:
        super().__init__()
        self.damaged = damaged  # its sequence; 0 for none
        self.open()

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        if self.damaged in sequences:
            raise StoreCorrupt("the record is damaged", lane=lane, sequence=self.damaged)
        return super().load(lane, sequences)


def letter(
    stepped: SteppedBroker, origin: str, queue: str = "ActiveMQ.DLQ", body: bytes = b"m", **headers: str
) -> None:
    """Put a dead letter into a queue, as the broker writes it."""
    core = stepped.broker.core
    lines = header_lines({ORIGIN: origin, CAUSE: "x", **headers})
    stepped.queue(queue).send(core.id_prefix + b"%d\ntimestamp:1\n%b\n%b" % (core.next_message_id(), lines, body))
    stepped.run()


def core_session(client: SteppedClient) -> LocalSession:
    session = client.session.session
    assert isinstance(session, LocalSession)
    return session
