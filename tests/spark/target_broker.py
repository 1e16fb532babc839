"""A broker in a process of its own that Spark writes to, and what has arrived there."""

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from quire.store.base import walk
from quire.store.lmdb import LmdbStore
from tests.acceptance.crash.broker_process import BrokerProcess

LIMIT = 60.0
"""How long an answer may take on a busy machine, in seconds."""

PAGE = 1000


class TargetBroker:
    """A broker whose HTTP address stays when it is started again."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.process = BrokerProcess(directory, settings=settings)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self.process.start("--http", f"127.0.0.1:{self._port}")
        self.process.port()

    def call(self, method: str, path: str, body: object = None) -> Any:
        content = None if body is None else msgspec.json.encode(body)
        request = urllib.request.Request(f"{self.url}/api/v1{path}", content, method=method)
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return msgspec.json.decode(answer.read())

    def messages(self, name: str) -> list[dict[str, Any]]:
        """What is in a queue, or in a durable subscription ``durables/CLIENT/NAME``, in order."""
        path = name if "/" in name else f"queues/{name}"
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = self.call("GET", f"/{path}/messages?limit={PAGE}{after}")
            found += page["messages"]
            if page["next"] is None:
                return found
            after = f"&after={page['next']}"

    def bodies(self, name: str) -> list[str]:
        return [str(message["body"]) for message in self.messages(name)]

    def partition(self, stream: str, number: int) -> list[dict[str, Any]]:
        path = f"/streams/{stream}/partitions/{number}/messages"
        found: list[dict[str, Any]] = self.call("GET", f"{path}?limit={PAGE}")["messages"]
        return found

    def stored(self) -> Iterator[tuple[str, bytes]]:
        """All messages of all lanes, when it is not running: ``queue://orders`` and the body."""
        store = LmdbStore(self.process.data / "store")
        store.open()
        try:
            for destination in store.destinations():
                for lane in destination.lanes:
                    for link in list(walk(store, lane)):
                        (message,) = store.load(lane, [link.sequence])
                        yield f"{destination.kind}://{destination.name}", message.body
        finally:
            store.close()
