"""What needs an operator's attention, in words: what is wrong, and what to do."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from quire.broker.core.core import HoldCause
from quire.clock import told
from quire.errors import QuireError
from quire.management.described import Status, doc
from quire.management.sampling.concerns import CRITICAL, INFO, MOST, SEVERITIES, WARNING, Concern
from quire.management.sampling.objects import existing
from quire.management.waits import cause_text
from quire.units import format_size

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.management.sampling.sampler import Sampler

NEAR = 0.9
"""A limit that is used up to this part is near."""

HELD_LONG = 10.0
"""A producer that is held for so many seconds gets an error soon."""

VERY_NEAR = 0.97
"""One that is used up to this part is reached soon."""


class Attention(Status, frozen=True):
    """One thing that needs attention."""

    severity: Annotated[Literal["critical", "warning", "info"], doc("How bad it is.")]
    code: Annotated[str, doc("What it is, in one word that stays the same.")]
    text: Annotated[str, doc("What is wrong, in words.")]
    advice: Annotated[str, doc("What to do.")]
    kind: Annotated[str, doc("What it is about: broker, queue, durable or group.")]
    name: Annotated[str, doc("Its name; of a durable subscription CLIENT/NAME, of a group STREAM/GROUP.")]
    since_seconds: Annotated[float | None, doc("For how long; null if unknown.")]


ADVICE = {
    "paused": "Resume it when its consumers may go on.",
    "dead-letters": "Look at their causes, mend the consumer, then redrive or purge them.",
    "no-consumer": "Start a consumer; or purge or delete the queue if its messages are not needed any more.",
    "durable-offline": "Start its client; or delete the durable subscription if it is not needed any more.",
    "consumers-idle": "Look at its consumers: each one says why it is given nothing.",
    "old-message": "Look at the first message and at the consumer that has it; add consumers if they are busy.",
    "slow-consumers": "Add consumers, or let each one do less for a message.",
    "no-member": "Start a member of the group; or delete the group if it is not needed any more.",
    "group-lags": "Add members, as many as there are partitions at the most; look at its retries.",
    "store-failing": "Free space or repair the disk of the store; the broker tries again every second.",
    "producers-held": "Consume or purge messages, free disk space, or raise the limit.",
    "store-near-limit": "Consume or purge messages, or raise store.limit.",
    "spool-near-limit": "Consume or purge non-persistent messages, or raise spool.limit.",
    "memory-near-limit": "Nothing: other messages wait in the store. A higher memory.limit may make deliveries faster.",
    "disk-low": "Free space on the disk.",
    "clock-set": "Synchronise the clock (NTP), and let it be slewed: expirations, schedules and retention go by it.",
    "many-destinations": "Delete destinations that are not used, or raise broker.max_destinations.",
}
"""What to do, by code."""


class AttentionReader:
    """Tells what needs attention."""

    def __init__(self, broker: "Broker", sampler: "Sampler") -> None:
        self._broker = broker
        self._sampler = sampler

    def read(self) -> tuple[list[Attention], int]:
        """The worst concerns, and how many more there are."""
        concerns = self._sampler.latest.concerns
        found = [_attention(concern, text) for concern, text in self._of_broker()]
        total = len(found) + concerns.counts.total()
        found += [_attention(concern, self._text(concern)) for concern in concerns.worst()[: MOST - len(found)]]
        found.sort(key=lambda each: SEVERITIES.index(each.severity))
        return found, total - len(found)

    def _of_broker(self) -> Iterator[tuple[Concern, str]]:
        """The concerns of the broker as a whole."""
        core = self._broker.core
        if (error := self._broker.failure.error) is not None:
            yield _concern(CRITICAL, "store-failing", self._broker.failure.age), f"the store accepts no writes: {error}"
        yield from self._held()
        uses = (
            ("store", core.stored_bytes, core.settings.store.limit), ("spool", core.spool.used, core.spool.limit),
        )  # fmt: skip
        for what, used, limit in uses:
            if used >= NEAR * limit:
                text = f"the {what} has {format_size(used)} of {format_size(limit)}"
                yield _concern(CRITICAL if used >= VERY_NEAR * limit else WARNING, f"{what}-near-limit"), text
        if core.memory.used >= VERY_NEAR * core.memory.limit:
            text = f"resident messages take {format_size(core.memory.used)} of {format_size(core.memory.limit)}"
            yield _concern(INFO, "memory-near-limit"), text
        for cause, disk in self._broker.disks.disks.items():
            if disk.room < 2 * disk.limit:
                what = "store" if cause is HoldCause.STORE_DISK else "spool"
                least = format_size(disk.limit)
                text = f"the disk of the {what} has {format_size(disk.room)} left; producers wait below {least}"
                yield _concern(CRITICAL if disk.is_low else WARNING, "disk-low"), text
        yield from self._clock()
        limits = core.limits
        if limits.destinations >= NEAR * limits.max_destinations:
            text = f"there are {limits.destinations} of {limits.max_destinations} destinations"
            yield _concern(WARNING, "many-destinations"), text

    def _clock(self) -> Iterator[tuple[Concern, str]]:
        """The clock was set, lately."""
        clock, step = self._broker.core.clock, self._broker.core.wall.latest_step()
        if step is not None:
            yield _concern(WARNING, "clock-set", clock.monotonic() - step.at), told(step)

    def _held(self) -> Iterator[tuple[Concern, str]]:
        core = self._broker.core
        causes = Counter([hold.cause for hold in core.flow.holds.values()])
        for cause, count in causes.items():
            first = next(hold.since for hold in core.flow.holds.values() if hold.cause is cause)
            age = core.clock.monotonic() - first
            text = f"producers wait: {count}, the longest for {age:.0f} s; the cause is {cause}"
            yield _concern(CRITICAL if age >= HELD_LONG else WARNING, "producers-held", age), text

    def _text(self, concern: Concern) -> str:
        number, age = f"{concern.number:,}", _age(concern.age)
        texts = {
            "paused": f"deliveries are paused; messages: {number}",
            "dead-letters": f"dead letters: {number}; the oldest is {age} old",
            "no-consumer": f"messages wait, and there is no consumer: {number}; the oldest is {age} old",
            "durable-offline": f"the subscription is offline; messages wait: {number}, the oldest for {age}",
            "consumers-idle": f"consumers have taken nothing for {age}; messages: {number}{self._cause(concern)}",
            "old-message": f"the oldest message has waited for {age}; messages: {number}{self._cause(concern)}",
            "slow-consumers": f"consumers that do not keep up: {number}, for {age}",
            "no-member": f"messages are not finished, and no member is connected: {number}",
            "group-lags": f"the group lags by {number} messages; the oldest is {age} old",
        }
        return texts[concern.code]

    def _cause(self, concern: Concern) -> str:
        """Why the messages of a queue or subscription are not taken."""
        try:
            source: Any = existing(self._broker, concern.kind, concern.name)
        except QuireError:  # it has gone since the sample
            return ""
        text = cause_text(self._broker, source)
        return f"; {text}" if text else ""


def _concern(rank: int, code: str, age: float | None = None) -> Concern:
    return Concern(rank, 0.0, code, "broker", "", 0, age)


def _attention(concern: Concern, text: str) -> Attention:
    severity: Any = SEVERITIES[concern.rank]
    return Attention(severity, concern.code, text, ADVICE[concern.code], concern.kind, concern.name, concern.age)


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown time"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
