"""Makes a history of queues out of a seed."""

from random import Random
from typing import Literal

from tests.simulation.generator import CONSUMERS, PRODUCERS, Generator, Weights
from tests.simulation.queues.setup import QUEUES, QueueSetup
from tests.simulation.queues.steps import Send, Settle, Subscribe
from tests.simulation.queues.subscribed import AckMode
from tests.simulation.steps import Fail, Step, Turn


class QueueGenerator(Generator):
    """Draws one history."""

    FEATURES = (
        "crashes", "failures", "rejections", "departures", "transactions", "expiry", "non-persistent", "slow-readers",
        "several-consumers", "groups", "selectors", "exclusive", "priorities", "delays",
    )  # fmt: skip
    CHANCE = 0.5
    JUMPING = 4
    WAITS = (0.1, 1.0, 3.0)

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._queues: tuple[str, ...] = QUEUES
        if not self._has("several-consumers"):
            self._consumers = CONSUMERS[:1]

    def _weights(self) -> Weights:
        return {
            self._send: 20, self._subscribe: 6, self._settle: 18, self._wait: 2,
            Turn: 14, self._finish: 10, self._run: 8,
            self._begin: 3 * self._has("transactions"), self._end: 4 * self._has("transactions"),
            self._leave: 4 * self._has("departures"), self._read: 3 * self._has("slow-readers"),
            self._fail: 4 * self._has("failures"), self._crash: 2 * self._has("crashes"),
        }  # fmt: skip

    def _setup(self) -> QueueSetup:
        choice, random = self._random.choice, self._random
        delays = self._has("delays")
        at: tuple[Literal["in-place", "tail"], ...] = ("in-place", "in-place", "tail") if delays else ("in-place",)
        redelivery_at = choice(at)
        setup = QueueSetup(
            memory_limit=choice((1, 2500, 5000, 10_000, 1_000_000)),
            queue_limit=choice((0, 0, 2000)),
            store_limit=choice((10**9, 10**9, 10_000)),
            spool_limit=choice((10**9, 10**9, 5_000)),
            maximum_redeliveries=choice((0, 2, 6)),
            redelivery_delay=choice((0.5, 2.0)) if delays else 0,
            redelivery_at=redelivery_at,
            blocking_redelivery=redelivery_at == "in-place" and random.random() < 0.3,
            strict_order_dispatch=random.random() < 0.1,
            individual_dead_letters=random.random() < 0.2,
            prioritized=choice((("a",), ("b",), QUEUES)) if self._has("priorities") else (),
            numbered=tuple([name for name in PRODUCERS if random.random() < 0.3]),
        )
        self._queues = setup.queues
        return setup

    # Clients.

    def _send(self) -> Step:
        random = self._random
        return Send(
            client=random.choice(PRODUCERS) if random.random() < 0.9 else random.choice(self._consumers),
            queue=random.choice((*QUEUES, QUEUES[0])),
            size=random.choice((0, 10, 200, 900)),
            count=random.choice((1, 1, 1, 2, 5)),
            persistent=not (self._has("non-persistent") and random.random() < 0.4),
            receipt=random.random() < 0.5,
            ttl=random.choice((0.5, 2.0)) if self._has("expiry") and random.random() < 0.2 else 0,
            priority=random.choice((0, 4, 4, 9)) if self._has("priorities") else 4,
            group=random.choice(("", "g", "h")) if self._has("groups") else "",
            color=random.choice(("", "red", "blue")) if self._has("selectors") else "",
        )

    def _subscribe(self) -> Step:
        random = self._random
        acks: tuple[AckMode, ...] = ("client-individual", "client", "auto")
        return Subscribe(
            client=random.choice(self._consumers),
            queue=random.choice((*self._queues, QUEUES[0])),
            ack=random.choice(acks),
            prefetch=random.choice((1, 2, 5, 100)),
            version=random.choice(("1.1", "1.2")),
            color=random.choice(("", "red", "blue")) if self._has("selectors") else "",
            exclusive=self._has("exclusive") and random.random() < 0.4,
            priority=random.choice((0, 0, 3)) if self._has("several-consumers") else 0,
        )

    def _settle(self) -> Step:
        random = self._random
        return Settle(
            client=random.choice(self._consumers),
            pick=random.choice((0, 0, 0, 1, 2, 7)),
            count=random.choice((1, 1, 2, 5)),
            reject=self._has("rejections") and random.random() < 0.3,
            receipt=random.random() < 0.5,
        )

    def _fail(self) -> Step:
        random = self._random
        if random.random() < 0.25:
            return Fail("spool")
        return Fail("read", at=random.choice((1, 1, 2, 3, 5, 8)), times=random.choice((1, 1, 1, 2, 5)))
