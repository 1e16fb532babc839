"""The session of a client of a cluster passes the conformance suite of sessions, wherever things are.

All destinations of the suite are at one shard, whatever their names. What is spread is at every shard.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from quire.broker.core.subscription import Subscription
from quire.cluster import cluster_map
from quire.cluster.remote_session import RemotePart
from quire.cluster.spread_consumer import SpreadPart
from quire.message import Message
from quire.server.cluster.verb_door import VerbDoor, VirtualClient
from quire.sessions.base import Consumer, Session, SubscribeSpec, Token
from quire.testing.stepped_cluster import SteppedCluster, SteppedShard
from tests.conformance.sessions.consuming import Consuming
from tests.conformance.sessions.rig import Client, World, guard
from tests.conformance.sessions.rules import Rules
from tests.conformance.sessions.settling import Settlements
from tests.conformance.sessions.transacting import Transacting
from tests.unit.broker.harness import settings
from tests.unit.server.rights import secure

OWNER = 0


VERBS = frozenset({
    "accept", "begin", "call", "credit", "drained", "end", "leave", "open", "settle", "temporary",
    "took_input", "unsubscribe",
})  # fmt: skip


class Prompt:
    """A session whose verbs have come to their shard, and what that says has come back, when they return.

    The suite looks at once at what a local session raises, and a client is told later of another shard.
    """

    def __init__(self, session: Session, client: Client, arrive: Callable[[], None]) -> None:
        object.__setattr__(self, "_session", session)
        object.__setattr__(self, "_client", client)
        object.__setattr__(self, "_arrive", arrive)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        return partial(self._verb, found) if name in VERBS else found

    def subscribe(self, spec: SubscribeSpec, token: Token = None) -> Consumer:
        """What is refused is raised, as it is by a local session."""
        return cast(Consumer, self._raising(self._session.subscribe, spec, token))

    def pull(self, consumer: Consumer, count: int, wait_ms: int) -> None:
        """As ``subscribe``."""
        self._raising(self._session.pull, consumer, count, wait_ms)

    def _raising(self, verb: Callable[..., Any], *arguments: Any) -> Any:
        client, before = self._client, len(self._client.errors)
        done = self._verb(verb, *arguments)
        if len(client.errors) > before:
            client.errors.pop()
            raise client.failures.pop()
        return done

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._session, name, value)

    def _verb(self, verb: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        done = verb(*arguments, **named)
        if done is not False:  # else it is handed in again when the door goes on, which it does not know yet
            self._arrive()
        return done


class ClusterWorld(World):
    """A cluster, whose shard 0 has all destinations.

    Args:
        entry: the shard whose process clients connect to; None for a front.
    """

    secrets: dict[str, str]

    newest: "ClusterWorld"
    made_up_at = OWNER

    def __init__(self, shards: int, entry: int | None, piece: int = 1 << 20, **changes: Any) -> None:
        ClusterWorld.newest, ClusterWorld.made_up_at = self, entry or OWNER
        self.cluster = SteppedCluster(shards, settings(**changes), fronts=int(entry is None), piece=piece)
        self.broker = self.cluster.members[OWNER]
        self.entry = self.cluster.fronts[0] if entry is None else self.cluster.members[entry]

    @property
    def _members(self) -> list[SteppedShard]:
        return [*self.cluster.members.values(), *self.cluster.fronts]

    def session(self, client: Client, user: str) -> Session:
        entry = self.entry
        entry.sessions[client] = client  # type: ignore[assignment]
        session = entry.session_of(guard(entry, self.secrets[user] if user else ""), client)
        return cast(Session, Prompt(session, client, self.arrive))

    def run(self) -> None:
        """Links, turns and commits."""
        self.cluster.run()

    def arrive(self) -> None:
        """What was said comes to the other side, and its answers come back; no commit ends."""
        while any([port.pump(1 << 20) for port in list(self.cluster._ports)]) | any(
            [member.step(commits=False) for member in self._members]
        ):
            pass

    def run_turns(self) -> None:
        """Links, turns, and the commits of others."""
        while any([port.pump(1 << 20) for port in list(self.cluster._ports)]) | any(
            [member.step(commits=member is not self.broker) for member in self._members]
        ):
            pass

    def advance(self, seconds: float) -> None:
        self.cluster.advance(seconds)
        self.cluster.run()

    def depth(self, name: str = "q") -> int:
        queues = [member.broker.queues.get(name) for member in self.cluster.members.values()]
        return sum([queue.depth for queue in queues if queue is not None])

    def secure(self) -> None:
        for member in self._members:
            self.secrets = secure(member)
        self.secrets = secure(self.entry)


_HELD = "what is held at its owner is not held at its entry, as long as the window has room"
_CORE = "it looks into the core"
_OWN = "the entry's own shard answers at once"
_RULES = "it changes the rules of the owner alone"
DIFFERENT = {
    "test_a_send_that_has_to_wait_is_taken_when_consumers_have_made_room": _HELD,
    "test_settling_credit_and_pulls_pass_a_send_that_waits": _HELD,
    "test_what_is_sent_later_is_held_as_what_is_stored": _HELD,
    "test_the_end_of_a_large_transaction_waits_until_all_of_it_is_found": _HELD,
    "test_the_deletion_of_a_destination_is_handed_in_until_it_is_done": _HELD,
    "test_what_is_not_writable_is_given_nothing_until_it_is": "the window is given, so that nothing waits at the owner",
    "test_a_message_is_sent_later": "routes to other shards are plain: their owners look at them",
    "test_a_route_says_what_becomes_of_messages": "routes to other shards are plain: their owners look at them",
    "test_a_door_says_whether_it_gave_messages_to_a_target_itself": "the door at the owner says so",
    "test_the_policy_says_the_prefetch_that_a_consumer_does_not_ask_for": _CORE,
    "test_what_belongs_to_a_session_goes_with_it": "its temporary destinations are at the entry",
    "test_what_is_of_a_part_that_is_gone_is_fenced": "of a consumer that has gone nothing is said",
    "test_a_consumer_whose_name_is_taken_leaves_nothing": "parts of other shards go without a word with the session",
    "test_a_list_is_confirmed_when_it_is_subscribed_to_everything": "here the verb returns when all is done",
    "test_a_pattern_that_cannot_have_all_while_it_is_awaited_is_no_consumer": "here the verb returns when all is done",
    "test_tokens_come_in_the_order_in_which_they_were_given": _OWN,
    "test_the_sender_of_a_failed_commit_is_ended_and_hears_of_none_of_it": _OWN,
    "test_who_leaves_while_the_store_fails_has_its_token_when_it_does_not": _OWN,
    "test_who_leaves_in_a_commit_that_fails_has_its_token_later": _OWN,
    "test_one_connection_has_a_client_id": "a second passes until it is sure that the other one is there",
    "test_a_connection_that_is_over_loses_its_client_id_in_the_end": "its entry tells of its end",
    "test_leaving_twice_is_leaving_once": "a second passes until it is sure that the other one is there",
    "test_a_transaction_that_may_not_be_sent_any_more_does_not_commit": _RULES,
    "test_a_session_ends_when_its_login_does": _RULES,
}
"""What is different for who is not connected to the owner, on purpose or by the nature of the test."""

DIFFERENT_AT_A_FRONT = {
    "test_advisories_tell_of_a_connection_unless_it_is_not_announced": "a front has no advisories",
    "test_a_consumer_of_advisories_is_told_first_what_is_there": "a front has no advisories",
    "test_nobody_takes_over_the_session_of_another_user": "its home shard says so later, and the session ends",
    "test_how_many_temporary_destinations_there_may_be": "their shard says so later",
}
"""What is different for who is connected to a front besides."""

DIFFERENT_AT_ALL = {
    "test_the_policy_says_the_prefetch_that_a_consumer_does_not_ask_for": _CORE,
    "test_a_branch_goes_on_after_its_end_and_is_one_sessions": "each connection is another broker to its client",
}
"""The same of every session of a cluster."""


DIFFERENT_AT_THE_OWNER = {
    "test_a_list_is_confirmed_when_it_is_subscribed_to_everything": "here the verb returns when all is done",
    "test_a_pattern_that_cannot_have_all_while_it_is_awaited_is_no_consumer": "here the verb returns when all is done",
    "test_the_sender_of_a_failed_commit_is_ended_and_hears_of_none_of_it": "here the verb returns when all is done",
    "test_the_branch_of_another_user_is_not_there": "a branch begins at a shard with the first work for it",
}
"""What is different for who is connected to the owner."""


@pytest.fixture(autouse=True)
def _what_differs(request: pytest.FixtureRequest) -> None:
    different = {**DIFFERENT_AT_ALL}
    different |= DIFFERENT_AT_THE_OWNER if isinstance(request.instance, AtTheOwner) else DIFFERENT
    if isinstance(request.instance, AtAFront):
        different |= DIFFERENT_AT_A_FRONT
    if reason := different.get(request.function.__name__):
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def _one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is not spread is at one shard. What the suite asks the core, parts ask that of their owner."""
    monkeypatch.setattr(cluster_map, "shard_of_key", _shard_of_key)
    monkeypatch.setattr(RemotePart, "in_flight", property(_in_flight, lambda part, _: None))
    monkeypatch.setattr(RemotePart, "__getattr__", lambda part, name: getattr(_at_owner(part), name), raising=False)
    monkeypatch.setattr(SpreadPart, "__getattr__", lambda part, name: getattr(part.inner, name), raising=False)


def _shard_of_key(key: str, shards: int) -> int:
    """The shard of a key: temporary destinations are where their names are made up."""
    return ClusterWorld.made_up_at if re.search(r"[0-9a-f]{16}-\d+$", key) else OWNER


def _at_owner(part: RemotePart) -> Subscription:
    for client, door in ClusterWorld.newest.broker.sessions.items():
        if isinstance(client, VirtualClient) and client._connection.id == part.session.connection.id:
            assert isinstance(door, VerbDoor)
            return door.session.parts[part.at_owner]
    raise AttributeError(f"part {part.at_owner} is gone")


def _in_flight(part: RemotePart) -> dict[int, Message]:
    try:
        return _at_owner(part).in_flight
    except (AttributeError, KeyError):
        return {}


class AtTheOwner:
    """The client is connected to the process that has everything."""

    def world(self, **changes: Any) -> World:
        return ClusterWorld(2, 0, **changes)


class AtAnotherShard:
    """The client is connected to another process, which has its own part of what is spread."""

    def world(self, **changes: Any) -> World:
        return ClusterWorld(3, 1, **changes)


class AtAFront:
    """The client is connected to a process without a shard; links are cut anywhere."""

    def world(self, **changes: Any) -> World:
        return ClusterWorld(1, None, piece=31, **changes)


class TestRulesAtTheOwner(AtTheOwner, Rules):
    pass


class TestRulesAtAnotherShard(AtAnotherShard, Rules):
    pass


class TestRulesAtAFront(AtAFront, Rules):
    pass


class TestSettlementsAtTheOwner(AtTheOwner, Settlements):
    pass


class TestSettlementsAtAnotherShard(AtAnotherShard, Settlements):
    pass


class TestSettlementsAtAFront(AtAFront, Settlements):
    pass


class TestConsumingAtTheOwner(AtTheOwner, Consuming):
    pass


class TestConsumingAtAnotherShard(AtAnotherShard, Consuming):
    pass


class TestConsumingAtAFront(AtAFront, Consuming):
    pass


class TestTransactingAtTheOwner(AtTheOwner, Transacting):
    pass


class TestTransactingAtAnotherShard(AtAnotherShard, Transacting):
    pass


class TestTransactingAtAFront(AtAFront, Transacting):
    pass
