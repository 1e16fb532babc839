"""Starts a broker's bulk server when it is asked for it, and ends it with the broker."""

import asyncio
from dataclasses import asdict, replace

from quire.errors import InvalidArgument
from quire.http.bulk.bulk_process import BulkProcess
from quire.http.bulk.handshake import Instructions, RightsChanged, TlsRead
from quire.http.bulk.readers import Readers
from quire.settings import Settings, split_address


class Launcher:
    """The bulk server of one broker: some processes, each of which can answer everything.

    Attributes:
        readers: who may read.
    """

    def __init__(self, store: str, settings: Settings) -> None:
        self.readers = Readers()
        self._store = store
        self._settings = settings
        self._processes = [BulkProcess(address, self.readers.reply) for address in _addresses(settings)]
        self._starting = asyncio.Lock()

    @property
    def addresses(self) -> list[str]:
        """Where the processes listen, ``host:port``; of use if they run."""
        return [process.address for process in self._processes]

    async def start(self) -> None:
        """Have all processes run."""
        if self._store == "memory:":
            raise InvalidArgument(
                "the store is in the broker's memory, and no other process can read it: set store.url to read in bulk"
            )
        async with self._starting:
            instructions = self._instructions()
            starts = [process.start(instructions) for process in self._processes if not process.is_running]
            results = await asyncio.gather(*starts, return_exceptions=True)
        for result in results:
            if result is not None:
                raise result

    def _instructions(self) -> Instructions:
        settings = self._settings
        return Instructions(
            self._store, settings.bulk.address, self.readers.secret, settings.bulk.idle_limit, settings.log.format,
            settings.log.level, asdict(settings.tls), asdict(settings.limits),
        )  # fmt: skip

    def reload(self, settings: Settings) -> None:
        """The settings were read again: so are the certificates."""
        self._settings = replace(self._settings, tls=settings.tls)
        for process in self._processes:
            process.tell(TlsRead(asdict(settings.tls)))

    def rights_changed(self) -> None:
        """Users, rules or tokens have changed."""
        for process in self._processes:
            process.tell(RightsChanged())

    async def stop(self) -> None:
        """The broker goes down, and they do too."""
        await asyncio.gather(*[process.stop() for process in self._processes])


def _addresses(settings: Settings) -> list[str]:
    """An address for each process: of a fixed port the ports behind it as well."""
    host, _, _ = settings.bulk.address.rpartition(":")
    port = split_address(settings.bulk.address)[1]
    return [f"{host}:{port + number if port else 0}" for number in range(settings.bulk.processes)]
