"""All STOMP clients of a soak: queues, transactions, selectors, groups, streams; what they know, and what measures."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from random import Random

from benchmarks.takeover.load import Probe
from tests.acceptance.crash.load import (
    NO_HEADERS,
    Clients,
    Consumer,
    Flow,
    Forwarder,
    Frame,
    Key,
    Ledger,
    Order,
    Peer,
    Place,
    Producer,
)  # fmt: skip


class GroupLog:
    """Follows the groups of one queue.

    Messages of a group have ascending numbers. A holder is one connection of a consumer.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []  # promises that were broken, for people
        self._last: dict[str, int] = {}
        self._open: defaultdict[str, dict[int, object]] = defaultdict(dict)  # not acknowledged: who has it

    def deliver(self, group: str, number: int, holder: object, is_redelivered: bool) -> None:
        held = self._open[group]
        if not is_redelivered:
            if number <= self._last.get(group, 0):
                self.violations.append(f"{group} {number} came out of order, after {self._last[group]}")
            others = [each for each, who in held.items() if each < number and who is not holder]
            if others:
                self.violations.append(f"{group} {number} came to a second consumer while a first one has {others[:5]}")
            self._last[group] = max(number, self._last.get(group, 0))
        held[number] = holder

    def lost(self, holder: object) -> None:
        """The connection of a holder is gone: what it had may have gone to another one before it knew."""
        for held in self._open.values():
            for number in [number for number, who in held.items() if who is holder]:
                del held[number]

    def acknowledge(self, group: str, number: int) -> None:
        """The holder sends an acknowledgement: from now on the group may go to another consumer."""
        self._open[group].pop(number, None)


class StreamLog:
    def __init__(self, name: str) -> None:
        self.violations: list[str] = []  # promises that were broken, for people
        self.keys: dict[tuple[int, int], Key] = {}  # what was received, by partition and offset
        self._name = name  # of the stream and the group, for people
        self._last: defaultdict[int, int] = defaultdict(int)
        self._bases: defaultdict[int, int] = defaultdict(int)

    def deliver(self, partition: int, offset: int, key: Key, is_redelivered: bool) -> None:
        known = self.keys.setdefault((partition, offset), key)
        if known != key:
            self.violations.append(f"{self._name}: offset {offset} of {partition} had {known}, and has {key}")
        if not is_redelivered:
            if offset <= self._last[partition]:
                found = f"offset {offset} of {partition} came out of order, after {self._last[partition]}"
                self.violations.append(f"{self._name}: {found}")
            self._last[partition] = max(offset, self._last[partition])

    def progress(self, partition: int, base: int) -> None:
        """The broker says up to which offset the group has finished a partition."""
        if base < self._bases[partition]:
            found = f"progress of {partition} went back from {self._bases[partition]} to {base}"
            self.violations.append(f"{self._name}: {found}")
        self._bases[partition] = base

    def compare(self, stored: dict[tuple[int, int], Key]) -> None:
        """All that is stored must have come, and nothing else."""
        for place in sorted(stored.keys() - self.keys.keys()):
            self.violations.append(f"{self._name}: a gap, {place} did not come: {stored[place]}")
        for place in sorted(self.keys.keys() - stored.keys()):
            self.violations.append(f"{self._name}: {place} came and is not stored: {self.keys[place]}")
        last: dict[tuple[str, int], tuple[int, int]] = {}
        for (partition, offset), key in sorted(stored.items()):
            before = last.get((key.producer, partition), (0, 0))
            if (key.attempt, key.number) <= before:
                self.violations.append(f"{self._name}: {key} is stored out of order, at {offset} of {partition}")
            last[key.producer, partition] = (key.attempt, key.number)


COLOURS = ("red", "blue")
GROUPS = 5
"""How many message groups a queue has, and how many keys a stream."""

TURNS = {
    6: [{"colour": colour} for colour in COLOURS],
    7: [{"JMSXGroupID": str(number)} for number in range(GROUPS)],
}
"""Headers of messages in turn, by the kind of the queue."""


class ColourConsumer(Consumer):
    def __init__(self, place: Place, queue: str, ledger: Ledger, random: Random, colour: str) -> None:
        super().__init__(place, queue, ledger, random, 20, {"selector": f"colour = '{colour}'"})
        self._colour = colour

    def _take(self, frame: Frame, order: Order) -> None:
        super()._take(frame, order)
        if frame.headers["colour"] != self._colour:
            self._ledger.violations.append(f"{Key.of(frame.body)} came to a consumer that does not select it")


class ForwardedConsumer(Consumer):
    """Takes what was forwarded. What came again to the forwarder it may have forwarded after newer messages."""

    def _take(self, frame: Frame, order: Order) -> None:
        flagged = frame.headers.get("redelivered") == "true"
        self._ledger.deliver(frame.headers["message-id"], Key.of(frame.body), flagged)


class GroupConsumer(Consumer):
    """Takes messages of message groups."""

    def __init__(self, place: Place, queue: str, ledger: Ledger, random: Random, log: GroupLog) -> None:
        super().__init__(place, queue, ledger, random, 20)
        self._log = log
        self._order: Order | None = None

    async def _work(self, peer: Peer) -> None:
        try:
            await super()._work(peer)
        finally:
            self._log.lost(self._order)

    def _take(self, frame: Frame, order: Order) -> None:
        self._order = order
        key, group = Key.of(frame.body), frame.headers["JMSXGroupID"]
        flagged = frame.headers.get("redelivered") == "true"
        self._ledger.deliver(frame.headers["message-id"], key, flagged)
        self._log.deliver(group, key.number, order, flagged)

    def _settle(self, peer: Peer, portion: list[Frame], receipt: str) -> None:
        for frame in portion:
            self._log.acknowledge(frame.headers["JMSXGroupID"], Key.of(frame.body).number)
        super()._settle(peer, portion, receipt)


class GroupMember(Consumer):
    def __init__(self, place: Place, stream: str, group: str, ledger: Ledger, random: Random, log: StreamLog) -> None:
        headers = {"destination": f"/stream/{stream}", "group": group, "start": "earliest"}
        super().__init__(place, stream, ledger, random, 20, headers)
        self._log = log

    def _take(self, frame: Frame, order: Order) -> None:
        key, flagged = Key.of(frame.body), frame.headers.get("redelivered") == "true"
        self._ledger.deliver(frame.headers["message-id"], key, flagged)
        self._log.deliver(int(frame.headers["partition"]), int(frame.headers["offset"]), key, flagged)


WINDOW = 3
"""How many messages a producer sends at a time."""

PROBE_PAUSE = 0.1
"""How long the producers rest that measure, in seconds."""

STREAM_GROUPS = ("billing", "shipping")
MEMBERS = 2
"""How many members each consumer group has."""


class SoakLoad(Clients):
    """Clients on many queues and streams, each at a broker of its own choice.

    Of ten queues, six are plain, one has selectors, one has message groups, and two have transactions over two shards:
    sends to both, and messages that are forwarded from one to the other.
    """

    has_to_come_again = False

    def __init__(
        self, place: Place, queues: int, streams: int, shard_of: Callable[[str], int], shards: int, random: Random
    ) -> None:
        super().__init__(place, random)
        self.probes: dict[int, Probe] = {}  # what measures, by shard
        self.streams: dict[tuple[str, str], StreamLog] = {}  # by stream and consumer group
        self._shard_of = shard_of  # tells the shard of a queue, by its name
        self._groups: list[GroupLog] = []
        self.flows += [self._queue(number) for number in range(queues)]
        self.flows += [self._stream(f"soak.s{number}") for number in range(streams)]
        self.flows += [self._probe(shard) for shard in range(shards)]

    def _queue(self, number: int) -> Flow:
        place, random, ledger, name = self.place, self._random, Ledger(), f"soak.q{number}"
        kind, forwarded = number % 10, None
        takers: list[Consumer] = []
        sender = Producer(place, name, ledger, name, numbered=True, window=WINDOW, turns=TURNS.get(kind, (NO_HEADERS,)))
        if kind < 6:
            takers = [Consumer(place, name, ledger, random, 20)]
        elif kind == 6:
            takers = [ColourConsumer(place, name, ledger, random, each) for each in COLOURS]
        elif kind == 7:
            log = GroupLog()
            self._groups.append(log)
            takers = [GroupConsumer(place, name, ledger, random, log) for _ in range(3)]
        elif kind == 8:
            names = (name, self._partner(name))
            numbered, turns = number % 20 == 8, [{"destination": f"/queue/{each}"} for each in names]
            sender = Producer(place, name, ledger, f"t-{name}", numbered, transaction=4, window=1, turns=turns)
            takers = [Consumer(place, each, ledger, random, 20) for each in names]
        else:
            target, forwarded = self._partner(name), Ledger()
            forwarder = Forwarder(place, name, target, ledger, random)
            takers = [forwarder, ForwardedConsumer(place, target, forwarded, random, 20)]
        return Flow([sender], takers, [ledger], forwarded)

    def _partner(self, name: str) -> str:
        """A queue of another shard, for transactions over both."""
        shard = self._shard_of(name)
        return next(each for n in range(1000) if self._shard_of(each := f"{name}.{n}") != shard)

    def _stream(self, stream: str) -> Flow:
        ledgers, members = [Ledger() for _ in STREAM_GROUPS], list[Consumer]()
        ledgers[0].others = ledgers[1:]
        for group, ledger in zip(STREAM_GROUPS, ledgers, strict=True):
            log = self.streams[stream, group] = StreamLog(f"{stream} {group}")
            members += [GroupMember(self.place, stream, group, ledger, self._random, log) for _ in range(MEMBERS)]
        turns = [{"partition-key": str(number)} for number in range(GROUPS)]
        sender = Producer(self.place, f"/stream/{stream}", ledgers[0], f"s-{stream}", True, window=WINDOW, turns=turns)
        return Flow([sender], members, ledgers)

    def _probe(self, shard: int) -> Flow:
        name = next(each for n in range(1000) if self._shard_of(each := f"soak.probe{shard}.{n}") == shard)
        probe = self.probes[shard] = Probe(self.place, name, PROBE_PAUSE)
        return Flow([probe], [Consumer(self.place, name, probe.ledger, self._random, 20)], [probe.ledger])

    @property
    def received(self) -> int:
        """How many deliveries of different messages there were, to queues and to groups."""
        return sum([len(ledger.received) for ledger in self.ledgers])

    @property
    def violations(self) -> list[str]:
        logs = [log.violations for log in self._groups] + [log.violations for log in self.streams.values()]
        return super().violations + [violation for found in logs for violation in found]

    async def wait_until_served(self, since: float, patience: float = 60.0) -> None:
        """Wait until each shard has confirmed a message that was sent after a time."""
        await asyncio.gather(*[probe.answer(since, limit=patience) for probe in self.probes.values()])


READ_QUIET_SECONDS = 1.0
"""When nothing has come for so long, it was all."""


async def read_stream(host: str, port: int, stream: str) -> dict[tuple[int, int], Key]:
    found: dict[tuple[int, int], Key] = {}
    peer = await Peer.connect(host, port)
    try:
        headers = {"destination": f"/stream/{stream}", "id": "1", "ack": "auto", "start": "earliest"}
        peer.send("SUBSCRIBE", headers | {"activemq.prefetchSize": "1000"})
        last = time.monotonic()
        while time.monotonic() - last < READ_QUIET_SECONDS:
            for frame in await peer.receive():
                last = time.monotonic()
                found[int(frame.headers["partition"]), int(frame.headers["offset"])] = Key.of(frame.body)
    finally:
        peer.close()
    return found
