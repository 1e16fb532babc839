"""Advisories: messages in which the broker tells of what happens to it, on topics ``ActiveMQ.Advisory.*``.

Their topics and headers have ActiveMQ's names (``AdvisorySupport``); the body is a JSON object. An advisory is sent
only if a subscription gets it: of its topic, or a wildcard subscription. There are no advisories about advisory topics.
A policy decides about those that come with messages (``advisory_*``).
"""

import itertools
from collections.abc import Iterable, Mapping

import msgspec

from quire.broker.core.core import Core
from quire.broker.core.subscription import Session, Subscription
from quire.broker.destinations import Destinations
from quire.broker.topics.topic import TopicSubscription
from quire.destination import ADVISORIES, Destination, DestinationKind
from quire.destination_pattern import Pattern
from quire.message import PROPERTY_TYPES, Message, header_lines
from quire.settings import Policy

PREFIX = ADVISORIES

FIRST_REPLAYED = 1 << 42
"""Advisories that only one consumer gets are numbered from here on; those of a topic never get so far."""

_TYPES = {"consumerCount": "int", "producerCount": "int", "discardedCount": "int", "usageCount": "long"}
_KINDS = {DestinationKind.QUEUE: "Queue", DestinationKind.TOPIC: "Topic", DestinationKind.STREAM: "Stream"}


class Advisories:
    """Sends advisories: one method for each kind of event. Without subscribers, a call costs next to nothing."""

    def __init__(self, core: Core, destinations: Destinations) -> None:
        self._core = core
        self._destinations = destinations
        self._patterns: dict[Pattern, int] = {}
        self._connections: dict[Session, str | None] = {}
        self._producers: dict[Destination, dict[tuple[Session, str], None]] = {}
        self._replayed = itertools.count(FIRST_REPLAYED)

    def watch(self, pattern: Pattern) -> None:
        """A wildcard subscription comes: topics that it matches are made when there is something to tell."""
        self._patterns[pattern] = self._patterns.get(pattern, 0) + 1

    def unwatch(self, pattern: Pattern) -> None:
        self._patterns[pattern] -= 1
        if not self._patterns[pattern]:
            del self._patterns[pattern]

    # Connections, destinations, consumers, producers.

    def connection_started(self, session: "Session", client_id: str | None) -> None:
        self._connections[session] = client_id
        self._connection("started", session, client_id)

    def connection_stopped(self, session: "Session", client_id: str | None) -> None:
        self._connections.pop(session, None)
        self._connection("stopped", session, client_id)

    def _connection(self, event: str, session: "Session", client_id: str | None) -> None:
        if self._is_heard("Connection"):
            self._send_content("Connection", self._connection_content(event, session, client_id))

    def connections(self) -> Iterable[bytes]:
        for session, client_id in list(self._connections.items()):
            if session in self._connections:
                yield self._connection_content("started", session, client_id)

    def _connection_content(self, event: str, session: "Session", client_id: str | None) -> bytes:
        return self._content({}, {"event": event, "connection": session.name, "clientId": client_id})

    def destination_created(self, destination: Destination, *, temporary: bool = False) -> None:
        self._destination("created", destination, temporary)

    def destination_deleted(self, destination: Destination, *, temporary: bool = False) -> None:
        self._destination("deleted", destination, temporary)

    def _destination(self, event: str, destination: Destination, temporary: bool) -> None:
        name = ("Temp" if temporary else "") + _KINDS[destination.kind]
        if self._is_heard(name) and not is_advisory(destination):
            self._send_content(name, self.destination_content(event, destination))

    def destination_content(self, event: str, destination: Destination) -> bytes:
        return self._content({}, {"event": event, "destination": str(destination)})

    def consumer_started(self, subscription: "Subscription", consumers: int) -> None:
        self._consumer("started", subscription, consumers)

    def consumer_stopped(self, subscription: "Subscription", consumers: int) -> None:
        self._consumer("stopped", subscription, consumers)

    def _consumer(self, event: str, subscription: "Subscription", consumers: int) -> None:
        if name := self._name("Consumer", subscription.source.destination):
            self._send_content(name, self.consumer_content(event, subscription, consumers))

    def consumer_content(self, event: str, subscription: "Subscription", consumers: int) -> bytes:
        selector = None if subscription.selector is None else subscription.selector.text
        details = {"prefetch": subscription.prefetch, "priority": subscription.priority, "selector": selector}
        body = {"event": event, **_of(subscription), **details, "exclusive": subscription.exclusive}
        return self._content({"consumerCount": consumers, "consumerId": _id(subscription)}, body)

    def producer_started(self, session: "Session", id: str, destination: Destination) -> None:
        self._producers.setdefault(destination, {})[session, id] = None
        self._producer("started", session, id, destination)

    def producer_stopped(self, session: "Session", id: str, destination: Destination) -> None:
        there = self._producers[destination]
        del there[session, id]
        self._producer("stopped", session, id, destination)
        if not there:
            del self._producers[destination]

    def _producer(self, event: str, session: "Session", id: str, destination: Destination) -> None:
        if name := self._name("Producer", destination):
            self._send_content(name, self._producer_content(event, session, id, destination))

    def producers(self, destination: Destination) -> Iterable[bytes]:
        for session, id in list(self._producers.get(destination, ())):
            if (session, id) in self._producers.get(destination, ()):
                yield self._producer_content("started", session, id, destination)

    def _producer_content(self, event: str, session: "Session", id: str, destination: Destination) -> bytes:
        body = {"event": event, "connection": session.name, "producer": id, "destination": str(destination)}
        return self._content({"producerCount": len(self._producers[destination])}, body)

    # Consumers and limits that are in trouble.

    def slow_consumer(self, subscription: "Subscription") -> None:
        source = subscription.source
        if source.policy.advisory_for_slow_consumers and (name := self._name("SlowConsumer", source.destination)):
            self._send(name, {"consumerId": _id(subscription)}, _of(subscription))

    def full(self, destination: Destination, policy: Policy, usage: str, used: int) -> None:
        if policy.advisory_when_full and (name := self._name("FULL", destination)):
            headers: dict[str, object] = {"usageName": usage, "usageCount": used}
            self._send(name, headers, {"destination": str(destination), "usage": usage, "used": used})

    # Messages without a receiver.

    def no_consumer(self, destination: Destination, policy: Policy, messages: list[Message]) -> None:
        if policy.send_advisory_if_no_consumers and (name := self._name("NoConsumer", destination)):
            for message in messages:
                self._send_about(name, destination, message, {}, {})

    def tells_expired(self, destination: Destination, policy: Policy) -> bool:
        return policy.advisory_for_expired and bool(self._name("Expired", destination))

    def expired(self, destination: Destination, policy: Policy, message: Message) -> None:
        if policy.advisory_for_expired and (name := self._name("Expired", destination)):
            self._send_about(name, destination, message, {}, {"expiration": message.expiration})

    def dead_lettered(
        self, destination: Destination, policy: Policy, message: Message, letters: Destination, cause: str
    ) -> None:
        if policy.advisory_for_dead_letters and (name := self._name("MessageDLQd", destination)):
            self._send_about(name, destination, message, {}, {"deadLetterDestination": str(letters), "cause": cause})

    def message_discarded(self, subscription: "Subscription", message: Message, discarded: int) -> None:
        source = subscription.source
        asked_for = source.policy.advisory_for_discarding_messages
        if asked_for and (name := self._name("MessageDiscarded", source.destination)):
            headers = {"discardedCount": discarded, "consumerId": _id(subscription)}
            self._send_about(name, source.destination, message, headers, _of(subscription))

    # How they are sent.

    def _name(self, event: str, destination: Destination) -> str:
        """What stands behind the prefix in the name of a destination's topic; empty if there is no advisory."""
        name = f"{event}.{_KINDS[destination.kind]}.{destination.name}"
        return name if self._is_heard(name) and not is_advisory(destination) else ""

    def _is_heard(self, name: str) -> bool:
        topic = self._destinations.topics.get(PREFIX + name)
        if topic is not None:
            return topic.is_subscribed
        return bool(self._patterns) and any([pattern.matches(PREFIX + name) for pattern in self._patterns])

    def _send_about(
        self, name: str, destination: Destination, message: Message, headers: Mapping[str, object],
        body: Mapping[str, object],
    ) -> None:  # fmt: skip
        about = {"orignalMessageId": message.id, "orignalDestination": str(destination)}  # ActiveMQ's spelling
        facts = {"destination": str(destination), "messageId": message.id, "size": message.size}
        self._send(name, {**about, **headers}, {**facts, **body})

    def _send(self, name: str, headers: Mapping[str, object], body: Mapping[str, object]) -> None:
        self._send_content(name, self._content(headers, body))

    def _content(self, headers: Mapping[str, object], body: Mapping[str, object]) -> bytes:
        core = self._core
        lines = {"type": "Advisory", "content-type": "application/json"}
        lines |= {"originBrokerName": core.settings.broker.name}
        if types := [f"{header}={_TYPES[header]}" for header in headers if header in _TYPES]:
            lines[PROPERTY_TYPES.decode()] = ",".join(types)
        lines |= {header: str(value) for header, value in headers.items()}
        start = b"%b%d\ntimestamp:%d\n" % (core.id_prefix, core.next_message_id(), core.clock.now_ms())
        return start + header_lines(lines) + b"\n" + msgspec.json.encode(body)

    def _send_content(self, name: str, content: bytes) -> None:
        with self._core.limits.own_work():
            topic = self._destinations.topic(PREFIX + name)
        topic.send(content, persistent=False)

    def replay(self, source: TopicSubscription, contents: list[bytes]) -> None:
        messages = [Message(next(self._replayed), content, persistent=False) for content in contents]
        source.offer(messages, {})


def is_advisory(destination: Destination) -> bool:
    return destination.kind is DestinationKind.TOPIC and destination.name.startswith(PREFIX)


def _id(subscription: "Subscription") -> str:
    return f"{subscription.session.name}:{subscription.id}"


def _of(subscription: "Subscription") -> dict[str, object]:
    destination = str(subscription.source.destination)
    return {"connection": subscription.session.name, "subscription": subscription.id, "destination": destination}
