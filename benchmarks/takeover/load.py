"""What clients do meanwhile: on shared messages, with Quire's own client, and one that measures."""

import asyncio
import time
from itertools import pairwise
from random import Random

from benchmarks.takeover.pair import Pair
from quire.client import AckMode, Queue, connect
from quire.errors import StoreUnreachable
from tests.acceptance.crash.load import Actor, Consumer, Flow, Key, Ledger, Load, Peer, Place, Producer

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


class QuireProducer(Producer):
    """Sends with Quire's client, which has a list of brokers."""

    def __init__(self, place: Place, url: str, ledger: Ledger) -> None:
        super().__init__(place, "client", ledger, "client", numbered=True)
        self._url = url

    async def run(self) -> None:
        async with connect(self._url, on_error=self._ledger.note) as connection:
            producer = connection.session().producer(Queue("client"))
            number = 0
            while not self.ending:
                number += 1
                try:
                    await producer.send(Key(self.name, 1, number, number).body(100))
                except StoreUnreachable as error:  # its database server is away, and it goes on
                    self._ledger.note(error)
                else:
                    self._ledger.confirm([(self.name, number)])
                await asyncio.sleep(PAUSE)


class QuireConsumer(Consumer):
    """Receives with Quire's client."""

    def __init__(self, place: Place, url: str, ledger: Ledger, random: Random) -> None:
        super().__init__(place, "client", ledger, random)
        self._url = url

    async def run(self) -> None:
        ledger, newest = self._ledger, 0
        async with connect(self._url, on_error=ledger.note) as connection:
            consumer = await connection.session(AckMode.INDIVIDUAL).consumer(Queue("client"))
            while True:
                message = await consumer.receive()
                if message is None:
                    continue
                key = Key.of(bytes(message.body))
                is_new = (key.producer, key.number) not in ledger.received
                if is_new and key.number < newest:
                    ledger.violations.append(f"{key} came after {newest}")
                newest = max(newest, key.number)
                ledger.deliver(message.id, key, message.redelivered)
                ledger.acknowledge([message.id])
                await message.acknowledge()


class TakeoverLoad(Load):
    """The clients of the crash test; a topic and a stream that two subscriptions or groups get; Quire's; a probe."""

    def __init__(self, pair: Pair, random: Random) -> None:
        place = Hosts(pair)
        super().__init__(random, place)
        self.flows += [self._shared("topic"), self._shared("stream")]
        ledger = Ledger()
        taker = QuireConsumer(place, pair.failover_url, ledger, random)
        self.flows.append(Flow([QuireProducer(place, pair.failover_url, ledger)], [taker], [ledger]))
        self.probe = Probe(place)
        self.flows.append(
            Flow([self.probe], [Consumer(place, "probe", self.probe.ledger, random)], [self.probe.ledger])
        )

    def _shared(self, kind: str) -> Flow:
        place, destination = self.place, f"/{kind}/shared"
        ledgers, consumers = [Ledger(), Ledger()], list[Consumer]()
        ledgers[0].others = ledgers[1:]
        for reader, ledger in zip(("first", "second"), ledgers, strict=True):
            headers = {"group": reader, "start": "earliest"}
            if kind == "topic":
                headers = {"activemq.subscriptionName": reader}
            consumers.append(Consumer(place, destination, ledger, self._random, headers=headers))
            consumers[-1].client_id = reader if kind == "topic" else ""
        producers = [
            Producer(place, destination, ledgers[0], name, numbered, transaction, 5, {"partition-key": name})
            for name, numbered, transaction in ((f"{kind}-numbered", True, 1), (f"{kind}-transacted", False, 4))
        ]
        return Flow(producers, consumers, ledgers, waits=True)
