"""A broker inside the process of a test: in memory, on free ports, up within milliseconds."""

import asyncio
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from quire.errors import QuireError
from quire.server.service import Service
from quire.settings import Settings, load
from quire.store.memory import MemoryStore

LIMIT = 30.0
"""How long a broker may take to start or to stop, in seconds."""


class EmbeddedBroker:
    """A broker that runs in a thread of this process and keeps everything in memory.

    It is a context manager: it starts on entering, and on leaving it is gone, with its ports and messages.

    ::

        with EmbeddedBroker() as broker, quire.client.sync.connect(broker.url) as connection:
            ...

    Args:
        settings: its settings by their names, ``{"policy.maximum_redeliveries": 2}`` say; `quire config explain` lists
            them. Without an address of its own a port is a free one of the loopback interface.

    Attributes:
        url: for clients of OpenWire, ``tcp://127.0.0.1:PORT``: Quire's client, JMS.
        stomp: ``127.0.0.1:PORT``, for clients of STOMP.

    Raises:
        InvalidSettings: a setting is unknown or its value is not allowed.
        QuireError: the broker cannot start.
    """

    url: str
    stomp: str

    def __init__(self, settings: dict[str, object] | None = None) -> None:
        addresses = dict.fromkeys(("stomp.address", "openwire.address"), "127.0.0.1:0")
        flags = {**addresses, "store.url": "memory:", "store.disk_free_limit": 0, **(settings or {})}
        self._settings: Settings = load(None, {}, flags)
        self._up: Future[Service] = Future()
        self._thread = threading.Thread(target=self._run, name="quire-broker", daemon=True)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        service = Service(self._settings, MemoryStore(), tunes_collector=False)
        try:
            await service.take_store(standby=False)
            await service.start()
        except QuireError as error:
            self._up.set_exception(error)
            return
        self._loop = asyncio.get_running_loop()
        self._up.set_result(service)
        try:
            await service.wait()
        finally:
            await service.stop()
            service.store.close()

    def __enter__(self) -> Self:
        self._thread.start()
        service = self._up.result(LIMIT)
        self.url, self.stomp = f"tcp://{service.openwire_address}", service.stomp_address
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._up.result().ask_stop)
        self._thread.join(LIMIT)
