"""Two brokers on one store, and everything between them and the servers: proxies, and networks where root runs this."""

import asyncio
import signal
import subprocess
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Literal, Self

from benchmarks.peers import free_port
from benchmarks.takeover.database import Database
from tests.acceptance.crash.broker_process import QUIRE, BrokerProcess

NO_MACHINE = "02:00:00:00:00:01"
"""A hardware address that no interface has: what is sent there is lost, as when the machine or a switch is dead."""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Link:
    """A link between this machine and the network of a broker."""

    def __init__(self, network: str, name: str, inside: str, addresses: str) -> None:
        self.outer, self.inner = f"{addresses}.1", f"{addresses}.2"
        self._here: tuple[list[str], str] = ([], name)  # where a command is about, and its device there
        self._there = (["-n", network], inside)

    def make(self) -> None:
        (_, name), ((_, network), inside) = self._here, self._there
        ip("link", "add", name, "type", "veth", "peer", "name", inside, "netns", network)
        for (where, device), address in ((self._here, self.outer), (self._there, self.inner)):
            ip(*where, "addr", "add", f"{address}/30", "dev", device)
            ip(*where, "link", "set", device, "up")

    def remove(self) -> None:
        with suppress(subprocess.CalledProcessError):
            ip("link", "del", self._here[1])

    def cut(self) -> None:
        """Lose all packets in both directions. Neither side gets an error, and both interfaces stay up."""
        for (where, device), address in self._ways():
            entry = [address, "lladdr", NO_MACHINE, "dev", device, "nud", "permanent"]
            ip(*where, "neigh", "replace", *entry)

    def mend(self) -> None:
        for (where, device), address in self._ways():
            ip(*where, "neigh", "del", address, "dev", device)

    def _ways(self) -> list[tuple[tuple[list[str], str], str]]:
        """Who sends, and to which address."""
        return [(self._here, self.inner), (self._there, self.outer)]


class Network:
    """The network of one broker: one link to the servers, one to the clients."""

    def __init__(self, number: int) -> None:
        self.name = f"quire-takeover-{number}"
        self.prefix = ["ip", "netns", "exec", self.name]  # what a command begins with that runs in it
        self._servers = Link(self.name, f"quiredb{number}", "db", f"10.213.{number}")
        self._clients = Link(self.name, f"quirecl{number}", "cl", f"10.214.{number}")
        self.server_side = self._servers.outer  # the address of this machine on the link to the servers
        self.broker = self._clients.inner  # the address of the broker on the link to the clients

    @classmethod
    def is_possible(cls) -> bool:
        with suppress(OSError, subprocess.CalledProcessError):
            ip("netns", "add", "quire-takeover-try")
            ip("netns", "del", "quire-takeover-try")
            return True
        return False

    def __enter__(self) -> Self:
        self._remove()  # a run that was killed has left it
        ip("netns", "add", self.name)
        ip("-n", self.name, "link", "set", "lo", "up")
        self._servers.make()
        self._clients.make()
        return self

    def __exit__(self, *_error: object) -> None:
        self._remove()

    def cut_off(self, *, from_clients: bool = False) -> None:
        """Let nothing through between the broker and the servers; with ``from_clients`` its clients neither."""
        self._servers.cut()
        if from_clients:
            self._clients.cut()

    def mend(self, *, from_clients: bool = False) -> None:
        self._servers.mend()
        if from_clients:
            self._clients.mend()

    def _remove(self) -> None:
        for link in (self._servers, self._clients):
            link.remove()  # a process that was left would keep it
        with suppress(subprocess.CalledProcessError):
            ip("netns", "del", self.name)


CHUNK = 1 << 16

LATE_SECONDS = 0.3
"""How late a commit arrives that outlives its connection, in seconds."""

Loss = Literal["answer", "commit", "late"]
"""How a commit meets the end of its connection: made, and its answer is lost; lost; or it arrives afterwards."""

_STATEMENT = b"\0quire_"


def is_commit(data: bytes) -> bool:
    """Whether a broker sends a commit: values for one of its prepared statements (the protocol's message ``Bind``)."""
    return data[:1] == b"B" and data[5 : 5 + len(_STATEMENT)] == _STATEMENT


class Proxy:
    """Passes connections on to a server on this machine."""

    port: int  # the server's

    def __init__(self, port: int) -> None:
        self.is_silent = False  # whether nothing goes through, and no one is told
        self.loses: Loss | None = None  # how the next commit meets the end of its connection; None for not at all
        self.lost: Counter[Loss] = Counter()  # how many did
        self._target = port
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None

    async def open(self, host: str) -> None:
        self._server = await asyncio.start_server(self._serve, host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        for link in list(self._links):
            link.abort()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            to_client.transport.abort()
            return
        link = _Link(self, to_client, to_server)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(link.pass_requests(client))
                group.create_task(link.pass_answers(server))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            self._links.discard(link)
            link.abort()


class _Link:
    def __init__(self, proxy: Proxy, to_client: asyncio.StreamWriter, to_server: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._to_client = to_client
        self._to_server = to_server
        self._loses_answer = False

    def abort(self) -> None:
        self._to_client.transport.abort()
        self._to_server.transport.abort()

    async def pass_requests(self, client: asyncio.StreamReader) -> None:
        while data := await self._next(client):
            loss = self._proxy.loses
            if loss is not None and is_commit(data):
                self._proxy.loses = None
                self._proxy.lost[loss] += 1
                if loss == "commit":
                    break
                self._loses_answer = True
                if loss == "late":
                    await self._send_late(data)
                    break
            await _write(self._to_server, data)
        raise ConnectionAbortedError

    async def pass_answers(self, server: asyncio.StreamReader) -> None:
        while data := await self._next(server):
            if self._loses_answer:
                break
            await _write(self._to_client, data)
        raise ConnectionAbortedError

    async def _next(self, reader: asyncio.StreamReader) -> bytes:
        data = await reader.read(CHUNK)
        while self._proxy.is_silent:
            await asyncio.sleep(0.05)
        return data

    async def _send_late(self, data: bytes) -> None:
        self._to_client.transport.abort()
        await asyncio.sleep(LATE_SECONDS)
        await _write(self._to_server, data)
        await asyncio.sleep(LATE_SECONDS)  # the answer ends it sooner


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    with suppress(ConnectionError):
        await writer.drain()


SCHEMA = "quire"


class PairedBroker(BrokerProcess):
    """One of the two."""

    def __init__(
        self, number: int, directory: Path, database: Database, network: Network | None, program: list[str]
    ) -> None:
        super().__init__(directory)
        self.proxies = [Proxy(server.port) for server in database.servers]
        self.network = network  # its own; None if it is on this machine's
        host = network.broker if network else "127.0.0.1"
        self.stomp, self._openwire, self._http = (host, free_port()), (host, free_port()), (host, free_port())
        self.openwire_url = f"tcp://{host}:{self._openwire[1]}"  # where Quire's client does
        self.number = number  # 1 or 2
        self._command = [*(network.prefix if network else []), *(program or QUIRE)]

    async def prepare(self) -> None:
        """Open what lies between it and the servers."""
        host = self.network.server_side if self.network else "127.0.0.1"
        for proxy in self.proxies:
            await proxy.open(host)
        hosts = ",".join([f"{host}:{proxy.port}" for proxy in self.proxies])
        self.store = f"postgresql://quire@{hosts}/postgres?schema={SCHEMA}"

    def start(self, *flags: str) -> None:
        addresses = {"--stomp": self.stomp, "--openwire": self._openwire, "--http": self._http}
        given = [part for flag, (host, port) in addresses.items() for part in (flag, f"{host}:{port}")]
        self._run([*self._command, "broker", "start", "--standby", "--insecure"], *given, *flags)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def suspend(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def cut_off(self, *, from_clients: bool = False) -> None:
        if self.network:
            self.network.cut_off(from_clients=from_clients)
        else:
            self._let_through(False)

    def mend(self, *, from_clients: bool = False) -> None:
        if self.network:
            self.network.mend(from_clients=from_clients)
        else:
            for proxy in self.proxies:
                proxy.cut()  # what has waited is too old for any network
            self._let_through(True)

    def _let_through(self, goes: bool) -> None:
        for proxy in self.proxies:
            proxy.is_silent = not goes


class Pair:
    """Both, as an asynchronous context manager."""

    def __init__(self, directory: Path, database: Database, has_networks: bool, program: list[str]) -> None:
        self.has_networks = has_networks  # whether each gets a network of its own
        networks = [Network(number) if has_networks else None for number in (1, 2)]
        self.brokers = [
            PairedBroker(number, directory / f"broker-{number}", database, network, program)
            for number, network in enumerate(networks, 1)
        ]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Pair":
        for broker in self.brokers:
            broker.data.parent.mkdir(parents=True)
            if broker.network:
                self._stack.enter_context(broker.network)
            self._stack.callback(self._end, broker)
            await broker.prepare()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    @property
    def stomp(self) -> list[tuple[str, int]]:
        return [broker.stomp for broker in self.brokers]

    @property
    def failover_url(self) -> str:
        urls = [f"{broker.openwire_url}?wireFormat.maxInactivityDuration=2000" for broker in self.brokers]
        options = "maxReconnectDelay=200&warnAfterReconnectAttempts=1000000&jms.requestTimeout=60000"
        return f"failover:({','.join(urls)})?{options}"

    def other(self, broker: PairedBroker) -> PairedBroker:
        first, second = self.brokers
        return second if broker is first else first

    def _end(self, broker: PairedBroker) -> None:
        broker.kill()
        for proxy in broker.proxies:
            proxy.close()
