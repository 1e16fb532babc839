"""@stomp/stompjs on Node: ``tests/acceptance/stompjs/client.mjs``, which connects and subscribes again by itself."""

import base64
import json
import shutil
import subprocess
import threading
from pathlib import Path

from tests.acceptance.clients.client import SECONDS, Client, Frame, Headers

_DIRECTORY = Path(__file__).parent.parent / "stompjs"


def what_is_missing() -> str:
    """Why it cannot be used here; nothing if it can."""
    if shutil.which("node") is None:
        return "node is not installed"
    if not (_DIRECTORY / "node_modules" / "@stomp" / "stompjs").is_dir():
        return "@stomp/stompjs is not installed; scripts/setup-tests.sh does it"
    return ""


class Stompjs(Client):
    """A connection of stompjs, in a process."""

    def __init__(self, port: int, version: str, beat: int = 0) -> None:
        super().__init__(version)
        self._process = subprocess.Popen(
            ["node", "client.mjs", str(port), version, str(beat)],
            cwd=_DIRECTORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            self.wait_for("CONNECTED")
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            self._inbox.put(Frame(event["command"], event["headers"], base64.b64decode(event["body"])))

    def _tell(self, do: str, **details: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **details}) + "\n")
        self._process.stdin.flush()

    def send(self, destination: str, body: bytes | str, headers: Headers | None = None) -> None:
        receipt = f"send-{next(self._numbers)}"
        sent = {**(headers or {}), "receipt": receipt}
        if isinstance(body, str):
            self._tell("text", destination=destination, headers=sent, text=body)
        else:
            self._tell("send", destination=destination, headers=sent, body=base64.b64encode(body).decode())
        assert self.wait_for("RECEIPT").headers["receipt-id"] == receipt

    def send_in(self, transaction: str, destination: str, body: bytes) -> None:
        headers = {"transaction": transaction}
        self._tell("send", destination=destination, headers=headers, body=base64.b64encode(body).decode())

    def subscribe(self, destination: str, ack: str = "client-individual", headers: Headers | None = None) -> None:
        subscribed = {**(headers or {}), "id": str(next(self._numbers)), "ack": ack}
        self._tell("subscribe", destination=destination, headers=subscribed)

    def ack(self, message: Frame, transaction: str = "") -> None:
        headers = {"transaction": transaction} if transaction else {}
        self._tell("ack", id=message.headers["message-id"], headers=headers)

    def nack(self, message: Frame) -> None:
        self._tell("nack", id=message.headers["message-id"], headers={})

    def begin(self) -> str:
        transaction = f"transaction-{next(self._numbers)}"
        self._tell("begin", id=transaction)
        return transaction

    def commit(self, transaction: str) -> None:
        self._tell("commit", id=transaction)

    def abort(self, transaction: str) -> None:
        self._tell("abort", id=transaction)

    def come_back(self) -> None:
        pass

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(SECONDS)
            self._process.stdout.close()
