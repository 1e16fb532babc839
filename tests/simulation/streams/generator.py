"""Makes a history of streams out of a seed."""

from random import Random
from typing import Literal

from quire.broker.streams.groups.group_definition import Order
from tests.simulation.generator import CONSUMERS, PRODUCERS, Generator, Weights
from tests.simulation.steps import Fail, Step, Turn
from tests.simulation.streams.hands import AckMode
from tests.simulation.streams.moving import To
from tests.simulation.streams.setup import GroupSetup, StreamSetup
from tests.simulation.streams.steps import Extend, Grow, Join, Move, Pin, Reject, Send, Settle, Stop, Stray

NAMES = ("", "m0", "m1")
"""Under which names clients join; the first is none."""


class StreamGenerator(Generator):
    """Draws one history."""

    FEATURES = (
        "crashes", "failures", "rejections", "departures", "transactions", "slow-readers", "names", "keys",
        "partitions", "selectors", "strays", "leases", "retention", "two-groups", "readers", "stops", "tight", "moves",
    )  # fmt: skip
    CHANCE = 0.4
    JUMPING = 4
    WAITS = (0.1, 0.6, 1.1, 3.0, 7.0)

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._groups: tuple[str, ...] = ("g",)

    def _weights(self) -> Weights:
        return {
            self._send: 18, self._join: 8, self._settle: 16, self._wait: 5,
            Turn: 14, self._finish: 9, self._run: 8,
            self._reject: 5 * self._has("rejections"), self._extend: 2 * self._has("leases"),
            self._stray: 4 * self._has("strays"),
            self._begin: 2 * self._has("transactions"), self._end: 4 * self._has("transactions"),
            self._leave: 4 * self._has("departures"), self._read: 2 * self._has("slow-readers"),
            self._fail: 2 * self._has("failures"), self._crash: 2 * self._has("crashes"), Stop: self._has("stops"),
            Grow: self._has("partitions"), self._pin: self._has("retention"), self._move: 2 * self._has("moves"),
        }  # fmt: skip

    def _setup(self) -> StreamSetup:
        choice = self._random.choice
        tight, keeps = self._has("tight"), not self._has("retention")
        retries: tuple[Literal["relocated", "in-place"], ...] = ("relocated", "relocated", "in-place")
        strategies: tuple[Literal["averagely", "averagely-by-circle", "consistent-hash", "sticky", "shared"], ...]
        strategies = ("averagely", "averagely", "averagely-by-circle", "consistent-hash", "sticky", "shared")
        setup = StreamSetup(
            memory_limit=choice((1, 2500, 5000, 10_000)) if tight else 10**6,
            store_limit=choice((10**9, 10_000)) if tight else 10**9,
            partitions=choice((1, 1, 2, 3)),
            retention_time=-1.0 if keeps else choice((-1.0, 2.0, 8.0)),
            retention_bytes=0 if keeps else choice((0, 1000, 3000)),
            retention_groups_done=not keeps and choice((False, True)),
            max_in_flight=choice((1, 2, 5, 2000)) if tight else 2000,
            max_in_flight_bytes=choice((1, 2000, 10**6)) if tight else 10**6,
            consume_timeout=choice((1.0, 2.5, 30.0)) if self._has("leases") else 30.0,
            retry=choice(retries),
            retry_maximum=choice((0, 1, 3, 16)),
            retry_delays=choice(((1.0, 2.0), (0.5,), (0.0, 1.0))),
            strategy=choice(strategies),
            revoke_timeout=choice((0.3, 2.0)),
            groups=tuple([self._group(name) for name in ("g", "h")[: 1 + self._has("two-groups")]]),
        )
        self._groups = tuple([group.name for group in setup.groups])
        return setup

    def _group(self, name: str) -> GroupSetup:
        choice = self._random.choice
        starts: tuple[Literal["earliest", "latest"], ...] = ("earliest", "earliest", "latest")
        return GroupSetup(
            name,
            order=choice((Order.CONCURRENT, Order.CONCURRENT, Order.ORDERLY, Order.KEY_ORDERED)),
            color=choice(("", "red")) if self._has("selectors") else "",
            start=choice(starts),
        )

    # Clients.

    def _send(self) -> Step:
        random = self._random
        return Send(
            client=random.choice(PRODUCERS) if random.random() < 0.9 else random.choice(CONSUMERS),
            size=random.choice((0, 10, 200, 900)),
            count=random.choice((1, 1, 2, 4)),
            partition=random.choice((-1, 0, 1)),
            key=random.choice(("", "j", "k")) if self._has("keys") else "",
            color=random.choice(("", "red", "blue")) if self._has("selectors") else "",
            receipt=random.random() < 0.5,
        )

    def _join(self) -> Step:
        random = self._random
        acks: tuple[AckMode, ...] = ("client-individual", "client-individual", "client", "auto")
        claims: tuple[Literal["none", "some", "all", "*"], ...] = ("none", "some", "all", "*")
        return Join(
            client=random.choice(CONSUMERS),
            group="" if self._has("readers") and random.random() < 0.2 else random.choice(self._groups),
            member=random.choice(NAMES) if self._has("names") else "",
            ack=random.choice(acks),
            prefetch=random.choice((1, 2, 5, 100)),
            timeout=random.choice((0, 1.0, 3.0)) if self._has("leases") else 0,
            claim=random.choice(claims),
            says_order=random.random() < 0.3,
            events=random.random() < 0.3,
        )

    def _settle(self) -> Step:
        random = self._random
        return Settle(
            client=random.choice(CONSUMERS),
            pick=random.choice((0, 0, 0, 1, 2, 7)),
            count=random.choice((1, 1, 2, 5)),
            receipt=random.random() < 0.5,
        )

    def _reject(self) -> Step:
        random = self._random
        return Reject(
            client=random.choice(CONSUMERS),
            pick=random.choice((0, 0, 1, 2)),
            delay=random.choice((-1, -1, 0, 0.5, 3.0)),
            level=random.choice((0, 0, 0, 1, -1)),
            receipt=random.random() < 0.5,
        )

    def _extend(self) -> Step:
        return Extend(self._random.choice(CONSUMERS), self._random.choice((0, 1, 2)), self._random.choice((1.0, 4.0)))

    def _stray(self) -> Step:
        return Stray(self._random.choice(CONSUMERS), self._random.randint(0, 9), reject=self._random.random() < 0.2)

    def _pin(self) -> Step:
        return Pin(self._random.choice((1, 3, 8)), self._random.choice((1.0, 5.0)))

    def _move(self) -> Step:
        choice = self._random.choice
        tos: tuple[To, ...] = ("earliest", "latest", "offset", "shift")
        fails = self._random.choice((0, *range(4, 16))) if self._has("failures") else 0
        return Move(choice(self._groups), choice(tos), choice((-2, 1, 2, 5)), choice((-1, -1, 0, 1)), fails)

    def _fail(self) -> Step:
        at, times = self._random.choice((1, 1, 2, 3, 5, 8)), self._random.choice((1, 1, 1, 2, 10))
        return Fail("read", at=at, times=times)
