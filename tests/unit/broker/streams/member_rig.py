"""A stream ``s``, a producer and members of its groups, on a broker that moves a step at a time."""

from typing import Any

from quire.broker.broker import Broker
from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.retries import RetryQueue
from quire.broker.streams.stream import Stream
from quire.errors import BrokerStopping
from quire.store.base import Store
from quire.testing.stepped import Frame, SteppedBroker, SteppedClient
from tests.unit.broker.harness import settings

STEP = 0.1
"""In steps of so many seconds time goes by."""


class StreamRig:
    """A broker with the stream.

    Args:
        store: as for ``SteppedBroker``.
        stepped: a broker that has it already; None for a new one.
        **policy: keys of the policy. A new stream has one partition, unless they say otherwise.
    """

    def __init__(self, store: Store | None = None, stepped: SteppedBroker | None = None, **policy: Any) -> None:
        if store is not None:
            store.open()
        self.stepped = stepped or SteppedBroker(settings(policy={"partitions": 1, **policy}), store)
        self.producer = self.stepped.connect()  # who sends
        self.stream  # noqa: B018 (made on first use)
        self.run()

    # Over a restart.

    def crashed(self) -> "StreamRig":
        return StreamRig(stepped=self.stepped.reopen())

    def restarted(self) -> "StreamRig":
        self.stepped.stop(BrokerStopping("the broker stops"))
        return StreamRig(stepped=self.stepped.reopen())

    # What is there.

    @property
    def broker(self) -> Broker:
        return self.stepped.broker

    @property
    def stream(self) -> Stream:
        return self.broker.stream("s")

    def group(self, name: str = "g") -> Group:
        return self.stream.groups[name]

    @property
    def retries(self) -> RetryQueue:
        retries = self.group().retries
        assert retries is not None
        return retries

    @property
    def lag(self) -> int:
        """What the group ``g`` has not finished; everybody who counts agrees."""
        group = self.group()
        for part in group.partitions:
            assert part.depth == part.lag, (part.depth, part.lag)
        return group.lag

    @property
    def owners(self) -> list[tuple[str, ...]]:
        return [self.group().coordinator.owners(part.partition.index) for part in self.group().partitions]

    # What happens.

    def run(self) -> None:
        self.stepped.run()

    def send(self, *bodies: str, **headers: str) -> None:
        for body in bodies:
            self.post(body, **headers)
        self.run()

    def post(self, body: str, destination: str = "/stream/s", **headers: str) -> None:
        self.producer.frame("SEND", {"destination": destination, **dashed(headers)}, body.encode())

    def member(self, name: str | None = None, group: str = "g", **headers: str) -> "Member":
        """A member of a group that begins at the first message; what it may be given at once has come."""
        named = {} if name is None else {"member": name}
        return Member(self, {"group": group, "start": "earliest", **named, **dashed(headers)})

    def reader(self, **headers: str) -> "Member":
        return Member(self, dashed(headers))

    def pass_time(self, seconds: float) -> None:
        """Let time go by in small steps, and everything happen that is due."""
        for _ in range(round(seconds / STEP)):
            self.stepped.advance(STEP)
            self.run()
        self.stepped.advance(1e-6)  # sums of tenths are not exact
        self.run()


class Member:
    def __init__(self, rig: StreamRig, headers: dict[str, str], version: str = "1.2") -> None:
        self._rig = rig
        self.client: SteppedClient = rig.stepped.connect(version)  # its connection
        self.told: list[Frame] = []  # the events that it was told of and nobody looked at
        head = {"destination": "/stream/s", "id": "0", "ack": "client-individual", **headers}
        self.client.frame("SUBSCRIBE", head)
        rig.run()

    def take(self) -> list[Frame]:
        frames = self.client.take("MESSAGE")
        self.told += [frame for frame in frames if "event" in frame.headers]
        return [frame for frame in frames if "event" not in frame.headers]

    def bodies(self) -> list[str]:
        return [frame.body.decode() for frame in self.take()]

    def events(self) -> list[str]:
        self.told += [frame for frame in self.client.take("MESSAGE") if "event" in frame.headers]
        told, self.told = self.told, []
        return [f"{frame.headers['event']} {frame.headers['partition']}" for frame in told]

    def ack(self, *messages: Frame, **headers: str) -> None:
        for message in messages:
            self.client.ack(message, dashed(headers))
        self._rig.run()

    def nack(self, *messages: Frame, **headers: str) -> None:
        for message in messages:
            self.client.nack(message, dashed(headers))
        self._rig.run()

    def vanish(self) -> None:
        self.client.vanish()
        self._rig.run()

    def disconnect(self) -> None:
        self.client.frame("DISCONNECT")
        self._rig.run()

    def unsubscribe(self) -> None:
        self.client.frame("UNSUBSCRIBE", {"id": "0"})
        self._rig.run()

    def errors(self) -> list[str]:
        return [frame.body.decode() for frame in self.client.take("ERROR")]


def dashed(headers: dict[str, str]) -> dict[str, str]:
    """Headers that were written as arguments; those of other products have underscores."""
    return {name.replace("_", "-") if name.islower() else name: value for name, value in headers.items()}


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


def places(messages: list[Frame]) -> list[str]:
    """Where messages are in the stream, flagged ones with an exclamation mark: ``7.0!``."""
    return [
        f"{m.headers['offset']}.{m.headers['partition']}" + "!" * (m.headers.get("redelivered") == "true")
        for m in messages
    ]


def by_offset(messages: list[Frame]) -> dict[int, Frame]:
    found = {int(message.headers["offset"]): message for message in messages}
    assert len(found) == len(messages)
    return found


def delivered(name: str | None = None, **headers: str) -> tuple[StreamRig, Member]:
    rig = StreamRig()
    member = rig.member(name, **headers)
    rig.send(*numbers(1, 4))
    return rig, member


def failures(rig: StreamRig) -> dict[int, int]:
    (child,) = rig.group().partitions[0].subscriptions
    return {message.sequence: message.failures for message in child.in_flight.values()}
