"""A real broker for tests that read from one: a process with an HTTP port that stays the same over its restarts."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.rig import OwnBroker


class RunningBroker(OwnBroker):
    """A broker."""

    def __init__(self, directory: Path, **settings: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        flags = {"http": self.url.removeprefix("http://"), "store": settings.pop("STORE__URL", "")}
        super().__init__(directory, flags, {f"QUIRE_{name}": value for name, value in settings.items()})

    def create(self, stream: str, partitions: int = 1) -> None:
        self.api.call("PUT", f"/streams/{stream}", {"partitions": partitions})

    def send(self, stream: str, count: int, partition: int = 0, body: str = "body", **headers: str) -> None:
        message = {"body": body, "count": count, "headers": {"partition": str(partition), **headers}}
        self.api.call("POST", f"/streams/{stream}/messages", message)

    def bulk_pid(self) -> int:
        """The process of its bulk server that was started last."""
        return self._bulk_starts()[-1][1]

    def bulk_pids(self) -> dict[str, int]:
        return dict(self._bulk_starts())

    def _bulk_starts(self) -> list[tuple[str, int]]:
        events = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [(found["address"], int(found["pid"])) for found in events if found["event"] == "bulk.started"]


@contextmanager
def running_broker(directory: Path, **settings: str) -> Iterator[RunningBroker]:
    """A broker that is killed at the end, and has logged no error that nobody foresaw."""
    with RunningBroker(directory, **settings) as broker:
        yield broker
    assert "Traceback" not in broker.log
