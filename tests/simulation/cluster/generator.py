"""Makes a history of a cluster out of a seed."""

from random import Random

from tests.simulation.cluster.setup import ALL_QUEUES, DURABLE, QUEUES, TOPIC, ClusterSetup
from tests.simulation.cluster.steps import (
    Continue,
    Cut,
    Deliver,
    Finish,
    Kill,
    Move,
    Place,
    Send,
    Settle,
    Stop,
    Subscribe,
    Turn,
    Wait,
    Write,
)
from tests.simulation.cluster.subscribed import AckMode
from tests.simulation.generator import CONSUMERS, PRODUCERS, Generator, Weights
from tests.simulation.steps import Crash, Step


class ClusterGenerator(Generator):
    """Draws one history."""

    FEATURES = (
        "crashes", "stops", "moves", "cuts", "failures", "rejections", "departures", "transactions", "slow-readers",
        "several-consumers", "spread", "silence", "places", "durable",
    )  # fmt: skip
    CHANCE = 0.5
    WAITS = (0.5, 1.0, 2.0)

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._shards = random.choice((2, 2, 3))
        if not self._has("several-consumers"):
            self._consumers = CONSUMERS[:1]
        if self._has("durable"):
            self._consumers += (DURABLE,)
        clients = (*PRODUCERS, *self._consumers)
        self._homes = {client: random.choice((QUEUES[:2], QUEUES[2:3], QUEUES[-1:])) for client in clients}

    def _weights(self) -> Weights:
        return {
            self._send: 20, self._subscribe: 6, self._settle: 18, self._wait: 3,
            self._turn: 14, self._finish: 12, self._write: 2, self._deliver: 20, self._run: 6,
            self._begin: 3 * self._has("transactions"), self._end: 4 * self._has("transactions"),
            self._leave: 4 * self._has("departures"), self._read: 3 * self._has("slow-readers"),
            self._kill: 2 * self._has("crashes"), self._crash: 2 * self._has("crashes"),
            self._stop: 3 * self._has("stops"), self._continue: 3 * self._has("stops"),
            self._move: 2 * self._has("moves"), self._cut: 2 * self._has("cuts"), self._place: 4 * self._has("places"),
        }  # fmt: skip

    def _setup(self) -> ClusterSetup:
        choice, random = self._random.choice, self._random
        # What is known of those that number their sends is known at the shard where these came.
        numbering = 0.0 if self._has("places") else 0.3
        return ClusterSetup(
            shards=self._shards,
            gathers=random.random() < 0.5,
            packet=choice((1 << 16, 1 << 16, 100)),
            memory_limit=choice((2500, 10_000, 1_000_000)),
            store_limit=choice((10**9, 10**9, 10_000)),
            numbered=tuple([name for name in PRODUCERS if random.random() < numbering]),
        )

    def _shard(self) -> int:
        return self._random.randrange(self._shards)

    def _any_process(self) -> int:
        return self._random.randrange(-1, self._shards)

    def _queue(self, client: str) -> str:
        """Where a client sends to, or what it consumes. Many transactions are about one shard, many about several."""
        random = self._random
        if client == DURABLE:
            return TOPIC
        stays = self._has("transactions") and random.random() < 0.6
        return random.choice(self._homes[client] if stays else (*QUEUES, QUEUES[0]))

    def _entry(self) -> int:
        return self._random.randrange(self._shards + 1)

    # Clients.

    def _send(self) -> Step:
        random = self._random
        consumes = random.random() < (0.3 if self._has("spread") else 0.1)
        client = random.choice(self._consumers if consumes else PRODUCERS)
        return Send(
            client=client,
            queue=TOPIC if self._has("durable") and random.random() < 0.2 else self._queue(client),
            size=random.choice((0, 10, 200, 900)),
            count=random.choice((1, 1, 1, 2, 5)),
            receipt=random.random() < 0.6,
            entry=self._entry(),
        )

    def _subscribe(self) -> Step:
        random = self._random
        acks: tuple[AckMode, ...] = ("client-individual", "client")
        client = random.choice(self._consumers)
        spread = self._has("spread") and client != DURABLE and random.random() < 0.5
        return Subscribe(
            client=client,
            queue=ALL_QUEUES if spread else self._queue(client),
            ack=random.choice(acks),
            prefetch=random.choice((1, 2, 5, 100)),
            entry=self._entry(),
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

    # Processes.

    def _turn(self) -> Step:
        return Turn(self._any_process())

    def _finish(self) -> Step:
        return Finish(self._shard(), fails=self._has("failures") and self._random.random() < 0.2)

    def _write(self) -> Step:
        return Write(self._shard())

    def _deliver(self) -> Step:
        return Deliver(pick=self._random.randrange(8), count=self._random.choice((1, 1, 2, 5)))

    def _wait(self) -> Step:
        waits = (*self.WAITS, 4.0) if self._has("crashes") or self._has("stops") else self.WAITS
        return Wait(self._random.choice(waits), quiet=self._has("silence") and self._random.random() < 0.3)

    def _stop(self) -> Step:
        return Stop(self._any_process())

    def _continue(self) -> Step:
        return Continue(self._any_process())

    def _kill(self) -> Step:
        random = self._random
        written, silently = random.random() < 0.5, self._has("silence") and random.random() < 0.3
        return Kill(self._any_process(), written=written, silently=silently)

    def _crash(self) -> Step:
        return Crash(at=self._random.choice((1, 2, 3, 5, 10, 20)), written=self._random.random() < 0.5)

    def _move(self) -> Step:
        return Move(self._shard())

    def _place(self) -> Step:
        return Place(self._random.choice(QUEUES), self._shard(), self._random.randrange(2))

    def _cut(self) -> Step:
        return Cut(pick=self._random.randrange(6), kept=self._random.choice((0, 0, 1, 3)))
