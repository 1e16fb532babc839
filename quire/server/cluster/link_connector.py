"""Connects links to other processes of the cluster."""

import asyncio
import contextlib
import ssl

from quire.broker.core.turn import TurnMeter
from quire.cluster.cluster_map import Peer
from quire.cluster.link import Link
from quire.errors import ShardMoved
from quire.server.cluster.link_transport import LinkTransport
from quire.settings import TlsSettings, split_address

CONNECT_LIMIT = 3.0
"""How many seconds it may take to connect to another process."""


class LinkConnector:
    """Connects links to other processes.

    Args:
        tls: the settings; with a certificate links are encrypted. Whom a link has reached is shown by its handshake,
            which covers the certificate that was seen: so the certificates of the cluster need no common authority.
    """

    def __init__(self, meter: TurnMeter, tls: TlsSettings) -> None:
        self._meter = meter
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self, peer: Peer, link: Link) -> None:
        """Begin to connect a link."""
        transport = LinkTransport(link, self._meter)
        task = asyncio.get_running_loop().create_task(self._connected(peer, transport, link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Give up what is being connected."""
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
