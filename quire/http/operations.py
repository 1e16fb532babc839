"""Long operations: how far they have come, and how one is cancelled."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import msgspec

from quire.broker.broker import Broker
from quire.errors import BrokerBusy, QuireError, UnknownOperation
from quire.http.measured import Measured
from quire.http.request_memory import RequestMemory
from quire.management.described import doc

MOST_RUNNING = 20
"""How many operations may run in the background."""

MOST_ENDED = 100
"""How many operations that have ended are remembered."""


class OperationStatus(msgspec.Struct, frozen=True):
    """A long operation."""

    id: Annotated[str, doc("Its id.")]
    action: Annotated[str, doc("What it does: the name of the event in the log, messages.purged say.")]
    target: Annotated[str, doc("To what.")]
    by: Annotated[str, doc("Who asked for it.")]
    state: Annotated[Literal["running", "done", "failed", "cancelled"], doc("Its state.")]
    done: Annotated[int, doc("How many messages are done.")]
    of: Annotated[int | None, doc("How many there are, if that is known.")]
    background: Annotated[bool, doc("Whether nothing waits for it.")]
    started_at: Annotated[int, doc("When it began, in milliseconds since the epoch.")]
    ended_at: Annotated[int | None, doc("When it ended; null while it runs.")]
    error: Annotated[str | None, doc("Why it failed; null if it did not.")]


class Operation:
    """One operation. It is told of its progress, and asks whether it is cancelled.

    Attributes:
        is_cancelled: whether it ends after the step under way.
        user: who asked for it; empty as long as there are no users.
    """

    def __init__(
        self, id: str, action: str, target: str, by: str, user: str, started_at: int, *, background: bool
    ) -> None:
        self.is_cancelled = False
        self.user = user
        self.status = OperationStatus(id, action, target, by, "running", 0, None, background, started_at, None, None)

    def progress(self, done: int, of: int | None = None) -> None:
        """So many messages are done."""
        self.status = msgspec.structs.replace(self.status, done=done, of=self.status.of if of is None else of)

    def named(self, action: str) -> None:
        """What it does is known."""
        self.status = msgspec.structs.replace(self.status, action=action)

    def end(self, now_ms: int, error: BaseException | None = None) -> None:
        """It is over."""
        state: Literal["done", "failed", "cancelled"] = "cancelled" if self.is_cancelled else "done"
        text = None
        if error is not None:
            state, text = "failed", str(error) if isinstance(error, QuireError) else "an unexpected error occurred"
        self.status = msgspec.structs.replace(self.status, state=state, ended_at=now_ms, error=text)


class Operations:
    """All operations that run, and the last ones that have ended."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._running: dict[str, Operation] = {}
        self._ended: deque[Operation] = deque(maxlen=MOST_ENDED)
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = 0

    def begin(self, action: str, target: str, by: str, user: str = "", *, background: bool = False) -> Operation:
        """Note an operation that begins."""
        self._last += 1
        operation = Operation(
            str(self._last), action, target, by, user, self._broker.core.clock.now_ms(), background=background
        )
        self._running[operation.status.id] = operation
        return operation

    def end(self, operation: Operation, error: BaseException | None = None) -> None:
        """Note its end; short ones that a caller waited for are not remembered."""
        operation.end(self._broker.core.clock.now_ms(), error)
        self._running.pop(operation.status.id, None)
        if operation.status.background or operation.is_cancelled or error is not None:
            self._ended.append(operation)

    def start(self, operation: Operation, work: Callable[[], Awaitable[object]], size: int) -> None:
        """Have an operation work in the background; ``size`` is what its request makes the broker hold, in bytes."""
        memory = RequestMemory(self._broker)
        memory.take(size)

        async def run() -> None:
            error: BaseException | None = None
            try:
                await work()
            except BaseException as caught:  # it is told by the operation; a defect is logged by the event loop too
                error = caught
                if not isinstance(caught, QuireError | asyncio.CancelledError):
                    raise
            finally:
                memory.release()
                self.end(operation, error)

        async def measured() -> None:
            await Measured(run(), self._broker.core.meter, f"operation {operation.status.action}")

        task = asyncio.get_running_loop().create_task(measured())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def check_room(self) -> None:
        """Refuse one more in the background if there are too many."""
        if len(self._tasks) >= MOST_RUNNING:
            text = f"{MOST_RUNNING} operations run in the background, and there may be no more"
            raise BrokerBusy(text, limit=MOST_RUNNING)

    def all(self) -> list[Operation]:
        """The running ones, and those that have ended, the newest first."""
        return [*reversed(self._running.values()), *reversed(self._ended)]

    def existing(self, id: str) -> Operation:
        """The operation of an id; an unknown one is an error."""
        if (found := self._running.get(id)) is not None:
            return found
        for operation in self._ended:
            if operation.status.id == id:
                return operation
        raise UnknownOperation(f"there is no operation {id[:60]!r}", operation=id[:60])

    async def stop(self) -> None:
        """The broker goes down: the operations end after the step under way."""
        for operation in self._running.values():
            operation.is_cancelled = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_LIMIT)


STOP_LIMIT = 5.0
"""How many seconds a stop waits for operations to end."""
