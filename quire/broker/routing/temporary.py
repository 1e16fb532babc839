"""Temporary queues and topics, and client ids: what belongs to a connection and ends with it. Nothing of it is stored.

The connection calls a temporary destination by a name of its own, ``/temp-queue/replies``. Others send to it by the
name that the broker gave it, ``/remote-temp-queue/...``, which they find in the ``reply-to`` header of what the
connection sent. Only the connection itself may consume it. (ActiveMQ's rules and words.)
"""

import itertools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace

from quire.broker.core.core import Commit, Core, Target
from quire.broker.core.subscription import Session
from quire.broker.destinations import LaneRemoval
from quire.broker.queues.queue import GROUPED, Queue
from quire.broker.queues.selective import GROUP_ID
from quire.broker.routing.addresses import Address, Scope
from quire.broker.topics.topic import Topic
from quire.cursors.lane import NEVER_STORED, DispatchMark
from quire.destination import Destination, DestinationKind
from quire.errors import InvalidDestination, InvalidHeader
from quire.message import Message
from quire.store.base import StoredDestination

FIRST_LANE = 1 << 31
"""Lanes of temporary destinations are numbered from here on; those in the store never get so far."""


class TemporaryQueue(Queue):
    """A queue of one connection. No message in it is persistent, whatever its sender says.

    What cannot be delivered is dropped: a dead letter would be in the store. So is what comes when it is gone.
    """

    def __init__(self, core: Core, stored: StoredDestination, temporaries: "Temporaries") -> None:
        super().__init__(core, stored, new=True)
        self.policy = replace(self.policy, dead_letter_strategy="discarding")
        self._temporaries = temporaries
        for lane in self.lanes:
            lane.mark = DispatchMark(NEVER_STORED)

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        if self._temporaries.is_there(self):
            super().send(content, expiration, priority, False)
        else:
            self._temporaries.dropped += 1

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Message:
        if self._temporaries.is_there(self):
            return super().transfer(content, expiration, priority, False)
        self._temporaries.dropped += 1
        return Message(0, content, expiration, priority, False)

    def expect_groups(self) -> None:
        if not self.grouped:
            self.stored = self.stored._replace(settings={GROUPED: True})
            self.group_header = GROUP_ID
            self.consumers_changed()

    def fill(self, commit: Commit) -> None:
        super().fill(commit)
        for lane in self.lanes:
            commit.batch.lanes.pop(lane.id, None)


class TemporaryTopic(Topic):
    """A topic of one connection. It stores and keeps nothing, whatever the policy says."""

    def __init__(self, core: Core, stored: StoredDestination, temporaries: "Temporaries") -> None:
        super().__init__(core, stored, new=True)
        self.policy = replace(self.policy, dead_letter_strategy="discarding", subscription_recovery_policy="none")
        self._temporaries = temporaries

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        if self._temporaries.is_there(self):
            super().send(content, expiration, priority, False)
        else:
            self._temporaries.dropped += 1

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Message:
        if self._temporaries.is_there(self):
            return super().transfer(content, expiration, priority, False)
        self._temporaries.dropped += 1
        return Message(0, content, expiration, priority, False)


class GoneDestination:
    """What takes messages for a temporary destination that is not there any more: it drops them, and counts them.

    A service that answers a client which has gone away should not suffer for it: an error would end its connection.
    """

    def __init__(self, temporaries: "Temporaries") -> None:
        self._temporaries = temporaries

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        self._temporaries.dropped += 1

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        self._temporaries.dropped += 1

    def expect_groups(self) -> None:
        """Nothing to do."""


class Temporaries:
    """All temporary destinations, by the names that the broker gave them.

    Attributes:
        dropped: how many messages came for temporary destinations that were gone.
        is_own: whether a name is one that this process may make up; all are, if it is not one of a cluster.
    """

    def __init__(self, core: Core) -> None:
        self.queues: dict[str, TemporaryQueue] = {}
        self.topics: dict[str, TemporaryTopic] = {}
        self._by_lane: dict[int, TemporaryQueue] = {}
        self.dropped = 0
        self._core = core
        self._run = secrets.token_hex(8)
        self.is_own: Callable[[Destination], bool] = lambda destination: True
        self._numbers = itertools.count(1)
        core.limits.count_destinations(lambda: len(self.queues) + len(self.topics))

    def create(self, kind: DestinationKind, name: str = "") -> Address:
        """Make a temporary destination; without a name, which a client of OpenWire chose, the broker makes one up."""
        self._core.limits.check_destinations()
        number = next(self._numbers)
        while not name:
            made_up = f"{self._run}-{number}"
            if self.is_own(Destination(kind, made_up)):
                name = made_up
            else:
                number = next(self._numbers)
        stored = StoredDestination(FIRST_LANE + number, kind, name, {}, (FIRST_LANE + number,))
        self._core.advisories.destination_created(Destination(kind, name), temporary=True)
        if kind is DestinationKind.QUEUE:
            self.queues[name] = self._by_lane[FIRST_LANE + number] = TemporaryQueue(self._core, stored, self)
        else:
            self.topics[name] = TemporaryTopic(self._core, stored, self)
        return Address(kind, name, Scope.REMOTE)

    def queue_of(self, lane: int) -> TemporaryQueue | None:
        return self._by_lane.get(lane)

    def find(self, address: Address) -> TemporaryQueue | TemporaryTopic:
        named: Mapping[str, TemporaryQueue | TemporaryTopic] = self.topics
        if address.kind is DestinationKind.QUEUE:
            named = self.queues
        if (found := named.get(address.name)) is None:
            text = f"the temporary destination {str(address)[:100]!r} does not exist"
            raise InvalidDestination(text, destination=str(address)[:100])
        return found

    def all(self, kind: DestinationKind) -> list[Destination]:
        return [Destination(kind, name) for name in (self.queues if kind is DestinationKind.QUEUE else self.topics)]

    def has(self, source: object) -> bool:
        return isinstance(source, TemporaryQueue | TemporaryTopic)

    def is_there(self, destination: TemporaryQueue | TemporaryTopic) -> bool:
        name = destination.destination.name
        return name in self.queues or name in self.topics

    def target(self, address: Address) -> "Target":
        if address.scope is not Scope.REMOTE:
            raise InvalidDestination(
                f"{str(address)[:100]!r} is valid in its own connection only", destination=str(address)[:100]
            )
        found = self.queues if address.kind is DestinationKind.QUEUE else self.topics
        return found.get(address.name) or GoneDestination(self)

    def delete(self, address: Address) -> None:
        self._core.advisories.destination_deleted(Destination(address.kind, address.name), temporary=True)
        if address.kind is DestinationKind.TOPIC:
            topic = self.topics.pop(address.name)
            topic.is_deleted = True
            self._core.forget(topic)
            return
        core, queue = self._core, self.queues[address.name]
        for subscription in list(queue.subscriptions):
            subscription.leave_now()
        del self.queues[address.name], self._by_lane[queue.lanes[0].id]
        queue.is_deleted = True
        core.dispatch.forget(queue)
        core.charge_stored(-queue.bytes)
        queue.memory.release(queue.memory.used)
        core.forget(queue)
        if not core.spool.is_empty(queue.lanes[0].id):
            LaneRemoval(core, [queue.lanes[0].id], f"the removal of {address}", lambda: None)


REPLY_TO = "reply-to"
"""The header that says where an answer goes."""


MAX_CLIENT_ID = 200
"""The longest client id, in characters: it is part of keys in every store."""


class ClientIds:
    """Who is connected under which client id.

    A durable subscription belongs to a client id, so two connections may not have the same one. As in ActiveMQ the
    second one is refused; the first one stays.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._by_key: dict[str, Session] = {}

    def other(self, client_id: str, session: Session) -> Session | None:
        holder = self._sessions.get(client_id)
        return None if holder is session else holder

    def claim(self, client_id: str, session: Session) -> None:
        check_client_id(client_id)
        other = self._sessions.setdefault(client_id, session)
        if other is not session:
            data = {"connection": other.name} if other.user == session.user else {}  # of others, no address
            place = f", from {other.name}" if data else ""
            text = (
                f"client-id {client_id[:60]!r} is already connected{place}: end that connection first, or use another"
            )
            raise InvalidHeader(f"{text} client-id", header="client-id", **data)

    def holder_of_key(self, key: str) -> Session | None:
        """The session that has a key of which there is one session: the client connects with it again."""
        return self._by_key.get(key)

    def take_key(self, key: str, session: Session) -> None:
        self._by_key[key] = session

    def drop_key(self, key: str, session: Session) -> None:
        """A session ends; if another one has its key by now, nothing changes."""
        if self._by_key.get(key) is session:
            del self._by_key[key]

    def release(self, client_id: str, session: Session) -> None:
        if self._sessions.get(client_id) is session:
            del self._sessions[client_id]


def check_client_id(client_id: str) -> None:
    if not 0 < len(client_id) <= MAX_CLIENT_ID:
        raise InvalidHeader(f"client-id needs 1 to {MAX_CLIENT_ID} characters", header="client-id")
