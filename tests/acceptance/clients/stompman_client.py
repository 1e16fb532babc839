"""stompman: asyncio, 1.2, connects and subscribes again by itself."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import stompman

from tests.acceptance.clients.client import SECONDS, Client, Frame, Headers

_Transaction = tuple[AbstractAsyncContextManager[stompman.Transaction], stompman.Transaction]


class Stompman(Client):
    """A connection of stompman, on an event loop in a thread."""

    def __init__(self, port: int, version: str, beat: int = 0) -> None:
        super().__init__(version)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._client = stompman.Client(
            [stompman.ConnectionParameters("127.0.0.1", port, "user", "password")],
            # It does not take 0 for never.
            heartbeat=stompman.Heartbeat(beat or 60_000, beat or 60_000),
            connect_retry_attempts=100,
            connect_retry_interval=0,
            on_error_frame=self._failed,
        )
        self._ends = asyncio.Event()
        self._transactions: dict[str, _Transaction] = {}
        self._subscriptions: list[stompman.ManualAckSubscription] = []
        opened: asyncio.Future[None] = asyncio.Future(loop=self._loop)
        self._life = asyncio.run_coroutine_threadsafe(self._live(opened), self._loop)
        try:
            self._call(_wait_for(opened))
        except BaseException:
            self._stop_loop()
            raise

    async def _live(self, opened: "asyncio.Future[None]") -> None:
        async with self._client:
            opened.set_result(None)
            await self._ends.wait()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def _failed(self, frame: stompman.ErrorFrame) -> None:
        self._inbox.put(Frame("ERROR", dict(frame.headers), frame.body))  # type: ignore[arg-type]

    async def _take(self, frame: stompman.AckableMessageFrame) -> None:
        self._inbox.put(Frame("MESSAGE", dict(frame.headers), frame.body, frame))  # type: ignore[arg-type]

    def send(self, destination: str, body: bytes | str, headers: Headers | None = None) -> None:
        content = body.encode() if isinstance(body, str) else body
        self._call(self._client.send(content, destination, headers=dict(headers or {}), receipt_timeout=SECONDS))

    def send_in(self, transaction: str, destination: str, body: bytes) -> None:
        self._call(self._transactions[transaction][1].send(body, destination))

    def subscribe(self, destination: str, ack: str = "client-individual", headers: Headers | None = None) -> None:
        work = self._client.subscribe_with_manual_ack(
            destination, self._take, ack=ack, headers=dict(headers or {}), receipt_timeout=SECONDS  # type: ignore[arg-type]
        )  # fmt: skip
        # Refused without a receipt, it would connect and subscribe again and again. The refusal comes as ERROR too.
        with contextlib.suppress(stompman.SubscriptionError):
            self._subscriptions.append(self._call(work))

    def ack(self, message: Frame, transaction: str = "") -> None:
        assert not transaction, "stompman has no acknowledgements in transactions"
        assert isinstance(message.origin, stompman.AckableMessageFrame)
        self._call(message.origin.ack())

    def nack(self, message: Frame) -> None:
        assert isinstance(message.origin, stompman.AckableMessageFrame)
        self._call(message.origin.nack())

    def begin(self) -> str:
        context = self._client.begin()
        transaction = self._call(context.__aenter__())
        self._transactions[transaction.id] = context, transaction
        return str(transaction.id)

    def commit(self, transaction: str) -> None:
        context, _ = self._transactions.pop(transaction)
        self._call(context.__aexit__(None, None, None))

    def abort(self, transaction: str) -> None:
        context, _ = self._transactions.pop(transaction)
        error = RuntimeError("abort")
        with contextlib.suppress(RuntimeError):
            self._call(context.__aexit__(RuntimeError, error, None))

    def come_back(self) -> None:
        pass

    def close(self) -> None:
        if self._loop.is_closed():
            return
        try:
            # Closed while it connects again, it would leave a socket open. What is lost with the old connection, if the
            # broker has closed that, is the first of these.
            with contextlib.suppress(stompman.SendReceiptError):
                self.settle()
            self.settle()
            for subscription in self._subscriptions:
                self._call(subscription.unsubscribe())
            self._loop.call_soon_threadsafe(self._ends.set)
            self._life.result(SECONDS)
        finally:
            self._stop_loop()

    def _stop_loop(self) -> None:
        self._life.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


async def _wait_for(future: "asyncio.Future[None]") -> None:
    await future
