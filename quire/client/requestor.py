"""Requests and their answers: one temporary queue of the connection takes all answers."""

import asyncio
import itertools

from quire.client.destinations import ClientDestination, TemporaryQueue
from quire.client.message import Body, Message
from quire.client.producer import Producer
from quire.client.received_message import ReceivedMessage
from quire.client.session import Session
from quire.errors import RequestUnanswered


class Requestor:
    """Sends requests, and gives each answer to who waits for it.

    Args:
        session: a session of its own, in mode ``AUTO``.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._answers: TemporaryQueue | None = None
        self._producer: Producer | None = None
        self._lock = asyncio.Lock()

    async def ask(self, destination: ClientDestination, body: Body | Message, timeout: float | None) -> ReceivedMessage:
        """Send a request, and wait for its answer.

        Args:
            destination: who answers there.
            body: the request.
            timeout: how long the answer may take, in seconds; None: without a limit.

        Raises:
            RequestUnanswered: no answer came in time.
        """
        answers, producer = await self._opened()
        correlation_id = f"{answers.name}:{next(self._numbers)}"
        answer: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = answer
        try:
            async with asyncio.timeout(timeout):
                await producer.send(body, destination=destination, persistent=False, time_to_live=timeout,
                                    reply_to=answers, correlation_id=correlation_id)  # fmt: skip
                return await answer
        except TimeoutError as error:
            text = f"no answer from {destination} within {timeout:g} s"
            raise RequestUnanswered(text, destination=str(destination), timeout=timeout) from error
        finally:
            del self._waiting[correlation_id]

    async def _opened(self) -> tuple[TemporaryQueue, Producer]:
        async with self._lock:
            if self._answers is None or self._producer is None:
                answers = await self._session.temporary_queue()
                await self._session.consumer(answers, listener=self._answered)
                self._answers, self._producer = answers, self._session.producer()
            return self._answers, self._producer

    async def _answered(self, message: ReceivedMessage) -> None:
        waiting = self._waiting.get(message.correlation_id or "")
        if waiting is not None and not waiting.done():
            waiting.set_result(message)
