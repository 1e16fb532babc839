"""The API's consumption of streams by members of consumer groups. A waiting request costs no task and no polling."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from quire.broker.core.subscription import AckMode
from quire.broker.routing.addresses import Address
from quire.broker.streams.groups.group import RETRIES, MemberSubscription
from quire.broker.streams.groups.group_definition import Order
from quire.broker.streams.groups.retries import LEVELS_MS, level_ms
from quire.broker.streams.partition import Start
from quire.destination import DestinationKind
from quire.errors import BrokerStopping, InvalidArgument
from quire.http.endpoint import READ_STREAM, Call, Endpoint, Fields, Number, PageLimit
from quire.http.pull_door import PollRequest, PullRequest, Terms, handle_of
from quire.management.streams import described
from quire.message import Message
from quire.resources import StreamMessage, doc
from quire.security import Action
from quire.selectors import selector
from quire.sessions.base import ACCEPTED, Settlement, SettlementKind
from quire.sessions.settling import Outcome

MAX_WAIT = 30.0  # how long a request may wait, in seconds
MAX_DELAY = 365 * 86_400  # the longest delay that may be asked for, in seconds
MAX_LEASE = 7 * 86_400  # the longest time that a message may be kept without a word, in seconds

Seconds = Annotated[float, msgspec.Meta(ge=1, le=MAX_LEASE)]


class Receive(Fields, frozen=True):
    """The request of a member for messages.

    ``max`` and ``wait`` (seconds) are about this request; ``start``, ``order`` and ``selector`` about a new group.
    ``held`` has the handles of the messages that the member still has; without it, it has all of them.
    """

    member: str | None = None
    max: PageLimit = 32
    wait: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT)] = 0
    ack: Literal["individual", "auto"] = "individual"
    consume_timeout: Seconds | None = None
    room: str = ""
    partitions: tuple[Number, ...] = ()
    held: list[str] | None = None
    start: str | None = None
    order: Order | None = None
    selector: str | None = None


class ReceivedMessage(StreamMessage, frozen=True):
    """A message that is delivered to a member."""

    attempts: Annotated[int, doc("The number of deliveries to members, including this one.")]
    handle: Annotated[str | None, doc("The handle to settle the message with; null if it needs no acknowledgement.")]


class Received(msgspec.Struct, frozen=True):
    """The answer to a member: its name, its partitions, and messages."""

    member: str
    partitions: list[int]
    messages: list[ReceivedMessage]


class Acknowledge(Fields, frozen=True):
    """Messages that a member has processed: handles, or ranges of them, ``2101-2110.0.7``."""

    member: str
    handles: list[str]


class Reject(Fields, frozen=True):
    """Messages that a member could not process, and when they are retried.

    ``delay`` is in seconds, ``level`` 1 to 18; without both the policy decides. A ``dead_letter`` is not retried.
    """

    member: str
    handles: list[str]
    delay: Annotated[float, msgspec.Meta(ge=0, le=MAX_DELAY)] | None = None
    level: Annotated[int, msgspec.Meta(ge=1, le=len(LEVELS_MS))] | None = None
    dead_letter: bool = False


class Extend(Fields, frozen=True):
    """Messages whose leases are to end in so many ``seconds`` from now."""

    member: str
    handles: list[str]
    seconds: Seconds


class Settled(msgspec.Struct, frozen=True):
    """The outcome of each handle; a range has one for each of its offsets.

    ``done``: as asked for. ``late``: the lease had ended, but an acknowledgement counts; a rejection is not needed.
    ``stale``: the member no longer has it. ``fenced``: the partition was assigned anew. ``gone``: there is no lease to
    extend, the message is finished.
    """

    handles: dict[str, Outcome]


class Leave(Fields, frozen=True):
    """The member that leaves."""

    member: str


class Left(msgspec.Struct, frozen=True):
    """Whether the group had the member."""

    left: bool


def _may_receive(call: Call) -> None:
    call.guard.check_subscribe([Address(DestinationKind.STREAM, call.name)])  # it is created if it is not there


async def _receive(call: Call) -> Received:
    if call.service.is_stopping:
        raise BrokerStopping("the broker is stopping: send the request again")
    new: Receive = call.body
    ack = AckMode.AUTO if new.ack == "auto" else AckMode.INDIVIDUAL
    request = PollRequest(
        new.member, new.max, new.wait, Terms(ack, new.consume_timeout, new.room, new.partitions), new.held,
        None if new.start is None else Start.parse(new.start), new.order,
        None if new.selector is None else selector(new.selector),
    )  # fmt: skip
    poll = call.services.pull.poll(call.name, call.path["group"], request, call.guard)
    is_done = False
    try:
        if await _done_or_gone(call, poll.begin):
            call.access.check(Action.READ, DestinationKind.STREAM, call.name)  # it may have changed meanwhile
            is_done = True
    finally:
        if not is_done:
            poll.abandon()
    if poll.error is not None:
        raise poll.error
    return _received(poll)


async def _done_or_gone(call: Call, begin: Callable[[Callable[[], None]], None]) -> bool:
    """Wait, in this request's own task, for what ``begin`` begins; false if the caller went away before."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as wait:
            begin(lambda: wait.reschedule(loop.time()))
            while (await call.request.receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return True
    return False


def _received(poll: PullRequest) -> Received:
    member = poll.puller.member
    partitions = sorted(partition for partition in member.children if partition != RETRIES)
    return Received(member.id, partitions, [_message(child, message) for child, message in poll.taken])


def _message(child: MemberSubscription, message: Message) -> ReceivedMessage:
    partition, offset = child.origin(message)
    return ReceivedMessage(
        **msgspec.structs.asdict(described(partition, offset, message)),
        attempts=max(message.deliveries, 1) + 1 if message.redelivered else 1,
        handle=None if child.ack is AckMode.AUTO else handle_of(child, message),
    )


def _settle(call: Call, how: Settlement) -> Settled:
    new: Acknowledge | Reject | Extend = call.body
    settle = call.services.pull.settle
    return Settled(settle(call.name, call.path["group"], new.member, new.handles, how, call.guard))


async def _acknowledge(call: Call) -> Settled:
    settled = _settle(call, ACCEPTED)
    await call.durable()
    return settled


async def _reject(call: Call) -> Settled:
    new: Reject = call.body
    if [new.delay is not None, new.level is not None, new.dead_letter].count(True) > 1:
        raise InvalidArgument("give only one of delay, level and dead_letter", argument="delay")
    delay = None if new.delay is None else round(new.delay * 1000)
    how = Settlement(SettlementKind.REJECTED, delay if new.level is None else level_ms(new.level))
    settled = _settle(call, Settlement(SettlementKind.DEAD) if new.dead_letter else how)
    await call.durable()
    return settled


def _extend(call: Call) -> Settled:
    return _settle(call, Settlement(SettlementKind.EXTEND, round(call.body.seconds * 1000)))


async def _leave(call: Call) -> Left:
    left = call.services.pull.leave(call.name, call.path["group"], call.body.member, call.guard)
    await call.durable()
    return Left(left)


_GROUP = "/streams/{name}/groups/{group}"

ENDPOINTS = [
    Endpoint(
        "POST", _GROUP + "/receive", READ_STREAM,
        "Receive messages as a member of a group. A new member joins the group.", _receive, Received, body=Receive,
        check=_may_receive,
    ),
    Endpoint(
        "POST", _GROUP + "/acknowledge", READ_STREAM, "Acknowledge messages. The answer comes when that is durable.",
        _acknowledge, Settled, body=Acknowledge,
    ),
    Endpoint(
        "POST", _GROUP + "/reject", READ_STREAM, "Reject messages: they are retried or dead-lettered.", _reject,
        Settled, body=Reject,
    ),
    Endpoint("POST", _GROUP + "/extend", READ_STREAM, "Extend the leases of messages.", _extend, Settled, body=Extend),
    Endpoint(
        "POST", _GROUP + "/leave", READ_STREAM,
        "Leave the group. Other members get its partitions and messages at once.", _leave, Left, body=Leave,
    ),
]  # fmt: skip
