"""Producers and consumers that go on whatever happens to the broker: what is not confirmed they do again."""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from random import Random
from types import MappingProxyType

from tests.acceptance.crash.ledger import Key, Ledger, Order
from tests.acceptance.crash.peer import Frame, Lost, Peer

PAUSE = 0.05
"""How long an actor waits before it connects again, in seconds."""

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Place:
    """Where the broker is now.

    Attributes:
        port: its STOMP port; 0 while there is none.
        silence: after how many seconds without a sign of life clients look for another broker.
        pause: how long a producer rests after each look at what has come, in seconds: that bounds the load.
        ends_first: whether the broker knows that a connection has ended before its client comes again. Otherwise what
            was under way over it may come later than what is newer.
    """

    def __init__(self) -> None:
        self.port = 0
        self.silence = math.inf
        self.pause = 0.0
        self.ends_first = True

    @property
    def hosts(self) -> list[tuple[str, int]]:
        """Where the brokers are that a client tries one after the other."""
        return [("127.0.0.1", self.port)] if self.port else []


def _destination(name: str) -> str:
    return name if name.startswith("/") else f"/queue/{name}"


class Actor(ABC):
    """A client.

    Args:
        place: where the broker is.
        queue: the queue it works on; or another destination, as STOMP writes it: ``/topic/prices``.
        ledger: the queue's ledger.

    Attributes:
        ending: whether nothing new is to be begun.
        client_id: what it tells the broker; nothing if empty.
    """

    def __init__(self, place: Place, queue: str, ledger: Ledger) -> None:
        self.ending = False
        self.client_id = ""
        self._tries = 0
        self._place = place
        self._destination = _destination(queue)
        self._ledger = ledger

    async def run(self) -> None:
        """Work until it is done, over as many connections as it takes."""
        while not self._done():
            if hosts := self._place.hosts:
                try:
                    host = hosts[self._tries % len(hosts)]
                    peer = await Peer.connect(*host, self._place.silence, self.client_id)
                    try:
                        await self._work(peer)
                    finally:
                        peer.close()
                except Lost as lost:
                    self._tries += 1
                    self._ledger.errors += [lost.code] if lost.code else []
            await asyncio.sleep(PAUSE)

    def _done(self) -> bool:
        """Whether there is nothing left to do."""
        return False

    @abstractmethod
    async def _work(self, peer: Peer) -> None:
        """Work over one connection.

        Raises:
            Lost: it is gone.
        """


class Producer(Actor):
    """Sends messages, many before the first is confirmed, and sends again what a lost connection left unconfirmed.

    Args:
        place: where the broker is.
        queue: where to.
        ledger: the queue's ledger.
        name: of its own.
        numbered: whether it numbers its sends, for de-duplication.
        transaction: how many messages it sends in a transaction; 1 for none.
        window: how many transactions or messages may be unconfirmed.
        headers: more of each message.

    Attributes:
        unanswered_since: since when the broker has not answered, on the monotonic clock; None while nothing is asked.
    """

    def __init__(
        self, place: Place, queue: str, ledger: Ledger, name: str, numbered: bool = False, transaction: int = 1,
        window: int = 20, headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:  # fmt: skip
        super().__init__(place, queue, ledger)
        self._headers = headers
        self.name = name
        self.numbered = numbered
        self.transaction = transaction
        self._window = window
        self._attempt = 0
        self._next_unit = 1
        self._unconfirmed: list[int] = []
        self.unanswered_since: float | None = None

    def _done(self) -> bool:
        return self.ending and not self._unconfirmed

    async def _work(self, peer: Peer) -> None:
        self._attempt += 1
        self.unanswered_since = time.monotonic()
        try:
            await self._send_all(peer)
        finally:
            self.unanswered_since = None

    async def _send_all(self, peer: Peer) -> None:
        for unit in self._unconfirmed:
            self._send(peer, unit)
        begun = self._unconfirmed.copy()
        while not self._done():
            while not self.ending and len(self._unconfirmed) < self._window:
                self._unconfirmed.append(self._next_unit)
                begun.append(self._next_unit)
                self._send(peer, self._next_unit)
                self._next_unit += 1
            if self._place.pause:
                await asyncio.sleep(self._place.pause)
            frames = await peer.receive()
            if self.transaction > 1:  # sent later than what is in it, so that a kill can come between
                for unit in begun:
                    peer.send("COMMIT", {"transaction": str(unit), "receipt": str(unit)})
            begun.clear()
            if frames or not self._unconfirmed:
                self.unanswered_since = time.monotonic()
            for frame in frames:
                assert frame.command == "RECEIPT"
                unit = int(frame.headers["receipt-id"])
                self._unconfirmed.remove(unit)
                self._ledger.confirm((self.name, number) for number in self._numbers(unit))

    def _numbers(self, unit: int) -> range:
        return range((unit - 1) * self.transaction + 1, unit * self.transaction + 1)

    def headers_of(self, number: int) -> dict[str, str]:
        """More headers of a message; ``number`` says which it is."""
        return {}

    def _send(self, peer: Peer, unit: int) -> None:
        common = {"destination": self._destination, **self._headers}
        common |= {"producer-id": self.name} if self.numbered else {}
        if self.transaction > 1:
            common["transaction"] = str(unit)
            peer.send("BEGIN", {"transaction": str(unit)})
        else:
            common["receipt"] = str(unit)
        for number in self._numbers(unit):
            headers = common | self.headers_of(number)
            headers |= {"producer-sequence": str(number)} if self.numbered else {}
            size = 20_000 if number % 50 == 0 else 100
            body = Key(self.name, self._attempt, unit, number).body(size)
            peer.send("SEND", headers, body)


class Consumer(Actor):
    """Takes messages and acknowledges them one by one, in portions, some of them late.

    Args:
        place: where the broker is.
        queue: where from.
        ledger: the queue's ledger.
        random: says how late.
        prefetch: how many messages it may have unacknowledged.
        headers: more of its subscription.
        shares: whether there is another consumer.

    Attributes:
        unsettled: how many messages it has whose acknowledgement is not confirmed.
        has_subscribed: whether a broker has confirmed its subscription.
    """

    def __init__(
        self, place: Place, queue: str, ledger: Ledger, random: Random, prefetch: int = 100,
        headers: Mapping[str, str] = NO_HEADERS, shares: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(place, queue, ledger)
        self.unsettled = 0
        self._shares = shares
        self.has_subscribed = False
        self._headers = headers
        self._random = random
        self._prefetch = prefetch

    async def _work(self, peer: Peer) -> None:
        headers = {"destination": self._destination, "id": "1", "ack": "client-individual", "receipt": "subscribed"}
        peer.send("SUBSCRIBE", headers | {"activemq.prefetchSize": str(self._prefetch), **self._headers})
        order = Order(self._ledger, shares=self._shares)
        waiting: list[Frame] = []
        settling: dict[str, list[str]] = {"subscribed": []}
        while True:
            for frame in await peer.receive():
                if frame.command == "RECEIPT":
                    self.has_subscribed = True  # the broker answers in order
                    self._ledger.settled.update(settling.pop(frame.headers["receipt-id"]))
                else:
                    self._take(frame, order)
                    waiting.append(frame)
            late = 0 if self.ending else self._random.randrange(self._prefetch // 2)
            if portion := waiting[: max(len(waiting) - late, 0)]:
                del waiting[: len(portion)]
                receipt = portion[-1].headers["ack"]
                settling[receipt] = [frame.headers["message-id"] for frame in portion]
                self._ledger.acknowledge(settling[receipt])
                self._settle(peer, portion, receipt)
            self.unsettled = len(waiting) + len(settling)

    def _take(self, frame: Frame, order: Order) -> None:
        key = Key.of(frame.body)
        redelivered = frame.headers.get("redelivered") == "true"
        self._ledger.deliver(frame.headers["message-id"], key, redelivered)
        if self._place.ends_first:
            order.follow(key, redelivered=redelivered)
        elif not redelivered:
            order.follow(key._replace(producer=f"{key.producer} {key.attempt}"))

    def _settle(self, peer: Peer, portion: list[Frame], receipt: str) -> None:
        for frame in portion[:-1]:
            peer.send("ACK", {"id": frame.headers["ack"]})
        peer.send("ACK", {"id": receipt, "receipt": receipt})


class Forwarder(Consumer):
    """Takes messages and sends each on to another queue, both in one transaction.

    Args:
        place: where the broker is.
        queue: where from.
        target: where to.
        ledger: the first queue's ledger.
        random: says how late.
    """

    def __init__(self, place: Place, queue: str, target: str, ledger: Ledger, random: Random) -> None:
        super().__init__(place, queue, ledger, random, prefetch=20)
        self._target = _destination(target)

    def _settle(self, peer: Peer, portion: list[Frame], receipt: str) -> None:
        transaction = {"transaction": receipt}
        peer.send("BEGIN", transaction)
        for frame in portion:
            peer.send("SEND", {"destination": self._target} | transaction, frame.body)
            peer.send("ACK", {"id": frame.headers["ack"]} | transaction)
        peer.send("COMMIT", transaction | {"receipt": receipt})
