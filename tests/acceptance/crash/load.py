"""Clients that go on whatever happens to the broker, what they know over all its deaths, and what breaks a promise."""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import NamedTuple, Self

from quire.protocols.stomp.decoder import Decoder, Limits
from quire.protocols.stomp.frames import SERVER_COMMANDS, encode_frame


class Key(NamedTuple):
    """Which message it is to its producer; its body begins with it."""

    producer: str  # who sent it
    attempt: int  # over which of its connections, counted from 1
    unit: int  # which of its transactions it is part of; a message without a transaction is its own
    number: int  # which of its messages

    def body(self, size: int) -> bytes:
        return (" ".join(map(str, self)) + "\n").encode() + bytes(size)

    @classmethod
    def of(cls, body: bytes) -> "Key":
        producer, *numbers = body[: body.index(b"\n")].decode().split()
        return cls(producer, *map(int, numbers))


class Ledger:
    """Everything that was confirmed, received and acknowledged on one queue."""

    def __init__(self) -> None:
        self.violations: list[str] = []  # promises that were broken, for people
        self.errors: list[str] = []  # codes of the errors that the broker sent
        self.confirmed: set[tuple[str, int]] = set()  # what has a receipt: producer and number
        self.received: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self.settled: set[str] = set()  # message ids of which the acknowledgement has a receipt
        self.held: set[str] = set()  # delivered and not acknowledged: these come again when the connection is lost
        self.redelivered = 0  # how many deliveries were flagged
        self.others: list[Ledger] = []  # the ledgers of other subscriptions that get the same messages
        self._missing: set[tuple[str, int]] = set()
        self._seen: set[str] = set()
        self._units: defaultdict[tuple[str, int, int], set[int]] = defaultdict(set)

    def confirm(self, keys: Iterable[tuple[str, int]]) -> None:
        """A broker has confirmed messages."""
        keys = list(keys)
        for ledger in (self, *self.others):
            ledger.confirmed.update(keys)
            ledger._missing.update([key for key in keys if key not in ledger.received])

    def deliver(self, id: str, key: Key, redelivered: bool) -> None:
        self.redelivered += redelivered
        if id in self.settled:
            self.violations.append(f"{id} {key} came back after its acknowledgement was confirmed")
        if id in self._seen and not redelivered:
            self.violations.append(f"{id} {key} was delivered before and came back without the flag")
        self._seen.add(id)
        self.held.add(id)
        self.received[key.producer, key.number].add(id)
        self._missing.discard((key.producer, key.number))
        self._units[key.producer, key.attempt, key.unit].add(key.number)

    def acknowledge(self, ids: Iterable[str]) -> None:
        self.held.difference_update(ids)

    def note(self, error: Exception) -> None:
        """An error that no call raised: of an acknowledgement that a broker could not store, say."""
        self.errors.append(getattr(error, "code", type(error).__name__))

    @property
    def missing(self) -> list[tuple[str, int]]:
        return sorted(self._missing)

    def check_once(self, producer: str) -> None:
        for (name, number), ids in self.received.items():
            if name == producer and len(ids) > 1:
                self.violations.append(f"{producer} {number} was stored {len(ids)} times")

    def check_whole(self, producer: str, size: int) -> None:
        for (name, attempt, unit), numbers in self._units.items():
            if name == producer and len(numbers) != size:
                self.violations.append(f"of {producer} {attempt} {unit} only {sorted(numbers)} were stored")


class Order:
    """Whether one consumer gets each producer's messages in order; a new one for each connection."""

    def __init__(self, ledger: Ledger, *, shares: bool = False) -> None:
        self._ledger = ledger  # where a violation goes
        self._shares = shares  # what another consumer had when its connection was lost comes late then
        self._last: dict[str, tuple[int, int]] = {}

    def follow(self, key: Key, *, redelivered: bool = False) -> None:
        """The next message. What a producer sent over a later connection comes after what it sent before."""
        if redelivered and self._shares:
            return
        place = (key.attempt, key.number)
        last = self._last.get(key.producer, (0, 0))
        if place <= last:
            self._ledger.violations.append(f"{key} came after {last}")
        self._last[key.producer] = place


TICK = 0.1
"""How long ``receive`` waits, in seconds: a client has to notice now and then that it is to end."""


LIMITS = Limits(max_headers=10_000, max_line=1024 * 1024, max_body=2**31)
"""What a broker may send: whether that is right is for the tests to say."""


class Frame(NamedTuple):
    command: str  # ``MESSAGE`` say
    headers: dict[str, str]  # unescaped; of a repeated header the first counts
    body: bytes


class Lost(Exception):
    def __init__(self, code: str = "") -> None:
        super().__init__(code)
        self.code = code  # the error's code if the broker sent one


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence: float) -> None:
        self._reader = reader
        self._writer = writer
        self._silence = silence
        self._heard = time.monotonic()
        self._decoder = Decoder(LIMITS, SERVER_COMMANDS)
        self._output: list[bytes] = []

    @classmethod
    async def connect(cls, host: str, port: int, silence: float = math.inf, client_id: str = "") -> Self:
        """Connect and wait for the broker's answer."""
        try:
            async with asyncio.timeout(None if math.isinf(silence) else silence / 3):
                peer = cls(*await asyncio.open_connection(host, port), silence)
        except OSError:
            raise Lost from None
        beat = 0 if math.isinf(silence) else int(silence * 1000 / 4)
        headers = {"accept-version": "1.2", "host": "test", "heart-beat": f"0,{beat}"}
        peer.send("CONNECT", headers | ({"client-id": client_id} if client_id else {}))
        try:
            while not await peer.receive():
                pass
        except BaseException:
            peer.close()
            raise
        return peer

    def send(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        """Send a frame; it leaves with the next ``receive``."""
        self._output.append(encode_frame(command.encode(), headers, body))

    async def receive(self) -> list[Frame]:
        output, self._output = b"".join(self._output), []
        try:
            self._writer.write(output)
            data = await asyncio.wait_for(self._reader.read(1 << 16), TICK)
        except TimeoutError:
            if time.monotonic() - self._heard > self._silence:
                raise Lost from None
            return []
        except OSError:
            raise Lost from None
        if not data:
            raise Lost
        self._heard = time.monotonic()
        frames = []
        self._decoder.receive(data)
        while events := self._decoder.next_events():
            for head, _, body in events:
                frame = Frame(head.command.decode(), head.headers, bytes(body))
                if frame.command == "ERROR":
                    raise Lost(frame.headers["code"])
                frames.append(frame)
        return frames

    def close(self) -> None:
        self._writer.close()


PAUSE = 0.05
"""How long an actor waits before it connects again, in seconds."""

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Place:
    """Where the broker is now."""

    def __init__(self) -> None:
        self.port = 0  # its STOMP port; 0 while there is none
        self.silence = math.inf  # after how many seconds without a sign of life clients look for another broker
        self.pause = 0.0  # how long a producer rests after each look at what has come, in seconds: that bounds the load
        # Whether the broker knows that a connection has ended before its client comes again. Otherwise what was under
        # way over it may come later than what is newer.
        self.ends_first = True

    @property
    def hosts(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", self.port)] if self.port else []


def _destination(name: str) -> str:
    return name if name.startswith("/") else f"/queue/{name}"


class Actor(ABC):
    """A client."""

    def __init__(self, place: Place, queue: str, ledger: Ledger) -> None:
        self.ending = False  # whether nothing new is to be begun
        self.unsettled = 0  # how many messages it has whose acknowledgement is not confirmed
        self.has_subscribed = False  # whether a broker has confirmed its subscription
        self.client_id = ""  # what it tells the broker; nothing if empty
        self._tries = 0
        self._place = place  # where the broker is
        self._destination = _destination(queue)
        self._ledger = ledger  # the queue's ledger

    async def run(self) -> None:
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
        """Work over one connection."""


class Producer(Actor):
    """Sends messages, many before the first is confirmed, and sends again what a lost connection left unconfirmed."""

    def __init__(
        self, place: Place, queue: str, ledger: Ledger, name: str, numbered: bool = False, transaction: int = 1,
        window: int = 20, headers: Mapping[str, str] = NO_HEADERS, turns: Sequence[Mapping[str, str]] = (NO_HEADERS,),
    ) -> None:  # fmt: skip
        super().__init__(place, queue, ledger)
        self._headers = headers  # more of each message
        self._turns = turns  # more of messages in turn
        self.name = name  # of its own
        self.numbered = numbered  # whether it numbers its sends, for de-duplication
        self.transaction = transaction  # how many messages it sends in a transaction; 1 for none
        self._window = window  # how many transactions or messages may be unconfirmed
        self._attempt = 0
        self._next_unit = 1
        self._unconfirmed: list[int] = []
        self.unanswered_since: float | None = None  # on the monotonic clock; None while nothing is asked

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

    def _send(self, peer: Peer, unit: int) -> None:
        common = {"destination": self._destination, **self._headers}
        common |= {"producer-id": self.name} if self.numbered else {}
        if self.transaction > 1:
            common["transaction"] = str(unit)
            peer.send("BEGIN", {"transaction": str(unit)})
        else:
            common["receipt"] = str(unit)
        for number in self._numbers(unit):
            headers = {**common, **self._turns[number % len(self._turns)]}
            headers |= {"producer-sequence": str(number)} if self.numbered else {}
            size = 20_000 if number % 50 == 0 else 100
            body = Key(self.name, self._attempt, unit, number).body(size)
            peer.send("SEND", headers, body)


class Consumer(Actor):
    """Takes messages and acknowledges them one by one, in portions, some of them late."""

    def __init__(
        self, place: Place, queue: str, ledger: Ledger, random: Random, prefetch: int = 100,
        headers: Mapping[str, str] = NO_HEADERS, shares: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(place, queue, ledger)
        self._shares = shares  # whether there is another consumer
        self._headers = headers  # more of its subscription
        self._random = random  # says how late
        self._prefetch = prefetch  # how many messages it may have unacknowledged

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
    """Takes messages and sends each on to another queue, both in one transaction."""

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


LOOK_SECONDS = 0.1
"""How often it is looked at what has come: this process has all clients, and may have proxies too."""

QUIET_SECONDS = 0.3
"""How long the end is watched for messages that should not come."""

DRAIN_SECONDS = 60.0
"""When nothing new has come for so long, on a busy machine, what is missing is lost."""


class Flow(NamedTuple):
    """The clients of one queue, or of some destinations that belong together; the producers use the first ledger."""

    producers: Sequence[Actor]
    consumers: Sequence[Actor]
    ledgers: Sequence[Ledger]
    forwarded: Ledger | None = None  # of those that take what was sent on
    waits: bool = False  # until all consumers have subscribed

    @property
    def left(self) -> list[str]:
        """What is confirmed and did not come, and what has no confirmed acknowledgement."""
        if self.forwarded:
            self.forwarded.confirm(self.ledgers[0].received.keys() - self.forwarded.confirmed)
        unsettled = [f"{consumer.unsettled} unsettled" for consumer in self.consumers if consumer.unsettled]
        return [
            f"{producer} {number}" for ledger in self.all_ledgers for producer, number in ledger.missing
        ] + unsettled

    @property
    def all_ledgers(self) -> list[Ledger]:
        return [*self.ledgers, *([self.forwarded] if self.forwarded else [])]

    def check_end(self) -> None:
        """Look for what can be told only when all has come."""
        for producer in self.producers:
            if isinstance(producer, Producer) and producer.numbered:
                for ledger in self.all_ledgers:
                    ledger.check_once(producer.name)
            elif isinstance(producer, Producer):
                for ledger in self.ledgers:
                    ledger.check_whole(producer.name, producer.transaction)


class Clients:
    """Flows that begin together, as an asynchronous context manager, and what has to be true when they are done."""

    has_to_come_again = True  # whether what a lost connection left comes again before its client can read it late

    def __init__(self, place: Place, random: Random) -> None:
        self.place = place  # where the broker is
        self.flows: list[Flow] = []
        self._random = random  # what the clients do differently each time
        self._senders: list[asyncio.Task[None]] = []
        self._takers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._takers = [asyncio.create_task(consumer.run()) for flow in self.flows for consumer in flow.consumers]
        self._senders = [
            asyncio.create_task(self._send(flow, producer)) for flow in self.flows for producer in flow.producers
        ]
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in (*self._senders, *self._takers):
            task.cancel()
        await asyncio.gather(*self._senders, *self._takers, return_exceptions=True)

    async def _send(self, flow: Flow, producer: Actor) -> None:
        while flow.waits and not all([consumer.has_subscribed for consumer in flow.consumers]):
            await asyncio.sleep(LOOK_SECONDS)
        await producer.run()

    @property
    def ledgers(self) -> list[Ledger]:
        return [ledger for flow in self.flows for ledger in flow.all_ledgers]

    @property
    def confirmed(self) -> int:
        return sum([len(flow.ledgers[0].confirmed) for flow in self.flows])

    @property
    def redelivered(self) -> int:
        return sum([ledger.redelivered for ledger in self.ledgers])

    @property
    def errors(self) -> set[str]:
        """Codes of the errors that clients were sent."""
        return {code for ledger in self.ledgers for code in ledger.errors}

    @property
    def missing(self) -> int:
        return sum([len(ledger.missing) for ledger in self.ledgers])

    @property
    def violations(self) -> list[str]:
        """Promises that were broken so far. A client that gave up raises what stopped it."""
        for task in (*self._senders, *self._takers):
            if task.done():
                task.result()
        return [violation for ledger in self.ledgers for violation in ledger.violations]

    def check(self) -> None:
        """Fail if a promise was broken so far, or a client gave up."""
        broken = self.violations
        assert not broken, f"{len(broken)} broken promises: " + "; ".join(broken[:10])

    async def finish(self) -> None:
        """Send nothing new, wait until everything has arrived and is acknowledged, and check every promise."""
        left = await self.drain()
        self.check()
        assert not left, f"not everything came: {left[:20]}"

    async def drain(self) -> list[str]:
        """Send nothing new, and wait: what is left all the same. Then look for what can be told only at the end."""
        for actor in [actor for flow in self.flows for actor in (*flow.producers, *flow.consumers)]:
            actor.ending = True
        news_since = quiet_since = time.monotonic()
        seen: list[str] | None = None
        while time.monotonic() - quiet_since < QUIET_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            if (left := self._left()) != seen:
                news_since, seen = time.monotonic(), left
            if left:
                quiet_since = time.monotonic()
            if self.violations or time.monotonic() - news_since > DRAIN_SECONDS:
                break
        for flow in self.flows:
            flow.check_end()
        return left

    def _left(self) -> list[str]:
        sending = ["producers are sending"] * (not all([task.done() for task in self._senders]))
        held = [id for ledger in self.ledgers for id in sorted(ledger.held)] if self.has_to_come_again else []
        return sending + held + [each for flow in self.flows for each in flow.left]


class Load(Clients):
    """Clients on three queues.

    ``orders`` has every kind of producer and two consumers. From ``forward`` each message is sent on to ``forwarded``
    in the transaction that acknowledges it.
    """

    def __init__(self, random: Random, place: Place | None = None) -> None:
        place = place or Place()
        super().__init__(place, random)
        orders, forward, forwarded = Ledger(), Ledger(), Ledger()
        producers = [
            Producer(place, "orders", orders, "plain"),
            Producer(place, "orders", orders, "single", window=1),
            Producer(place, "orders", orders, "numbered", numbered=True),
            Producer(place, "orders", orders, "transacted", transaction=5),
            Producer(place, "orders", orders, "both", numbered=True, transaction=3),
        ]
        self.flows.append(
            Flow(producers, [Consumer(place, "orders", orders, random, shares=True) for _ in range(2)], [orders])
        )
        takers = [
            Forwarder(place, "forward", "forwarded", forward, random),
            Consumer(place, "forwarded", forwarded, random),
        ]
        sender = Producer(place, "forward", forward, "forwarded", numbered=True)
        self.flows.append(Flow([sender], takers, [forward], forwarded))

    @property
    def longest_wait(self) -> float:
        """For how many seconds the producer that waits the longest has heard nothing."""
        producers = [each for flow in self.flows for each in flow.producers if isinstance(each, Producer)]
        waits = [time.monotonic() - each.unanswered_since for each in producers if each.unanswered_since is not None]
        return max(waits, default=0.0)
