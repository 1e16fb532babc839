"""stomp.py: a thread per connection that calls listeners."""

import contextlib
from collections.abc import Callable

import stomp  # type: ignore[import-untyped]

from tests.acceptance.clients.client import SECONDS, Client, Frame, Headers

_CLASSES = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}


class StompPy(Client):
    """A connection of stomp.py."""

    def __init__(self, port: int, version: str, beat: int = 0, *others: int) -> None:
        super().__init__(version)
        self._hosts = [("127.0.0.1", each) for each in (port, *others)]
        self._beat = beat  # heart-beats both ways, in milliseconds; 0 for none
        self._subscriptions: list[tuple[str, str, str, dict[str, str]]] = []
        self._connect()

    def _connect(self) -> None:
        options: dict[str, object] = {"auto_decode": False, "timeout": SECONDS}
        if self.version != "1.0":
            options["heartbeats"] = (self._beat, self._beat)
        self._connection = _CLASSES[self.version](self._hosts, **options)
        self._connection.set_listener("test", _Listener(self._inbox.put))
        self._connection.connect(wait=True)

    def send(self, destination: str, body: bytes | str, headers: Headers | None = None) -> None:
        receipt = f"send-{next(self._numbers)}"
        self._connection.send(destination, body, headers=dict(headers or {}), receipt=receipt)
        assert self.wait_for("RECEIPT").headers["receipt-id"] == receipt

    def send_in(self, transaction: str, destination: str, body: bytes) -> None:
        self._connection.send(destination, body, transaction=transaction)

    def subscribe(self, destination: str, ack: str = "client-individual", headers: Headers | None = None) -> None:
        self._subscriptions.append((destination, str(next(self._numbers)), ack, dict(headers or {})))
        self._connection.subscribe(*self._subscriptions[-1])

    def ack(self, message: Frame, transaction: str = "") -> None:
        self._settle_one(self._connection.ack, message, transaction)

    def nack(self, message: Frame) -> None:
        self._settle_one(self._connection.nack, message, "")

    def _settle_one(self, method: Callable[..., None], message: Frame, transaction: str) -> None:
        headers = message.headers
        if self.version == "1.2":
            method(headers["ack"], transaction=transaction)
        elif self.version == "1.1":
            method(headers["message-id"], headers["subscription"], transaction=transaction)
        else:
            method(headers["message-id"], transaction=transaction)

    def begin(self) -> str:
        return str(self._connection.begin())

    def commit(self, transaction: str) -> None:
        self._connection.commit(transaction)

    def abort(self, transaction: str) -> None:
        self._connection.abort(transaction)

    def come_back(self) -> None:
        self.wait_for("CLOSED")
        self._connect()
        for subscription in self._subscriptions:
            self._connection.subscribe(*subscription)

    def close(self) -> None:
        if self._connection.is_connected():
            with contextlib.suppress(OSError):  # the broker may have closed it this moment
                self._connection.disconnect("goodbye")
        self._connection.transport.disconnect_socket()


class _Listener(stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self, take: Callable[..., None]) -> None:
        self._take = take

    def on_connected(self, frame: stomp.utils.Frame) -> None:
        self._take(Frame("CONNECTED", frame.headers))

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self._take(Frame("MESSAGE", frame.headers, frame.body))

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        self._take(Frame("RECEIPT", frame.headers))

    def on_error(self, frame: stomp.utils.Frame) -> None:
        self._take(Frame("ERROR", frame.headers, frame.body))

    def on_disconnected(self) -> None:
        self._take(Frame("CLOSED"))
