"""A broker with a ledger, and clients that do to it all that a ledger can tell of: what they have seen is the truth."""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from benchmarks.rig import OwnBroker
from quire.broker.dead_letter import CAUSE, ORIGIN
from quire.client import AckMode, Queue
from quire.client.sync import connect
from quire.clock import SystemClock
from tests.spark.ground_truth.truth import Note, Truths
from tests.spark.ground_truth.witness import Witness, key_of

POLICIES = """
[policy]
ledger = true
maximum_redeliveries = 1
initial_redelivery_delay = "0"
redelivery_delay = "0"

[[policies]]
destination = "queue://ranked"
prioritized_messages = true

[[policies]]
destination = "stream://events"
partitions = 1
"""

LETTERS = "queue://ActiveMQ.DLQ"
DURABLE, GROUP = "office", "billing"
TOPIC, STREAM = "topic://prices", "stream://events"
SUBSCRIBERS = {TOPIC: f"{DURABLE}.{DURABLE}", STREAM: GROUP}
"""For whom the audit judges a topic and a stream."""

NOTED = 2.0
"""After so many seconds the ledger has what no commit took along."""

LIFE = 0.3
"""How long a message lives that is to expire, in seconds."""

PATIENCE = 30.0


class Acts:
    """One broker, and what happens to it."""

    def __init__(self, directory: Path, seed: int) -> None:
        settings, bare = directory / "quire.toml", directory / "bare.toml"
        settings.write_text(POLICIES)
        bare.write_text(POLICIES.replace("ledger = true", "ledger = false"))
        ports = {"http": "127.0.0.1:0"}
        self._bare = OwnBroker(directory, ports | {"config": str(bare)})
        self.broker = OwnBroker(directory, ports | {"config": str(settings)})
        self.truths = Truths()
        self.kills = 0
        self._random = Random(seed)
        self._names = 0
        self._clock = SystemClock()

    def play(self, rounds: int) -> None:
        """All acts in each round, and a kill at its end; then what is left is looked at. The broker goes on running."""
        with self._bare:
            self._before_the_ledger()
        self.broker.start()
        for number in range(rounds):
            for act in (self._orders, self._timed, self._purged, self._ranked, self._unseen, self._topic, self._stream):
                act(number)
            self._kill_at_rest() if number % 2 else self._kill_under_way(number)
        self._take_all("queue://older")
        self._look_at_the_end()
        time.sleep(NOTED)

    # What clients do.

    def _before_the_ledger(self) -> None:
        """Messages that are there when the ledger begins."""
        client = self._client(self._bare)
        client.send("queue://older", keys := ["older 1", "older 2", "older 3"])
        client.wait()
        client.leave()
        older = self.truths["queue://older"]
        older.older.update(keys)
        older.sent.clear()

    def _orders(self, number: int) -> None:
        """Consumers that acknowledge, reject, hold, leave and vanish, and a producer, also with transactions."""
        name, random = "queue://orders", self._random
        producer = self._client()
        producer.send(name, self._keys(name, number, "a", random.randint(20, 60)))
        producer.transact(name, self._keys(name, number, "committed", 5), commit=True)
        producer.transact(name, self._keys(name, number, "aborted", 5), commit=False)
        producer.wait()
        for _ in range(4):
            consumer = self._client()
            consumer.subscribe(name, random.randint(3, 12))
            for _ in range(random.randint(1, 4)):
                self._settle(name, [consumer])
                held = consumer.held[:]
                random.shuffle(held)
                consumer.acknowledge(held[: len(held) // 2])
                consumer.reject(held[len(held) // 2 : len(held) * 2 // 3])
                consumer.wait()
            self._end(name, consumer)
        producer.leave()

    def _timed(self, number: int) -> None:
        """Some messages expire while they wait, and some have no such end."""
        name = "queue://timed"
        producer = self._client()
        lives = round((self._clock.now_ms() / 1000 + LIFE) * 1000)
        producer.send(name, expiring := self._keys(name, number, "expiring", 8), f"expires:{lives}\n")
        producer.send(name, self._keys(name, number, "lasting", 4))
        producer.wait()
        producer.leave()
        self._wait_until(lambda: self._queue(name)["depth"] == 4)
        self.truths[name].ends.update(dict.fromkeys(expiring, "expired"))
        self._take_all(name)

    def _purged(self, number: int) -> None:
        """An operator removes the first messages of a queue."""
        name = "queue://purged"
        producer = self._client()
        producer.send(name, keys := self._keys(name, number, "a", 12))
        producer.wait()
        producer.leave()
        answer = self.broker.api.call("POST", "/queues/purged/purge", {"limit": 7})
        assert answer["removed"] == 7
        self.truths[name].ends.update(dict.fromkeys(keys[:7], "removed"))
        self._take_all(name)

    def _ranked(self, number: int) -> None:
        """Urgent messages overtake others: the others are out of order."""
        name = "queue://ranked"
        producer, consumer = self._client(), self._client()
        producer.send(name, self._keys(name, number, "low", 6), "priority:1\n")
        producer.wait()
        consumer.subscribe(name, 1)
        self._take_one_by_one(consumer, 2)
        producer.send(name, self._keys(name, number, "high", 3), "priority:9\n")
        producer.wait()
        self._take_one_by_one(consumer, 7)
        consumer.leave()
        producer.leave()

    def _unseen(self, number: int) -> None:
        """An OpenWire consumer leaves, and its application has not seen all that its prefetch had."""
        name = "queue://unseen"
        truth, producer = self.truths[name], self._client()
        producer.send(name, self._keys(name, number, "a", 20))
        producer.wait()
        producer.leave()
        with connect(self.broker.openwire()) as connection, connection.session(AckMode.INDIVIDUAL) as session:
            for count, rejected in ((5, (1, 2)), (17, ())):
                self._names += 1
                with session.consumer(Queue("unseen")) as consumer:
                    for index in range(count):
                        message = consumer.receive(PATIENCE)
                        assert message is not None
                        key = bytes(message.body).decode()
                        truth.deliver(self.truths.next(), key, f"c{self._names}", flagged=message.redelivered)
                        if index in rejected:
                            truth.returns.append(Note(self.truths.next(), key))
                        else:
                            message.acknowledge()
                            truth.acknowledged[key] = True

    def _topic(self, number: int) -> None:
        """A durable subscription whose client comes again."""
        for turn in range(2):
            consumer = self._client(client_id=DURABLE)
            consumer.subscribe(TOPIC, 10, f"activemq.subscriptionName:{DURABLE}\n")
            if turn == 0:
                producer = self._client()
                producer.send(TOPIC, self._keys(TOPIC, number, "a", 8))
                producer.wait()
                producer.leave()
            taken = consumer.take(8 if turn == 0 else 4)
            consumer.acknowledge(taken[:4])
            consumer.wait()
            consumer.leave()

    def _stream(self, number: int) -> None:
        """A consumer group with one member at a time."""
        producer = self._client()
        producer.send(STREAM, self._keys(STREAM, number, "a", 8))
        producer.wait()
        producer.leave()
        for more in (4, 0):
            consumer = self._client()
            consumer.subscribe(STREAM, 4, f"group:{GROUP}\nstart:earliest\n")
            consumer.acknowledge(consumer.take(4))
            consumer.wait()
            consumer.take(more)
            consumer.leave()

    # How it ends.

    def _kill_at_rest(self) -> None:
        """Nothing is under way, and a consumer holds messages: they come again, flagged."""
        name = "queue://orders"
        consumer = self._client()
        consumer.subscribe(name, 5)
        self._settle(name, [consumer])
        time.sleep(NOTED)
        self.truths.confirmed(self.truths.now)
        consumer.prefetch = len(consumer.held)
        self._kill([consumer])

    def _kill_under_way(self, number: int) -> None:
        """Sends, acknowledgements and rejections are under way, of which nobody knows whether they are done."""
        name, random = "queue://orders", self._random
        producer, consumers = self._client(), [self._client() for _ in range(2)]
        for consumer in consumers:
            consumer.subscribe(name, random.randint(3, 12))
            consumer.look()
        producer.send(name, self._keys(name, number, "under way", 40))
        for consumer in consumers:
            consumer.acknowledge(consumer.held[: len(consumer.held) // 2])
            consumer.reject(consumer.held[:1])
        time.sleep(random.uniform(0, 0.05))
        self._kill([producer, *consumers])

    def _kill(self, clients: list[Witness]) -> None:
        self.broker.kill()
        self.kills += 1
        for client in clients:
            client.killed()
        self.truths.killed()
        self.broker.start()

    def depths(self) -> dict[str, int]:
        return {name: self._queue(name)["depth"] for name in self.truths.destinations if name.startswith("queue://")}

    def _look_at_the_end(self) -> None:
        """Dead letters are taken, and what a queue still has is looked at. Some messages stay."""
        self._take_all("queue://orders", leave=3)
        letters = self._client()
        letters.subscribe(LETTERS, 1000)
        self._settle(LETTERS, [letters])
        dead, self.truths[LETTERS].sent = self.truths[LETTERS], {}
        for letter in letters.held:
            origin = letter.header(ORIGIN).removeprefix("/").replace("/", "://", 1)
            end = "expired" if "expired" in letter.header(CAUSE) else "dead_lettered"
            self.truths[origin].ends[key_of(letter)] = end
            dead.sent[key_of(letter)] = True
        letters.acknowledge(letters.held[:])
        letters.wait()
        letters.leave()
        for name in ("orders", "unseen", "timed", "purged", "ranked"):
            listed = self.broker.api.call("GET", f"/queues/{name}/messages", limit=1000)["messages"]
            self.truths[f"queue://{name}"].there.update(str(message["body"]) for message in listed)

    # What these have in common.

    def _client(self, broker: OwnBroker | None = None, client_id: str = "") -> Witness:
        self._names += 1
        return Witness((broker or self.broker).target, self.truths, f"c{self._names}", client_id)

    def _keys(self, destination: str, number: int, kind: str, count: int) -> list[str]:
        return [f"{destination} {number} {kind} {index}" for index in range(count)]

    def _queue(self, destination: str) -> dict[str, int]:
        return self.broker.api.call("GET", f"/queues/{destination.removeprefix('queue://')}")

    def _wait_until(self, holds: Callable[[], bool]) -> None:
        deadline = self._clock.monotonic() + PATIENCE
        while not holds():
            assert self._clock.monotonic() < deadline
            time.sleep(0.02)

    def _settle(self, destination: str, consumers: list[Witness]) -> None:
        """Wait until consumers have got all that the broker has given out, and could give out."""

        def is_settled() -> bool:
            for consumer in consumers:
                consumer.look()
            found, held = self._queue(destination), sum([len(consumer.held) for consumer in consumers])
            return found["in_flight"] == held == min(sum([one.prefetch for one in consumers]), found["depth"])

        self._wait_until(is_settled)

    def _end(self, destination: str, consumer: Witness) -> None:
        self._settle(destination, [consumer])
        if self._random.random() < 0.5:
            consumer.leave()
        else:
            consumer.vanish()
        self._wait_until(lambda: self._queue(destination)["consumers"] == 0)

    def _take_all(self, destination: str, leave: int = 0) -> None:
        """Take all that a queue has, or all but some messages."""
        consumer = self._client()
        while (depth := self._queue(destination)["depth"]) > leave:
            if not consumer.destination:
                consumer.subscribe(destination, 10)
            self._settle(destination, [consumer])
            consumer.acknowledge(consumer.held[: depth - leave])
            consumer.wait()
        if consumer.destination:
            self._settle(destination, [consumer])
        consumer.leave()

    def _take_one_by_one(self, consumer: Witness, count: int) -> None:
        for _ in range(count):
            consumer.acknowledge(consumer.take(1))
            consumer.wait()
