"""The links of one process to the shards of its cluster, at most one to each, and the connections that carry links."""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import NamedTuple, cast

from quire.broker.core.core import Core, TurnMeter
from quire.cluster.cluster_map import ClusterMap, Peer
from quire.cluster.link import EntryHandshake, Link, Opening, VirtualConnection, VirtualEnd
from quire.errors import QuireError, ShardMoved, ShardUnavailable
from quire.scheduler import Timer
from quire.settings import TlsSettings, split_address

SLICE = 16 * 1024
"""How many bytes are taken apart between two looks at the clock."""

BUDGET = 0.01
"""How long the input of one link is taken in one turn, in seconds."""

WRITE_HIGH_WATER = 1 << 20
"""With more output than this in the transport, nothing more is taken of the link: it waits in virtual connections."""


class LinkTransport(asyncio.Protocol):
    """One connection: the port of its link. At the entry it connects by itself; at the owner it is handed over."""

    def __init__(self, link: Link, meter: TurnMeter, gone: Callable[[], None] = lambda: None) -> None:
        self._link = link
        link.port = self
        self._meter = meter
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._pieces: deque[bytes] = deque()
        self._is_asked = self._is_full = self._is_closing = self._is_put_off = False

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        if self._link.is_over:
            self.close()
            return
        seen = transport.get_extra_info("ssl_object")
        if seen is not None and (certificate := seen.getpeercert(binary_form=True)):
            self._link.handshake.binding = sha256(certificate).digest()
        self.wants_output()

    def data_received(self, data: bytes) -> None:
        self._pieces.extend([data[start : start + SLICE] for start in range(0, len(data), SLICE)])
        if not self._is_put_off:
            self._take()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self.wants_output()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._pieces.clear()
        self._link.lost(ShardMoved(f"the connection is lost: {exc or 'the other side has closed it'}"))
        self._gone()

    # The link calls these.

    def wants_output(self) -> None:
        """There is output to take; it is taken when this turn has gathered it."""
        if self._transport is not None and not self._is_asked and not self._is_full:
            self._is_asked = True
            asyncio.get_running_loop().call_soon(self._flush)

    def close(self) -> None:
        if self._transport is not None and not self._is_closing:
            self._is_closing = True
            self._transport.write(self._link.take_output())
            self._transport.close()

    def _flush(self) -> None:
        self._is_asked = False
        if self._is_closing or self._transport is None:
            return
        self._meter.begin()
        if data := self._link.take_output():
            self._transport.write(data)
        self._meter.end("the output of a link")

    def _take(self) -> None:
        was_put_off, self._is_put_off = self._is_put_off, False
        clock = self._meter.now
        end = clock() + BUDGET
        while self._pieces and not self._is_closing:
            self._link.receive(self._pieces.popleft())
            if self._pieces and clock() > end:
                self._put_off()
                return
        if was_put_off and self._transport is not None and not self._is_closing:
            self._transport.resume_reading()

    def _put_off(self) -> None:
        """Go on in the next turn: others are to have their turn too."""
        self._is_put_off = True
        if self._transport is not None and not self._is_closing:
            self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._take)


CONNECT_LIMIT = 3.0
"""How many seconds it may take to connect to another process."""


class LinkConnector:
    """Connects links to other processes: encrypted, if there is a certificate.

    Whom a link has reached is shown by its handshake, which covers the certificate that was seen: so the certificates
    of the cluster need no common authority.
    """

    def __init__(self, meter: TurnMeter, tls: TlsSettings) -> None:
        self._meter = meter
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self, peer: Peer, link: Link) -> None:
        transport = LinkTransport(link, self._meter)
        task = asyncio.get_running_loop().create_task(self._connected(peer, transport, link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _connected(self, peer: Peer, transport: LinkTransport, link: Link) -> None:
        host, port = split_address(peer.address)
        loop = asyncio.get_running_loop()
        try:
            connecting = loop.create_connection(lambda: transport, host, port, ssl=_context(self._tls))
            await asyncio.wait_for(connecting, CONNECT_LIMIT)
        except (OSError, TimeoutError, ValueError) as error:
            link.lost(ShardMoved(f"no process answers at {peer.address}: {error}"))


def _context(tls: TlsSettings) -> ssl.SSLContext | None:
    if not tls.certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(tls.certificate, tls.key or None)
    return context


PATIENCE = 10.0
"""How many seconds virtual connections wait for their shard to have an owner that answers."""

RETRY = 0.2
"""After how many seconds it is tried again to reach an owner that does not answer."""

TICK = 1.0
"""How often links look whether the other side is there, in seconds."""

Connect = Callable[[Peer, Link], None]
"""Begins to connect a link to the owner of a shard: sets its port. ``Link.lost`` says that there is no answer."""


class Outage(NamedTuple):
    """A shard that cannot be reached now; the timer ends the wait."""

    waiting: list[VirtualConnection]
    timer: Timer


class Links:
    """Opens virtual connections. ``generation`` changes with the map."""

    def __init__(self, cluster_map: ClusterMap, secret: bytes, core: Core, connect: Connect) -> None:
        self.cluster_map = cluster_map
        self.charge = core.charge_partial
        self._secret = secret
        self._scheduler = core.scheduler
        self._steps = core.steps
        self._connect_link = connect
        self._links: dict[int, Link] = {}
        self._peers: dict[int, Peer] = {}  # where those links lead
        self._outages: dict[int, Outage] = {}
        self._ticking: Timer | None = None
        self.generation = 0
        cluster_map.listen(self._map_changed)

    def open(self, shard: int, opening: Opening, end: VirtualEnd) -> VirtualConnection:
        """Open a virtual connection to a shard, the own one too. It takes output at once, and sends it when it can.

        ``end`` is told what comes, and when it is over: with ``ShardUnavailable`` if the shard cannot be reached.

        Raises:
            LimitExceeded: there are too many virtual connections to this shard.
        """
        connection = VirtualConnection(opening, self.charge)
        connection.end = end
        link = self._links.get(shard)
        if link is not None:
            link.open(connection)
        else:
            self._await(shard, [connection])
            self._connect(shard)
        return connection

    def epoch(self, shard: int) -> int:
        """The epoch of the owner that the link to a shard leads to; ``ShardMoved`` if there is no link."""
        peer = self._peers.get(shard)
        if peer is None:
            raise ShardMoved(f"the link to shard {shard} is lost", shard=shard)
        return peer.epoch

    def all(self) -> list[Link]:
        return list(self._links.values())

    def stop(self) -> None:
        for link in list(self._links.values()):
            link.fail(ShardMoved("the process of the entry stops"))

    # The links call these.

    def link_ready(self, link: Link) -> None:
        shard = self._shard_of(link)
        if shard is not None and (outage := self._outages.pop(shard, None)) is not None:
            outage.timer.cancel()

    def link_ended(self, link: Link, error: QuireError) -> None:
        """A link is over. What it has not carried yet waits for another one; the ends of the others are told."""
        shard = self._shard_of(link)
        if shard is None:
            return
        del self._links[shard], self._peers[shard]
        if waiting := link.release():
            self._await(shard, waiting)
            self._scheduler.call_later(RETRY, partial(self._connect, shard))
        elif link.virtual:
            ends = link.ends()
            self._steps.add(lambda: next(ends, link) is None, "the end of a link", stores=False)

    # Inside.

    def _shard_of(self, link: Link) -> int | None:
        return next((shard for shard, known in self._links.items() if known is link), None)

    def _await(self, shard: int, connections: list[VirtualConnection]) -> None:
        outage = self._outages.get(shard)
        if outage is None:
            outage = Outage([], self._scheduler.call_later(PATIENCE, partial(self._give_up, shard)))
            self._outages[shard] = outage
        outage.waiting.extend([connection for connection in connections if not connection.is_closed])

    def _connect(self, shard: int) -> None:
        """Connect to the owner of a shard, if it has one and anything waits for it."""
        peer, outage = self.cluster_map.peer(shard), self._outages.get(shard)
        if peer is None or outage is None or shard in self._links:
            return
        link = Link(EntryHandshake(self._secret, self.cluster_map.own, shard, peer.epoch), self)
        self._links[shard], self._peers[shard] = link, peer
        waiting = [connection for connection in outage.waiting if not connection.is_closed]
        outage.waiting.clear()
        self._connect_link(peer, link)
        for connection in waiting:
            link.open(connection)
        if self._ticking is None:
            self._ticking = self._scheduler.call_later(TICK, self._tick)

    def _give_up(self, shard: int) -> None:
        outage = self._outages.pop(shard)
        waiting = outage.waiting
        if (link := self._links.get(shard)) is not None and not link.is_ready:
            del self._links[shard], self._peers[shard]
            waiting += link.release()
            link.fail(ShardMoved("it took too long"))
        text = f"shard {shard} could not be reached for {PATIENCE:g} s"
        for connection in waiting:
            if not connection.is_closed:
                connection.end_now(ShardUnavailable(text, shard=shard))

    def _map_changed(self, shards: frozenset[int]) -> None:
        self.generation += 1
        for shard in shards:
            link = self._links.get(shard)
            if link is not None and self._peers[shard] != self.cluster_map.peer(shard):
                link.fail(ShardMoved(f"shard {shard} has another owner now", shard=shard))
            self._connect(shard)

    def _tick(self) -> None:
        for link in list(self._links.values()):
            link.tick()
        self._ticking = self._scheduler.call_later(TICK, self._tick) if self._links else None
