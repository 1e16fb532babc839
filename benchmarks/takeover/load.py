"""What clients do meanwhile: on shared messages, with Quire's own client, and one that measures."""

import asyncio
import time
from contextlib import suppress
from itertools import pairwise
from random import Random

from benchmarks.takeover.pair import Pair
from quire.client import AckMode, Queue, connect
from quire.errors import QuireError, StoreUnreachable
from tests.acceptance.crash.load import (
    DRAIN_SECONDS,
    LOOK_SECONDS,
    QUIET_SECONDS,
    Actor,
    Consumer,
    Key,
    Ledger,
    Peer,
    Place,
    Producer,
)

SILENCE = 1.5
"""After so many seconds without a sign of life, clients look for another broker: before another one may serve."""

PAUSE = 0.25
"""How long each producer rests after it has sent, in seconds: this machine also has the brokers and the servers."""

PROBE_PAUSE = 0.02
"""The same of the producer that measures."""


class Hosts(Place):
    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.silence, self.pause = SILENCE, PAUSE
        self._pair = pair

    @property
    def hosts(self) -> list[tuple[str, int]]:
        return self._pair.stomp


class Answer:
    """A message that was confirmed: when it was sent, when it was confirmed, and by which broker."""

    def __init__(self, sent: float, confirmed: float, broker: int) -> None:
        self.sent = sent
        self.confirmed = confirmed
        self.broker = broker


class Probe(Actor):
    """Sends one message after the other, and notes who confirms it."""

    def __init__(self, place: Place, queue: str = "probe", pause: float = PROBE_PAUSE) -> None:
        self.ledger = Ledger()  # what is known of its messages
        super().__init__(place, queue, self.ledger)
        self._pause = pause  # how long it rests after each, in seconds
        self.answers: list[Answer] = []  # in their order
        self._attempt = self._number = 0

    @property
    def serving(self) -> int:
        """The number of the broker that confirmed the last one, from 0; -1 before the first."""
        return self.answers[-1].broker if self.answers else -1

    async def answer(self, after: float, by: int | None = None, limit: float = 60.0) -> Answer:
        looked = 0
        deadline = time.monotonic() + limit
        while True:
            for answer in self.answers[looked:]:
                if answer.sent >= after and by in (None, answer.broker):
                    return answer
            looked = len(self.answers)
            assert time.monotonic() < deadline, f"no broker confirms anything after {limit} s"
            await asyncio.sleep(0.005)

    def longest_gap(self, since: float) -> float:
        times = [since, *[answer.confirmed for answer in self.answers if answer.confirmed > since]]
        return max([later - earlier for earlier, later in pairwise(times)], default=0.0)

    def _done(self) -> bool:
        return self.ending

    async def _work(self, peer: Peer) -> None:
        broker = self._tries % len(self._place.hosts)
        self._attempt += 1
        while not self.ending:
            self._number += 1
            sent = time.monotonic()
            body = Key("probe", self._attempt, self._number, self._number).body(10)
            peer.send("SEND", {"destination": self._destination, "receipt": "p"}, body)
            while not await peer.receive():
                pass
            self.answers.append(Answer(sent, time.monotonic(), broker))
            self.ledger.confirm([("probe", self._number)])
            await asyncio.sleep(self._pause)


class QuireClients:
    """A producer and a consumer that use Quire's client with a list of brokers."""

    QUEUE = Queue("client")

    def __init__(self, pair: Pair) -> None:
        self.ledger = Ledger()  # what they know
        self.ending = False
        self._url = pair.failover_url
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._produce()), asyncio.create_task(self._consume())]

    async def finish(self, limit: float = 60.0) -> None:
        self.ending = True
        await asyncio.wait_for(self._tasks[0], limit)
        deadline = time.monotonic() + limit
        while missing := self.ledger.missing:
            assert time.monotonic() < deadline, f"of Quire's client are missing: {missing[:10]}"
            self.check()
            await asyncio.sleep(LOOK_SECONDS)
        self.ledger.check_once("client")
        self.check()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        with suppress(asyncio.CancelledError, QuireError):
            await asyncio.gather(*self._tasks)

    def check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()
        assert not self.ledger.violations, f"Quire's client: {self.ledger.violations[:10]}"

    async def _produce(self) -> None:
        async with connect(self._url, on_error=self._note) as connection:
            producer = connection.session().producer(self.QUEUE)
            number = 0
            while not self.ending:
                number += 1
                try:
                    await producer.send(Key("client", 1, number, number).body(100))
                except StoreUnreachable as error:  # its database server is away, and it goes on
                    self._note(error)
                else:
                    self.ledger.confirm([("client", number)])
                await asyncio.sleep(PAUSE)

    async def _consume(self) -> None:
        async with connect(self._url, on_error=self._note) as connection:
            consumer = await connection.session(AckMode.INDIVIDUAL).consumer(self.QUEUE)
            newest = 0
            while True:
                message = await consumer.receive()
                if message is None:
                    continue
                key = Key.of(bytes(message.body))
                is_new = (key.producer, key.number) not in self.ledger.received
                if is_new and key.number < newest:
                    self.ledger.violations.append(f"{key} came after {newest}")
                newest = max(newest, key.number)
                self.ledger.deliver(message.id, key, message.redelivered)
                self.ledger.acknowledge([message.id])
                await message.acknowledge()

    def _note(self, error: Exception) -> None:
        """An error that no call raised: of an acknowledgement that a broker could not store, say."""
        self.ledger.errors.append(getattr(error, "code", type(error).__name__))


START_SECONDS = 30.0
"""How long the subscriptions may take."""

READERS = ("first", "second")
"""Who gets all messages, of the topic and of the stream."""

EARLIEST = {"start": "earliest"}


class SharedMessages:
    """Producers on a topic and on a stream, each with two subscriptions or groups that get all messages."""

    def __init__(self, place: Place, random: Random) -> None:
        self._ledgers: dict[str, Ledger] = {}
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        for kind in ("topic", "stream"):
            destination = f"/{kind}/shared"
            ledgers = [self._ledgers.setdefault(f"{reader} of {kind}", Ledger()) for reader in READERS]
            ledgers[0].others = ledgers[1:]
            for name, numbered, transaction in ((f"{kind}-numbered", True, 1), (f"{kind}-transacted", False, 4)):
                headers = {"partition-key": name}
                self._producers.append(
                    Producer(place, destination, ledgers[0], name, numbered, transaction, window=5, headers=headers)
                )
            for reader, ledger in zip(READERS, ledgers, strict=True):
                headers = {"activemq.subscriptionName": reader} if kind == "topic" else {"group": reader, **EARLIEST}
                consumer = Consumer(place, destination, ledger, random, headers=headers)
                consumer.client_id = reader if kind == "topic" else ""
                self._consumers.append(consumer)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "SharedMessages":
        self._tasks = [asyncio.create_task(consumer.run()) for consumer in self._consumers]
        deadline = time.monotonic() + START_SECONDS
        while not all([consumer.has_subscribed for consumer in self._consumers]):
            assert time.monotonic() < deadline, "the subscriptions are not confirmed"
            await asyncio.sleep(0.05)
            self.check()
        self._tasks += [asyncio.create_task(producer.run()) for producer in self._producers]
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def confirmed(self) -> int:
        return sum([len(self._ledgers[f"{READERS[0]} of {kind}"].confirmed) for kind in ("topic", "stream")])

    @property
    def redelivered(self) -> int:
        return sum([ledger.redelivered for ledger in self._ledgers.values()])

    def check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()
        broken = [f"{name}: {violation}" for name, found in self._ledgers.items() for violation in found.violations]
        assert not broken, f"{len(broken)} broken promises: " + "; ".join(broken[:10])

    async def finish(self) -> None:
        for actor in (*self._producers, *self._consumers):
            actor.ending = True
        quiet_since = time.monotonic()
        deadline = quiet_since + DRAIN_SECONDS
        while time.monotonic() - quiet_since < QUIET_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            self.check()
            missing = {name: ledger.open[:10] for name, ledger in self._ledgers.items()}
            is_sending = not all([task.done() for task in self._tasks[len(self._consumers) :]])
            if is_sending or any(missing.values()) or any([consumer.unsettled for consumer in self._consumers]):
                quiet_since = time.monotonic()
            assert time.monotonic() < deadline, f"sending: {is_sending}, missing: {missing}"
        for ledger in self._ledgers.values():
            for producer in self._producers:
                if producer.numbered:
                    ledger.check_once(producer.name)
                else:
                    ledger.check_whole(producer.name, producer.transaction)
        self.check()
