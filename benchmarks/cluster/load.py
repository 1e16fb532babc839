"""All STOMP clients of a soak: queues, transactions, selectors, groups, streams; what they know, and what measures."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from benchmarks.takeover.load import Probe
from tests.acceptance.crash.load import Actor, Consumer, Forwarder, Frame, Key, Ledger, Order, Peer, Place, Producer


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


class ColourProducer(Producer):
    def headers_of(self, number: int) -> dict[str, str]:
        return {"colour": COLOURS[number % 2]}


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


class GroupProducer(Producer):
    def headers_of(self, number: int) -> dict[str, str]:
        return {"JMSXGroupID": str(number % GROUPS)}


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


class PairProducer(Producer):
    """Sends to two queues in turn, so that a transaction has messages in both."""

    def __init__(self, place: Place, queues: tuple[str, str], ledger: Ledger, numbered: bool) -> None:
        super().__init__(place, queues[0], ledger, f"t-{queues[0]}", numbered, transaction=4, window=1)
        self._destinations = [f"/queue/{queue}" for queue in queues]

    def headers_of(self, number: int) -> dict[str, str]:
        return {"destination": self._destinations[number % 2]}


class StreamProducer(Producer):
    def __init__(self, place: Place, stream: str, ledger: Ledger, window: int) -> None:
        super().__init__(place, stream, ledger, f"s-{stream}", numbered=True, window=window)
        self._stream = stream

    def headers_of(self, number: int) -> dict[str, str]:
        return {"destination": f"/stream/{self._stream}", "partition-key": str(number % GROUPS)}


class GroupMember(Consumer):
    def __init__(self, place: Place, stream: str, group: str, ledger: Ledger, random: Random, log: StreamLog) -> None:
        headers = {"destination": f"/stream/{stream}", "group": group, "start": "earliest"}
        super().__init__(place, stream, ledger, random, 20, headers)
        self._log = log

    def _take(self, frame: Frame, order: Order) -> None:
        key, flagged = Key.of(frame.body), frame.headers.get("redelivered") == "true"
        self._ledger.deliver(frame.headers["message-id"], key, flagged)
        self._log.deliver(int(frame.headers["partition"]), int(frame.headers["offset"]), key, flagged)


class Flow:
    def __init__(
        self, producers: Sequence[Actor], consumers: Sequence[Consumer], ledger: Ledger, forwarded: Ledger | None = None
    ) -> None:
        self.producers = producers  # those that send
        self.consumers = consumers  # those that take
        self.ledger = ledger  # what they know
        self._forwarded = forwarded  # what those know that take what was sent on

    @property
    def ledgers(self) -> list[Ledger]:
        return [self.ledger] + ([self._forwarded] if self._forwarded else [])

    @property
    def missing(self) -> int:
        """How many messages were confirmed and did not come."""
        if self._forwarded:
            self._forwarded.confirmed = set(self.ledger.received)
        return sum([len(ledger.missing) for ledger in self.ledgers])

    @property
    def unsettled(self) -> int:
        return sum([consumer.unsettled for consumer in self.consumers])

    def check_end(self) -> None:
        for producer in self.producers:
            if isinstance(producer, Producer) and producer.numbered:
                for ledger in self.ledgers:
                    ledger.check_once(producer.name)
            elif isinstance(producer, Producer):
                self.ledger.check_whole(producer.name, producer.transaction)


WINDOW = 3
"""How many messages a producer sends at a time."""

PROBE_PAUSE = 0.1
"""How long the producers rest that measure, in seconds."""

STREAM_GROUPS = ("billing", "shipping")
MEMBERS = 2
"""How many members each consumer group has."""

QUIET_SECONDS = 15.0
"""When nothing new has come for so long, what is missing is lost."""


class SoakLoad:
    """Clients on many queues and streams, each at a broker of its own choice.

    Of ten queues, six are plain, one has selectors, one has message groups, and two have transactions over two shards:
    sends to both, and messages that are forwarded from one to the other.
    """

    def __init__(
        self, place: Place, queues: int, streams: int, shard_of: Callable[[str], int], shards: int, random: Random
    ) -> None:
        self.probes: dict[int, Probe] = {}  # what measures, by shard
        self.streams: dict[tuple[str, str], StreamLog] = {}  # by stream and consumer group
        self._place = place  # where clients connect
        self._random = random  # what the clients do differently each time
        self._shard_of = shard_of  # tells the shard of a queue, by its name
        self._groups: list[GroupLog] = []
        self._flows: list[Flow] = []
        self._senders: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        for number in range(queues):
            self._add_queue(number)
        for number in range(streams):
            self._add_stream(f"soak.s{number}")
        for shard in range(shards):
            self._add_probe(shard)

    def _add_queue(self, number: int) -> None:
        place, random, ledger, name = self._place, self._random, Ledger(), f"soak.q{number}"
        kind = number % 10
        if kind < 6:
            producer = Producer(place, name, ledger, name, numbered=True, window=WINDOW)
            self._add([producer], [Consumer(place, name, ledger, random, 20)], ledger)
        elif kind == 6:
            coloured = ColourProducer(place, name, ledger, name, numbered=True, window=WINDOW)
            self._add([coloured], [ColourConsumer(place, name, ledger, random, each) for each in COLOURS], ledger)
        elif kind == 7:
            log = GroupLog()
            self._groups.append(log)
            grouped = GroupProducer(place, name, ledger, name, numbered=True, window=WINDOW)
            self._add([grouped], [GroupConsumer(place, name, ledger, random, log) for _ in range(3)], ledger)
        elif kind == 8:
            names = (name, self._partner(name))
            pair = PairProducer(place, names, ledger, numbered=number % 20 == 8)
            self._add([pair], [Consumer(place, each, ledger, random, 20) for each in names], ledger)
        else:
            target, forwarded = self._partner(name), Ledger()
            sender = Producer(place, name, ledger, name, numbered=True, window=WINDOW)
            forwarder = Forwarder(place, name, target, ledger, random)
            self._add([sender], [forwarder, ForwardedConsumer(place, target, forwarded, random, 20)], ledger, forwarded)

    def _partner(self, name: str) -> str:
        """A queue of another shard, for transactions over both."""
        shard = self._shard_of(name)
        return next(each for n in range(1000) if self._shard_of(each := f"{name}.{n}") != shard)

    def _add_stream(self, stream: str) -> None:
        sent = Ledger()
        producer = StreamProducer(self._place, stream, sent, WINDOW)
        for group in STREAM_GROUPS:
            log, ledger = StreamLog(f"{stream} {group}"), Ledger()
            self.streams[stream, group] = log
            ledger.confirmed = sent.confirmed  # what was sent has to come to each group
            members = [GroupMember(self._place, stream, group, ledger, self._random, log) for _ in range(MEMBERS)]
            self._add([producer] if group == STREAM_GROUPS[0] else [], members, ledger)

    def _add_probe(self, shard: int) -> None:
        name = next(each for n in range(1000) if self._shard_of(each := f"soak.probe{shard}.{n}") == shard)
        probe = self.probes[shard] = Probe(self._place, name, PROBE_PAUSE)
        self._add([probe], [Consumer(self._place, name, probe.ledger, self._random, 20)], probe.ledger)

    def _add(
        self, producers: Sequence[Actor], consumers: Sequence[Consumer], ledger: Ledger, forwarded: Ledger | None = None
    ) -> None:
        self._flows.append(Flow(producers, consumers, ledger, forwarded))

    async def __aenter__(self) -> "SoakLoad":
        senders = [actor for flow in self._flows for actor in flow.producers]
        self._senders = [asyncio.create_task(actor.run()) for actor in senders]
        takers = [actor for flow in self._flows for actor in flow.consumers]
        self._tasks = [*self._senders, *[asyncio.create_task(actor.run()) for actor in takers]]
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks)

    @property
    def confirmed(self) -> int:
        return sum([len(flow.ledger.confirmed) for flow in self._flows if flow.producers])

    @property
    def received(self) -> int:
        """How many deliveries of different messages there were, to queues and to groups."""
        return sum([len(ledger.received) for ledger in self._ledgers])

    @property
    def redelivered(self) -> int:
        return sum([ledger.redelivered for ledger in self._ledgers])

    @property
    def missing(self) -> int:
        return sum([flow.missing for flow in self._flows])

    @property
    def errors(self) -> set[str]:
        return {code for ledger in self._ledgers for code in ledger.errors}

    @property
    def _ledgers(self) -> list[Ledger]:
        return [ledger for flow in self._flows for ledger in flow.ledgers]

    @property
    def violations(self) -> list[str]:
        """Promises that were broken so far. A client that gave up raises what stopped it."""
        for task in self._tasks:
            if task.done():
                task.result()
        found = [ledger.violations for ledger in self._ledgers]
        found += [log.violations for log in self._groups]
        found += [log.violations for log in self.streams.values()]
        return [violation for violations in found for violation in violations]

    async def wait_until_served(self, since: float, patience: float = 60.0) -> None:
        await asyncio.gather(*[probe.answer(since, limit=patience) for probe in self.probes.values()])

    async def finish(self) -> bool:
        for flow in self._flows:
            for actor in (*flow.producers, *flow.consumers):
                actor.ending = True
        quiet_since, seen = time.monotonic(), -1
        while time.monotonic() - quiet_since < QUIET_SECONDS:
            is_settled = not any([flow.unsettled for flow in self._flows])
            if is_settled and not self.missing and all([task.done() for task in self._senders]):
                return True
            if (received := self.received) != seen:
                quiet_since, seen = time.monotonic(), received
            await asyncio.sleep(0.2)
        return False

    def check_end(self) -> None:
        for flow in self._flows:
            flow.check_end()


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
