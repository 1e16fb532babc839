"""What a user has scheduled is sent while the user may send it; without end it comes once a second at the most."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from quire.broker.schedule import SENDER
from quire.errors import StoreFull
from quire.protocols.openwire.primitives import Tag, Typed, write_map
from quire.security import Origin, Principal, Proof
from quire.settings.users import read_rules
from tests.unit.broker.harness import settings
from tests.unit.http.conftest import Api
from tests.unit.server.openwire.rig import OpenWireClient, Rig
from tests.unit.server.rights import secure

EVERY_SECOND = {"AMQ_SCHEDULED_PERIOD": "1000", "AMQ_SCHEDULED_REPEAT": "-1"}


class World:
    """A broker with users, and the ways to it."""

    def __init__(self, **sections: Any) -> None:
        self.rig = Rig(settings(**sections))
        self.secrets = secure(self.rig)
        self.rig.queue("q")
        self.api = Api(self.rig)
        self.api.service.security = self.rig.security

    def login(self, user: str) -> dict[str, str]:
        return {"login": user, "passcode": self.secrets[user]}

    def by_stomp(self, user: str, headers: dict[str, str]) -> None:
        client = self.rig.connect(headers=self.login(user))
        self.rig.run()
        client.send("q", b"m", headers)
        self.rig.run()
        assert client.errors() == []

    def in_a_transaction(self, user: str, headers: dict[str, str]) -> None:
        client = self.rig.connect(headers=self.login(user))
        self.rig.run()
        client.frame("BEGIN", {"transaction": "x"})
        client.send("q", b"m", {**headers, "transaction": "x"})
        self.rig.queue("another")  # destinations are found anew
        client.frame("COMMIT", {"transaction": "x"})
        self.rig.run()
        assert client.errors() == []

    def by_http(self, user: str, headers: dict[str, str]) -> None:
        self._call(user, "/queues/q/messages", json={"body": "m", "headers": headers})

    def in_bulk(self, user: str, headers: dict[str, str]) -> None:
        rows = {"destination": "q", "value": [b"m"], "headers": [headers]}
        self._call(user, "/write", content=msgspec.msgpack.encode(rows))

    def _call(self, user: str, path: str, **sent: Any) -> None:
        headers = {"authorization": f"Bearer {self.secrets[user]}"}
        assert self.api.call("POST", path, headers=headers, **sent).status_code in (200, 201)

    def openwire(self, user: str) -> OpenWireClient:
        client = self.rig.negotiated()
        client.done(client.connection_info(user_name=user, password=self.secrets[user]))
        return client

    def by_openwire(self, user: str, headers: dict[str, str]) -> None:
        client = self.openwire(user)
        typed = {
            name: Typed(Tag.INT, int(value)) if value.lstrip("-").isdecimal() else value
            for name, value in headers.items()
        }
        client.done(client.message("m", marshalled_properties=write_map(typed)))

    def passes(self, seconds: int) -> int:
        """Let time go by; how many messages are in the queue then."""
        for _ in range(seconds):
            self.rig.advance(1)
            self.rig.run()
        return self.rig.queue("q").depth

    def change(self, *, users: bool = True, rules: bool = True) -> None:
        """Take all users away, or all rules."""
        accounts = self.rig.security.accounts
        held = accounts.settings
        kept = tuple(user for user in held.users if users or user.name != "write")
        accounts.take(replace(held, users=kept, rules=held.rules if rules else ()), accounts.state)
        self.rig.run()

    def letters(self) -> int:
        queue = self.rig.broker.queues.get("ActiveMQ.DLQ")
        return 0 if queue is None else queue.depth


DOORS = [World.by_stomp, World.in_a_transaction, World.by_http, World.in_bulk, World.by_openwire]


@pytest.mark.parametrize("lost", [{"users": False}, {"rules": False}])
@pytest.mark.parametrize("door", DOORS)
def test_it_ends_with_its_user_and_with_the_right_to_write(
    door: Callable[[World, str, dict[str, str]], None], lost: dict[str, bool]
) -> None:
    world = World()
    door(world, "write", EVERY_SECOND)
    assert world.passes(3) == 3
    world.change(**lost)
    assert world.passes(3) == 3
    assert (world.letters(), world.rig.broker.schedule.depth) == (1, 0)
    (letter,) = world.rig.store.page(world.rig.queue("ActiveMQ.DLQ").lanes[0].id, 0, 1_000_000, 10).messages
    assert SENDER not in letter.headers()


@pytest.mark.parametrize("door", DOORS)
def test_no_client_says_who_has_scheduled_a_message(door: Callable[[World, str, dict[str, str]], None]) -> None:
    world = World()
    door(world, "write", {**EVERY_SECOND, SENDER: '["administrator",null]'})
    (scheduled,) = world.rig.broker.schedule.browse().messages
    assert scheduled.sender == '["write",null]'
    world.change(users=False)
    assert world.passes(2) == 0


def test_the_rights_are_those_after_a_restart_too() -> None:
    world = World()
    world.by_stomp("write", {"AMQ_SCHEDULED_DELAY": "5000"})
    world.by_stomp("allowed", {"AMQ_SCHEDULED_DELAY": "5000"})
    world.rig = world.rig.reopen()
    secure(world.rig)
    world.change(users=False)
    assert world.passes(6) == 1
    assert world.letters() == 1


def test_a_user_of_an_issuer_of_access_tokens_keeps_the_roles_it_had() -> None:
    world = World(jwt={"issuer": "https://login"})
    accounts = world.rig.security.accounts
    rules = read_rules([{"subject": "role:sales", "allow": ["write"], "destination": "q"}], "test")
    accounts.take(replace(accounts.settings, rules=rules), accounts.state)
    someone = accounts.remembered(Principal("someone", frozenset({"sales"}), Proof.JWT))
    assert world.rig.security.recalled(someone, Origin("test", "")).principal.roles == {"sales"}
    world.rig.gate.check_scheduled(someone, "/queue/q")
    nobody = accounts.remembered(Principal("write", frozenset({"sales"}), Proof.PASSWORD))
    assert world.rig.security.recalled(nobody, Origin("test", "")).principal.roles == {"write"}


def test_what_was_scheduled_without_users_is_sent() -> None:
    rig = Rig()
    rig.connect().send("q", b"m", {"AMQ_SCHEDULED_DELAY": "1000"})
    rig.run()
    secure(rig)
    rig.advance(2)
    rig.run()
    assert rig.queue("q").depth == 1


@pytest.mark.parametrize(
    ("headers", "is_taken"),
    [
        ({"PERIOD": "1", "REPEAT": "-1"}, False), ({"PERIOD": "999", "REPEAT": "2147483647"}, False),
        ({"PERIOD": "1", "REPEAT": "60", "CRON": "* * * * *"}, False), ({"PERIOD": "1000", "REPEAT": "-1"}, True),
        ({"PERIOD": "1", "REPEAT": "9"}, True), ({"PERIOD": "1", "REPEAT": "9", "CRON": "* * * * *"}, True),
    ],
)  # fmt: skip
def test_what_has_no_end_has_a_least_period(headers: dict[str, str], is_taken: bool) -> None:
    rig = Rig()
    client = rig.connect()
    client.send("q", b"m", {f"AMQ_SCHEDULED_{name}": value for name, value in headers.items()})
    rig.run()
    assert client.errors() == ([] if is_taken else ["invalid-header"])
    assert rig.broker.schedule.depth == int(is_taken)


# How many.


@pytest.mark.parametrize("door", [World.by_stomp, World.by_http, World.in_bulk, World.by_openwire])
def test_a_user_has_so_many_messages_without_end(door: Callable[[World, str, dict[str, str]], None]) -> None:
    world = World(limits={"schedules_per_user": 2})
    for headers in (EVERY_SECOND, {"AMQ_SCHEDULED_CRON": "* * * * *"}, {"AMQ_SCHEDULED_DELAY": "60000"}):
        door(world, "write", headers)
    with pytest.raises(AssertionError):
        door(world, "write", EVERY_SECOND)
    door(world, "allowed", EVERY_SECOND)
    assert world.rig.broker.schedule.depth == 4
    world.passes(3)
    world.rig.broker.schedule.cancel(world.rig.broker.schedule.browse().messages[0].id)
    world.rig.run()
    door(world, "write", EVERY_SECOND)


def test_frames_that_are_alike_count_too() -> None:
    world = World(limits={"schedules_per_user": 2})
    client = world.rig.connect(headers=world.login("write"))
    world.rig.run()
    for _ in range(3):
        client.send("q", b"m", EVERY_SECOND)
    world.rig.run()
    assert (client.errors(), world.rig.broker.schedule.depth) == (["limit-exceeded"], 2)


def test_one_that_a_transaction_brought_beyond_that_ends_when_it_is_due() -> None:
    world = World(limits={"schedules_per_user": 2})
    client = world.rig.connect(headers=world.login("write"))
    world.rig.run()
    client.frame("BEGIN", {"transaction": "x"})
    for _ in range(5):
        client.send("q", b"m", {**EVERY_SECOND, "transaction": "x"})
    client.frame("COMMIT", {"transaction": "x"})
    world.rig.run()
    world.passes(3)
    assert (world.rig.broker.schedule.depth, world.letters(), world.rig.queue("q").depth) == (2, 3, 6)


def test_what_the_store_refuses_does_not_count() -> None:
    world = World(limits={"schedules_per_user": 1})
    client = world.rig.connect(headers=world.login("write"))
    world.rig.run()
    client.send("q", b"m", EVERY_SECOND)
    world.rig.turn()
    world.rig.commit(StoreFull("full"))
    world.rig.advance(2)
    world.rig.run()
    world.by_stomp("write", EVERY_SECOND)
    world.rig.advance(1)
    world.rig.run_turns()
    world.rig.commit(StoreFull("full"))  # what was sent again and again is tried again
    world.rig.advance(2)
    world.rig.run()
    with pytest.raises(AssertionError):
        world.by_stomp("write", EVERY_SECOND)
    assert world.rig.broker.schedule.depth == 1


def test_one_of_before_a_restart_counts_once_it_is_sent() -> None:
    world = World(limits={"schedules_per_user": 1})
    world.by_stomp("write", EVERY_SECOND)
    world.rig = world.rig.reopen()
    world.secrets = secure(world.rig)
    world.passes(2)
    with pytest.raises(AssertionError):
        world.by_stomp("write", EVERY_SECOND)
    world.rig.broker.schedule.cancel(world.rig.broker.schedule.browse().messages[0].id)
    world.rig.run()
    world.by_stomp("write", EVERY_SECOND)
