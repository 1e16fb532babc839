"""What long or dangerous requests go through: what they make the broker hold, dry runs, progress, cancelling.

A request holds its body until it is done and its answer until it is read (``RequestMemory``), and each stretch of its
coroutine between two waits is a turn of the event loop (``Measured``). A dry run tells what an action would do, and
gives a token that stands for exactly that (``Confirmations``). An operation says how far it has come and is cancelled
by its id (``Operations``).
"""

import asyncio
import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from quire.broker.broker import Broker
from quire.broker.core.core import TurnMeter
from quire.clock import Clock
from quire.errors import BrokerBusy, ConfirmationMismatch, QuireError, UnknownOperation
from quire.resources import OperationStatus, doc


class Measured:
    def __init__(self, coroutine: Coroutine[Any, Any, None], meter: TurnMeter, what: str) -> None:
        self._coroutine = coroutine
        self._meter = meter
        self._what = what

    def __await__(self) -> Generator[Any, Any, None]:
        step, argument = self._coroutine.send, None
        while True:
            self._meter.begin()
            try:
                waits_for = step(argument)
            except StopIteration:
                return
            finally:
                self._meter.end("request", self._what)
            try:
                argument = yield waits_for
                step = self._coroutine.send
            except BaseException as error:  # a cancellation, say: the coroutine's matter
                step, argument = self._coroutine.throw, error


class RequestMemory:
    """One request's part of the account that unfinished STOMP frames are in too (``Broker.partial_bytes``)."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._taken = 0

    def take(self, size: int) -> None:
        """Hold some bytes more. One request is always given what it needs: if it is alone."""
        broker = self._broker
        if broker.core.partial_bytes + size > broker.core.partial_limit and broker.core.partial_bytes > self._taken:
            held, limit = broker.core.partial_bytes, broker.core.partial_limit
            text = f"requests and frames under way have {held} bytes, the limit is {limit}"
            raise BrokerBusy(text, held=held, limit=limit)
        broker.core.charge_partial(size)
        self._taken += size

    def release(self) -> None:
        self._broker.core.charge_partial(-self._taken)
        self._taken = 0


MOST_RUNNING = 20  # how many operations may run in the background
MOST_ENDED = 100  # how many operations that have ended are remembered


class Operation:
    def __init__(
        self, id: str, action: str, target: str, by: str, user: str, started_at: int, *, background: bool
    ) -> None:
        self.is_cancelled = False
        self.user = user
        self.status = OperationStatus(id, action, target, by, "running", 0, None, background, started_at, None, None)

    def progress(self, done: int, of: int | None = None) -> None:
        self.status = msgspec.structs.replace(self.status, done=done, of=self.status.of if of is None else of)

    def named(self, action: str) -> None:
        self.status = msgspec.structs.replace(self.status, action=action)

    def end(self, now_ms: int, error: BaseException | None = None) -> None:
        state: Literal["done", "failed", "cancelled"] = "cancelled" if self.is_cancelled else "done"
        text = None
        if error is not None:
            state, text = "failed", str(error) if isinstance(error, QuireError) else "an unexpected error occurred"
        self.status = msgspec.structs.replace(self.status, state=state, ended_at=now_ms, error=text)


class Operations:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._running: dict[str, Operation] = {}
        self._ended: deque[Operation] = deque(maxlen=MOST_ENDED)
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = 0

    def begin(self, action: str, target: str, by: str, user: str = "", *, background: bool = False) -> Operation:
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
        if len(self._tasks) >= MOST_RUNNING:
            text = f"{MOST_RUNNING} operations run in the background, and there may be no more"
            raise BrokerBusy(text, limit=MOST_RUNNING)

    def all(self) -> list[Operation]:
        return [*reversed(self._running.values()), *reversed(self._ended)]

    def existing(self, id: str) -> Operation:
        if (found := self._running.get(id)) is not None:
            return found
        for operation in self._ended:
            if operation.status.id == id:
                return operation
        raise UnknownOperation(f"there is no operation {id[:60]!r}", operation=id[:60])

    async def stop(self) -> None:
        """They end after the step under way."""
        for operation in self._running.values():
            operation.is_cancelled = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_LIMIT)


STOP_LIMIT = 5.0  # how many seconds a stop waits for operations to end


LIFETIME_MS = 600_000  # how long a token may be used, in milliseconds
COUNT_LIMIT = 1.0  # how many seconds a dry run counts; what it has counted then is the least


class Counted(NamedTuple):
    messages: int  # to how many messages
    is_least: bool = False  # whether there may be more
    consumers: int = 0  # how many consumers or members it would disconnect, with ``force``


class DryRun(msgspec.Struct, frozen=True):
    """What an action would do. Nothing has changed."""

    action: Annotated[str, doc("The request: method and path.")]
    target: Annotated[dict[str, str], doc("What the action is about: the names in the path.")]
    count: Annotated[int, doc("How many messages it would touch now.")]
    at_least: Annotated[bool, doc("Whether the broker stopped counting: there may be more.")]
    consumers: Annotated[int, doc("How many consumers or members are there.")]
    token: Annotated[str, doc("Send the same request with this as ``token`` to do it.")]
    ends_at: Annotated[int, doc("Until when the token may be used, in milliseconds since the epoch.")]


class Intent(NamedTuple):
    user: str  # who asks
    action: str  # the method and the path, with its names
    query: bytes  # what else the query says, as JSON
    body: bytes  # what the body says, as JSON


class Confirmations:
    """Makes tokens and checks them. Nothing is remembered of one: it carries its own proof."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)

    def token(self, intent: Intent) -> tuple[str, int]:
        ends = self._now() + LIFETIME_MS
        return f"{ends}.{self._proof(intent, ends)}", self._clock.now_ms() + LIFETIME_MS

    def check(self, token: str, intent: Intent) -> None:
        ends, _, proof = token.partition(".")
        end = int(ends) if ends.isascii() and ends.isdecimal() and len(ends) < 20 else 0
        if not hmac.compare_digest(self._proof(intent, end), proof if proof.isascii() else ""):
            raise ConfirmationMismatch("the token is of another request: user, action, target or selection differ")
        if self._now() > end:
            raise ConfirmationMismatch("the time of the token is over")

    def _now(self) -> int:
        """Milliseconds on the monotonic clock: a token is checked by the process that made it."""
        return int(self._clock.monotonic() * 1000)

    def _proof(self, intent: Intent, end: int) -> str:
        signed = msgspec.msgpack.encode((*intent, end))
        return hmac.new(self._key, signed, hashlib.sha256).hexdigest()


async def counted(clock: Clock, steps: Iterable[int], consumers: int = 0) -> Counted:
    """Count by steps that change nothing; for a second at the most."""
    end, count = clock.monotonic() + COUNT_LIMIT, 0
    for found in steps:
        count += found
        await asyncio.sleep(0)
        if clock.monotonic() >= end:
            return Counted(count, True, consumers)
    return Counted(count, False, consumers)
