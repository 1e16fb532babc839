"""What must hold of a broker at any time, or at rest, however it came there."""

from operator import attrgetter

from quire.broker.queues.queue import Queue
from quire.message import Message
from quire.testing.stepped import SteppedBroker
from tests.simulation.checks import ALL, GREATEST, check_answered
from tests.simulation.jumping_clock import RightClock
from tests.simulation.queues.client import Client
from tests.simulation.queues.ownership import Ownership
from tests.simulation.queues.subscribed import Subscribed
from tests.simulation.rules import Broken, Rule


def check_memory(stepped: SteppedBroker) -> None:
    """At any time: no more is resident than the limits allow, and one message for each queue and subscription."""
    broker = stepped.broker
    lanes = sum([len(queue.lanes) for queue in broker.queues.values()]) + len(broker.durables)
    most = broker.core.memory.limit + GREATEST * lanes
    if broker.core.memory.peak > most:
        raise Broken(Rule.MEMORY, f"{broker.core.memory.peak} bytes were resident, the most is {most}")
    for name, queue in broker.queues.items():
        most = queue.memory.limit + GREATEST * len(queue.lanes)
        if queue.memory.limit and queue.memory.peak > most:
            raise Broken(Rule.MEMORY, f"{name} had {queue.memory.peak} bytes resident, the most is {most}")


def check_counts(stepped: SteppedBroker) -> None:
    """At rest: what queues count is what there is."""
    broker = stepped.broker
    if broker.core.store_error is not None:
        return  # acknowledgements wait for the store, and are counted already
    for name, queue in broker.queues.items():
        states = [stepped.store.lane_state(lane.id) for lane in queue.lanes]
        spooled = [link for lane in queue.lanes for link in stepped.spool.links(lane.id, 0, ALL)]
        unstored = queue.locator.unstored()
        count = sum([state.count for state in states]) + len(spooled) + len(unstored)
        size = sum([state.bytes for state in states]) + sum([link.size for link in spooled])
        size += sum([message.size for message in unstored])
        if (queue.depth, queue.bytes) != (count, size):
            text = f"{name} counts {queue.depth} messages of {queue.bytes} bytes and has {count} of {size}"
            raise Broken(Rule.COUNT, text)
    counted = sum([queue.bytes for queue in broker.queues.values()])
    counted += sum([topic.bytes for topic in broker.destinations.topics.values()])
    if broker.core.stored_bytes != counted:
        raise Broken(Rule.COUNT, f"the broker counts {broker.core.stored_bytes} bytes, its destinations {counted}")
    resident = sum([source.memory.used for source in [*broker.queues.values(), *broker.durables]])
    if broker.core.memory.used != resident:
        raise Broken(Rule.MEMORY, f"the broker has {broker.core.memory.used} bytes resident, its queues {resident}")


def check_going_on(
    stepped: SteppedBroker, clients: list[Client], ownership: Ownership, right: RightClock
) -> None:  # fmt: skip
    """At rest, without any time going by: everybody has got what could be given."""
    broker = stepped.broker
    if broker.core.store_error is not None:
        return  # it is tried again after a time
    check_answered(stepped, clients)
    for client in clients:
        if client.subscribed and client.subscribed.credit > 0 and client.connection.session.writable:
            waiting = _waiting_for(stepped, client.subscribed, ownership, right)
            if waiting:
                some = ", ".join(waiting[:3])
                raise Broken(Rule.STALL, f"{client.name} has credit, and {some} wait in {client.subscribed.queue}")


def _waiting_for(
    stepped: SteppedBroker, subscribed: Subscribed, ownership: Ownership, right: RightClock
) -> list[str]:  # fmt: skip
    """The messages that a consumer with credit should have got."""
    queue = stepped.queue(subscribed.queue)
    if queue.depth == queue.in_flight or queue.fault is not None:
        return []
    if queue.in_flight and queue.memory.available() < GREATEST:
        return []  # memory is full, and the queue has a part in that
    past, now = min(stepped.clock.now_ms(), right.now_ms()), stepped.broker.core.wall.steady_ms()
    waiting = [
        m for m in _waiting(stepped, queue) if not m.expiration or m.expiration > past or _outlives(m, now, right)
    ]
    delayed = any([message.not_before > now for message in waiting])
    is_exclusive = ownership.has_exclusive(subscribed.queue)
    if delayed and (is_exclusive or queue.policy.blocking_redelivery or queue.policy.strict_order_dispatch):
        return []  # the others wait for them
    ready = []
    stopped: set[str | None] = {None}
    for message in waiting:
        group = message.header(b"JMSXGroupID")
        if message.not_before > now or not ownership.may_have(subscribed, message):
            stopped.add(group)  # the next ones of a group wait for this one
        elif group is None or group not in stopped:
            ready.append(message.body.decode().partition(";")[0])
    return ready


def _outlives(message: Message, steady_ms: int, right: RightClock) -> bool:
    """Whether a delay ends behind the expiration of its message, since the clock was wrong when it began."""
    return right.wrong.was_set and message.not_before > steady_ms


def check_delays(stepped: SteppedBroker) -> None:
    """At any time: no message waits for longer than its delay."""
    now = stepped.broker.core.wall.steady_ms()
    for queue in stepped.broker.queues.values():
        longest = max(queue.policy.initial_redelivery_delay, queue.policy.redelivery_delay)
        for message in _waiting(stepped, queue) if longest else []:
            if (left := (message.not_before - now) / 1000) > longest:
                raise Broken(Rule.LATE, f"{message.body[:10]!r} waits for {left} s yet, its delay is {longest} s")


def _waiting(stepped: SteppedBroker, queue: Queue) -> list[Message]:
    """All messages of a queue that no consumer has, in order."""
    messages = queue.locator.unstored()
    for lane in queue.lanes:
        messages += stepped.store.page(lane.id, 0, ALL, ALL).messages
        messages += stepped.spool.page(lane.id, 0, ALL, ALL).messages
    taken = queue.locator.in_flight_sequences()
    return sorted([m for m in messages if m.sequence not in taken], key=attrgetter("sequence"))


def check_empty(stepped: SteppedBroker) -> None:
    """At the end, when everything is consumed: nothing is left anywhere."""
    broker = stepped.broker
    left = {
        "stored": stepped.store.size(), "counted": broker.core.stored_bytes, "resident": broker.core.memory.used,
        "spooled": stepped.spool.used, "transacted": broker.core.transaction_bytes, "held": len(broker.core.flow.holds),
    }  # fmt: skip
    if any(left.values()):
        raise Broken(Rule.MEMORY, f"everything is consumed, and there is something left: {left}")
