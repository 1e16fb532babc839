"""One random history of a broker, given by its seed, and the checks of what was promised."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from quire.errors import StoreFull
from quire.testing.stepped import SteppedBroker
from tests.simulation.actors import Consumer, Producer
from tests.simulation.promises import DEAD_LETTERS, Broken, Promises
from tests.unit.broker.harness import settings

QUEUES = ("a", "b", DEAD_LETTERS)

GREATEST = 2000
"""No message is charged more than this: content, headers, a dead letter's headers, and the overhead."""


@contextmanager
def small_steps() -> Iterator[None]:
    """Make the broker's steps so small that a short history crosses them: dispatch marks, pages, slices."""
    with (
        patch("quire.broker.dispatch_mark.STEP", 8),
        patch("quire.broker.dispatcher.SLICE", 2),
        patch("quire.cursors.queue_cursor.PAGE_LIMIT", 3),
    ):
        yield


class Simulation:
    """A broker, its clients, and one random history of them.

    Args:
        seed: which history.

    Attributes:
        history: what has happened, a line each.
    """

    def __init__(self, seed: int) -> None:
        self.history: list[str] = []
        self._random = random = Random(seed)
        self._settings = settings(
            memory={"limit": random.choice((1, 2500, 10_000, 1_000_000))},
            policy={"memory_limit": random.choice((0, 2000)), "maximum_redeliveries": random.choice((0, 2, 6))},
            store={"limit": random.choice((20_000, 10**9))},
            spool={"limit": random.choice((5_000, 10**9))},
            producer={"hold_limit": 5.0},
        )
        # What may happen differs from seed to seed, or rare things would never come together.
        self._crashes, self._failures, self._rejections, self._departures = (random.random() < 0.6 for _ in range(4))
        self._promises = Promises()
        self._stepped = SteppedBroker(self._settings)
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        for number in range(random.randint(1, 3)):
            self._producers.append(
                Producer(
                    self._stepped.connect(), self._promises, random, self.history.append, number=number,
                    numbered=random.random() < 0.4, now_ms=lambda: self._stepped.clock.now_ms(),
                )
            )  # fmt: skip

    def run(self) -> None:
        """Let it happen, then consume everything, checking all the while.

        Raises:
            AssertionError: a promise was broken.
        """
        with small_steps():
            for _ in range(self._random.randint(50, 300)):
                self._step()
                self._check_memory()
            self._settle_down()

    # Steps.

    def _step(self) -> None:
        choice = self._random.random()
        if choice < 0.35:
            self._random.choice(self._producers).act()
        elif choice < 0.6:
            self._consume()
        elif choice < 0.8:
            self._stepped.turn()
        elif choice < 0.92:
            self._end_commit()
        elif choice < 0.95:
            self._pass_time(self._random.choice((0.1, 1.0, 3.0)))
        elif choice < 0.98 and self._departures:
            self._depart()
        elif choice > 0.99 and self._crashes:
            self._crash()
        self._replace_the_lost()

    def _consume(self) -> None:
        if len(self._consumers) < 3 and self._random.random() < 0.3:
            self._consumers.append(self._subscribe(self._random.choice(("a", "a", "b", DEAD_LETTERS))))
        elif self._consumers:
            self._random.choice(self._consumers).act(rejects=self._rejections)

    def _subscribe(self, queue: str) -> Consumer:
        others = [consumer for consumer in self._consumers if consumer.queue == queue]
        for consumer in others:
            consumer.alone = False
            consumer.rejected.clear()
        client = self._stepped.connect(self._random.choice(("1.1", "1.2")))
        return Consumer(
            client, self._promises, self._random, self.history.append,
            queue=queue, ack=self._random.choice(("client-individual", "client", "auto")),
            prefetch=self._random.choice((1, 2, 5, 100)), alone=not others,
            gets_back=self._settings.policies.base.maximum_redeliveries > 0,
        )  # fmt: skip

    def _end_commit(self) -> None:
        if self._stepped.writer.batch is None:
            return
        if self._failures and self._random.random() < 0.3:
            self.history.append("the commit fails")
            self._stepped.commit(StoreFull("no space"))
        else:
            self.history.append("the commit is done")
            self._stepped.commit()

    def _pass_time(self, seconds: float) -> None:
        self.history.append(f"{seconds} s go by")
        self._stepped.advance(seconds)

    def _depart(self) -> None:
        actors = [*self._consumers, *self._producers]
        self._random.choice(actors).leave(vanish=self._random.random() < 0.5)

    def _crash(self) -> None:
        announced = "nothing was under way"
        if self._stepped.writer.batch is not None:
            applied = self._random.random() < 0.5
            announced = f"the commit under way was {'' if applied else 'not '}done"
            if applied:
                self._stepped.writer.apply()
        self.history.append(f"crash; {announced}")
        for actor in (*self._producers, *self._consumers):
            actor.client.connection.closed = True
            actor.lose()
        self._consumers.clear()
        self._promises.epoch += 1
        self._stepped = self._stepped.reopen()

    def _replace_the_lost(self) -> None:
        for consumer in [consumer for consumer in self._consumers if consumer.is_gone]:
            consumer.lose()
            self._consumers.remove(consumer)
        for producer in self._producers:
            if producer.is_gone:
                producer.lose()
                producer.come_back(self._stepped.connect())

    # Checks.

    def _check_memory(self) -> None:
        memory, limit = self._stepped.broker.memory, self._settings.memory.limit
        if memory.peak > limit + GREATEST * len(QUEUES):
            raise Broken(f"{memory.peak} bytes were resident, the limit is {limit}")

    def _settle_down(self) -> None:
        """Make the store work, let everybody finish, consume everything, and look at what is left."""
        self.history.append("settling down")
        self._come_to_rest()
        self._check_counts()
        self._finish_consumers()
        self._drain()
        for producer in self._producers:
            producer.listen()
            if producer.receipts and not producer.is_gone:
                raise Broken(f"{producer.name} still waits for {list(producer.receipts)}")
            producer.leave(vanish=False)
        self._drain()
        self._promises.check_nothing_lost()
        self._check_empty()

    def _finish_consumers(self) -> None:
        """Let those that are there consume their queues: nothing may keep them from it but themselves."""
        while any([consumer.settle_all() for consumer in self._consumers]):
            self._replace_the_lost()
            self._come_to_rest()
        for consumer in self._consumers:
            if self._stepped.queue(consumer.queue).depth and not consumer.is_gone:
                raise Broken(f"{consumer.name} gets nothing more of {consumer.queue}")
            consumer.leave(vanish=False)
        self._consumers.clear()

    def _come_to_rest(self) -> None:
        for _ in range(8):
            self._stepped.run()
            self._stepped.advance(1.0)
        self._stepped.run()

    def _drain(self) -> None:
        while any([queue.depth for queue in self._stepped.broker.queues.values()]):
            before = {name: queue.depth for name, queue in self._stepped.broker.queues.items()}
            for name in QUEUES:
                consumer = self._subscribe(name)
                self._stepped.run()
                while consumer.settle_all():
                    self._stepped.run()
                consumer.leave(vanish=False)
                self._come_to_rest()
            after = {name: queue.depth for name, queue in self._stepped.broker.queues.items()}
            if before == after:
                raise Broken(f"the consumers of {after} get nothing more")

    def _check_counts(self) -> None:
        store, spool = self._stepped.store, self._stepped.spool
        for name, queue in self._stepped.broker.queues.items():
            state = store.lane_state(queue.lanes[0].id)
            count = state.count + len(spool.links(queue.lanes[0].id, 0, 1 << 30)) + len(queue.unstored())
            if queue.depth != count:
                raise Broken(f"{name} counts {queue.depth} messages and has {count}")

    def _check_empty(self) -> None:
        broker, stepped = self._stepped.broker, self._stepped
        left = {
            "stored": stepped.store.size(), "counted": broker.stored_bytes, "resident": broker.memory.used,
            "spooled": stepped.spool.used, "transacted": broker.transaction_bytes,
        }  # fmt: skip
        if any(left.values()):
            raise Broken(f"everything is consumed, and there is something left: {left}")
