"""All STOMP clients of a soak: queues, transactions, selectors, message groups, streams, and what measures."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from benchmarks.cluster.clients import (
    COLOURS,
    ColourConsumer,
    ColourProducer,
    ForwardedConsumer,
    GroupConsumer,
    GroupMember,
    GroupProducer,
    PairProducer,
    StreamProducer,
)
from benchmarks.cluster.flow import Flow
from benchmarks.cluster.group_log import GroupLog
from benchmarks.cluster.stream_log import StreamLog
from benchmarks.takeover.load import Probe
from tests.acceptance.crash.actors import Actor, Consumer, Forwarder, Place, Producer
from tests.acceptance.crash.ledger import Ledger

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

    Args:
        place: where clients connect.
        queues: how many queues.
        streams: how many streams.
        shard_of: tells the shard of a queue, by its name.
        shards: how many there are; each has a producer that measures.
        random: what the clients do differently each time.

    Attributes:
        probes: what measures, by shard.
        streams: by stream and consumer group.
    """

    def __init__(
        self, place: Place, queues: int, streams: int, shard_of: Callable[[str], int], shards: int, random: Random
    ) -> None:
        self.probes: dict[int, Probe] = {}
        self.streams: dict[tuple[str, str], StreamLog] = {}
        self._place = place
        self._random = random
        self._shard_of = shard_of
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
        """How many messages were confirmed."""
        return sum([len(flow.ledger.confirmed) for flow in self._flows if flow.producers])

    @property
    def received(self) -> int:
        """How many deliveries of different messages there were, to queues and to groups."""
        return sum([len(ledger.received) for ledger in self._ledgers])

    @property
    def redelivered(self) -> int:
        """How many deliveries were flagged."""
        return sum([ledger.redelivered for ledger in self._ledgers])

    @property
    def missing(self) -> int:
        """How many confirmed messages did not come."""
        return sum([flow.missing for flow in self._flows])

    @property
    def errors(self) -> set[str]:
        """Codes of the errors that clients were sent."""
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
        """Wait until each shard has confirmed a message that was sent after a time."""
        await asyncio.gather(*[probe.answer(since, limit=patience) for probe in self.probes.values()])

    async def finish(self) -> bool:
        """Send nothing new; whether everything arrived and was acknowledged in time."""
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
        """Look for what can be told only when all has come."""
        for flow in self._flows:
            flow.check_end()
