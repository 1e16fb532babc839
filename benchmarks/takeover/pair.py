"""Two brokers on one store, each with ports that stay the same, and everything between them and the servers."""

import signal
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.peers import free_port
from benchmarks.takeover.database import Database
from benchmarks.takeover.networks import Network
from benchmarks.takeover.proxy import Proxy
from tests.acceptance.crash.broker_process import QUIRE, BrokerProcess

SCHEMA = "quire"


class PairedBroker(BrokerProcess):
    """One of the two.

    Args:
        number: 1 or 2.
        directory: an empty one.
        database: the servers.
        network: its own; None if it is on this machine's.
        program: what runs its command line; the usual one if empty.

    Attributes:
        proxies: what lies between it and each of the servers.
        stomp: where clients of STOMP find it.
        openwire_url: where Quire's client does.
    """

    def __init__(
        self, number: int, directory: Path, database: Database, network: Network | None, program: list[str]
    ) -> None:
        super().__init__(directory)
        self.proxies = [Proxy(server.port) for server in database.servers]
        self.network = network
        host = network.broker if network else "127.0.0.1"
        self.stomp, self._openwire, self._http = (host, free_port()), (host, free_port()), (host, free_port())
        self.openwire_url = f"tcp://{host}:{self._openwire[1]}"
        self.number = number
        self._command = [*(network.prefix if network else []), *(program or QUIRE)]

    async def prepare(self) -> None:
        """Open what lies between it and the servers."""
        host = self.network.server_side if self.network else "127.0.0.1"
        for proxy in self.proxies:
            await proxy.open(host)
        hosts = ",".join([f"{host}:{proxy.port}" for proxy in self.proxies])
        self.url = f"postgresql://quire@{hosts}/postgres?schema={SCHEMA}"

    def start(self, *flags: str) -> None:
        """Start it as one of two."""
        addresses = {"--stomp": self.stomp, "--openwire": self._openwire, "--http": self._http}
        given = [part for flag, (host, port) in addresses.items() for part in (flag, f"{host}:{port}")]
        self._run([*self._command, "broker", "start", "--standby", "--insecure"], *given, *flags)

    @property
    def is_alive(self) -> bool:
        """Whether its process is there."""
        return self.process.poll() is None

    def suspend(self) -> None:
        """Stop its process as a debugger would, or a machine that is moved."""
        self.process.send_signal(signal.SIGSTOP)

    def cut_off(self, *, from_clients: bool = False) -> None:
        """Let nothing through between it and the servers, and tell no one; a network can also keep its clients away."""
        if self.network:
            self.network.cut_off(from_clients=from_clients)
        else:
            self._let_through(False)

    def mend(self, *, from_clients: bool = False) -> None:
        """Let everything through again."""
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
    """Both, as an asynchronous context manager.

    Args:
        directory: an empty one.
        database: the servers.
        has_networks: whether each gets a network of its own.
        program: what runs the command line of the brokers; the usual one if empty.

    Attributes:
        brokers: both.
        has_networks: whether each has a network of its own.
    """

    def __init__(self, directory: Path, database: Database, has_networks: bool, program: list[str]) -> None:
        self.has_networks = has_networks
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
        """Where clients of STOMP find them."""
        return [broker.stomp for broker in self.brokers]

    @property
    def failover_url(self) -> str:
        """Where Quire's client finds them."""
        urls = [f"{broker.openwire_url}?wireFormat.maxInactivityDuration=2000" for broker in self.brokers]
        options = "maxReconnectDelay=200&warnAfterReconnectAttempts=1000000&jms.requestTimeout=60000"
        return f"failover:({','.join(urls)})?{options}"

    def other(self, broker: PairedBroker) -> PairedBroker:
        """The one that a broker is paired with."""
        first, second = self.brokers
        return second if broker is first else first

    def _end(self, broker: PairedBroker) -> None:
        broker.kill()
        for proxy in broker.proxies:
            proxy.close()
