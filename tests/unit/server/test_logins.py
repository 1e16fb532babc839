"""Clients that log in, and what becomes of them when users, rules and tokens change."""

from dataclasses import replace
from typing import Any

import pytest

from quire.protocols.stomp import heads
from quire.security import Access, Credentials, Origin
from quire.security.accounts import SavedState
from quire.server.listener import Accepted, Admission
from quire.settings import LimitSettings
from quire.settings.users import read_rules
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import settings
from tests.unit.server.rights import end_proofs, secure


def secured(**sections: Any) -> tuple[SteppedBroker, dict[str, str]]:
    stepped = SteppedBroker(settings(**sections))
    return stepped, secure(stepped)


def login(stepped: SteppedBroker, secrets: dict[str, str], name: str, **headers: str) -> SteppedClient:
    client = stepped.connect("1.2", {"login": name, "passcode": secrets[name], **headers})
    stepped.run()
    return client


def rules(stepped: SteppedBroker, *written: dict[str, Any]) -> None:
    """Other rules hold from now on."""
    accounts = stepped.security.accounts
    accounts.take(replace(accounts.settings, rules=read_rules(list(written), "test")), accounts.state)
    stepped.run()


class Slow:
    """Logins whose outcome the test gives."""

    def __init__(self, stepped: SteppedBroker) -> None:
        self.waiting: list[Any] = []
        self._security = stepped.security
        stepped.gate.log_in = self.log_in  # type: ignore[method-assign]

    def log_in(self, credentials: Credentials, origin: Origin, done: Any) -> None:
        self.waiting.append(lambda: self._security.authenticate(credentials, origin, done))

    def finish(self) -> None:
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


def test_what_comes_behind_connect_waits_for_the_login() -> None:
    stepped, secrets = secured()
    slow = Slow(stepped)
    client = login(stepped, secrets, "allowed")
    client.send("q", b"one", {"receipt": "r"})
    stepped.run()
    assert (client.take("CONNECTED"), client.receipts(), "q" in stepped.broker.queues) == ([], [], False)
    slow.finish()
    stepped.run()
    assert (len(client.take("CONNECTED")), client.receipts(), stepped.queue("q").depth) == (1, ["r"], 1)


def test_a_login_has_its_time() -> None:
    stepped, secrets = secured(stomp={"connect_timeout": 3.0})
    slow = Slow(stepped)
    client = login(stepped, secrets, "allowed")
    stepped.advance(4)
    assert client.errors() == ["connection-timeout"]
    slow.finish()  # too late: no one is there
    stepped.run()
    assert client.take("CONNECTED") == []


def test_little_may_come_before_the_login_is_known() -> None:
    stepped, secrets = secured()
    Slow(stepped)
    client = login(stepped, secrets, "allowed")
    client.connection.paused.clear()
    client.session.receive(b"SEND\ndestination:/queue/q\n\n" + b"x" * 20_000)
    assert client.errors() == ["limit-exceeded"]


def test_a_connect_frame_without_an_end_is_refused() -> None:
    stepped, _ = secured()
    client = SteppedClient(stepped, "raw")
    for _ in range(20):
        client.feed(b"CONNECT\n" if _ == 0 else b"header:" + b"x" * 1000 + b"\n")
    assert client.errors() == ["limit-exceeded"]


def test_only_connect_may_come_before_the_login() -> None:
    stepped, _ = secured()
    firsts = {
        b"SEND\ndestination:/queue/q\n\n\0": "protocol-violation",
        b"SUBSCRIBE\nid:1\ndestination:/queue/q\n\n\0": "protocol-violation",
        b"ACK\nid:1\n\n\0": "protocol-violation",
    }
    for first, code in firsts.items():
        client = SteppedClient(stepped, "raw")
        client.feed(first)
        assert client.errors() == [code]
    assert not stepped.broker.queues


def test_a_consumer_of_a_wildcard_gets_what_it_may_read() -> None:
    stepped, secrets = secured()
    rules(stepped, {"subject": "user:read", "allow": ["read"], "destination": "a.one"})
    root, reader = login(stepped, secrets, "administrator"), login(stepped, secrets, "read")
    root.send("a.one", b"1")
    root.send("a.two", b"2")
    stepped.run()
    reader.subscribe("a.>", ack="auto")
    stepped.run()
    assert reader.messages() == [b"1"]
    rules(stepped, {"subject": "user:read", "allow": ["read"], "destination": "a.*"})
    assert reader.messages() == [b"2"], "what it may read from now on comes at once"
    root.send("a.three", b"3")
    root.send("b", b"4")
    stepped.run()
    assert (reader.messages(), reader.errors()) == ([b"3"], [])


def test_destinations_that_come_later_are_filtered() -> None:
    stepped, secrets = secured()
    rules(
        stepped,
        {"subject": "user:read", "allow": ["read"], "destination": "a.>"},
        {"subject": "user:read", "deny": ["read"], "destination": "a.secret"},
    )
    root, reader = login(stepped, secrets, "administrator"), login(stepped, secrets, "read")
    reader.subscribe("a.>", ack="auto")
    root.send("a.secret", b"hidden")
    root.send("a.open", b"shown")
    stepped.run()
    assert reader.messages() == [b"shown"]


def test_a_rule_that_goes_ends_the_consumer_at_once() -> None:
    stepped, secrets = secured()
    root, reader = login(stepped, secrets, "administrator"), login(stepped, secrets, "read")
    root.send("q", b"1")
    stepped.run()
    reader.subscribe("q", ack="auto", id="2")
    stepped.run()
    assert reader.messages() == [b"1"]
    rules(stepped)
    assert (reader.errors(), reader.connection.closed) == (["access-refused"], True)
    assert stepped.queue("q").consumer_count == 0


def test_a_rule_that_goes_ends_the_sends() -> None:
    stepped, secrets = secured()
    sender = login(stepped, secrets, "allowed")
    for _ in range(3):
        sender.send("q", b"1")
    stepped.run()
    rules(stepped)
    assert sender.errors() == [], "it has no consumer: it may stay"
    sender.send("q", b"2")
    stepped.run()
    assert (sender.errors(), stepped.queue("q").depth) == (["access-refused"], 3)


def test_proofs_that_end_close_their_connections() -> None:
    stepped, secrets = secured()
    expired, revoked, stays = [login(stepped, secrets, name) for name in ("expired", "revoked", "allowed")]
    end_proofs(stepped)
    stepped.run()
    assert (expired.errors(), revoked.errors(), stays.errors()) == (["not-authenticated"], ["not-authenticated"], [])
    assert (expired.connection.closed, revoked.connection.closed, stays.connection.closed) == (True, True, False)


def test_clients_from_before_there_were_users_are_closed() -> None:
    stepped = SteppedBroker()
    client = stepped.connect()
    stepped.run()
    assert len(client.take("CONNECTED")) == 1
    secure(stepped)
    stepped.run()
    assert client.errors() == ["not-authenticated"]


def test_many_connections_are_looked_at_in_steps() -> None:
    stepped, secrets = secured()
    clients = [login(stepped, secrets, "allowed") for _ in range(20)]
    stepped.security.accounts.take(stepped.security.accounts.settings, SavedState())
    ticks = iter(range(10**6))
    stepped.broker.core.steps._clock = stepped.broker.core.clock  # as it is
    stepped.clock.monotonic = lambda: next(ticks) * 0.004  # type: ignore[method-assign]
    stepped.turn()
    closed = sum([client.connection.closed for client in clients])
    assert 0 < closed < 20
    stepped.run()
    assert all([client.connection.closed for client in clients])


def test_a_durable_subscription_remembers_its_user() -> None:
    stepped, secrets = secured()
    first = login(stepped, secrets, "read", **{"client-id": "c"})
    stepped.broker.topic("q")
    durable = {"id": "1", "destination": "/topic/q", "activemq.subscriptionName": "s"}
    first.frame("SUBSCRIBE", durable)
    stepped.run()
    first.vanish()
    stepped.run()
    again = stepped.reopen(stepped.settings)
    secrets = secure(again)
    rules(again, {"subject": "*", "allow": ["read"], "destination": "q"})
    thief = login(again, secrets, "none", **{"client-id": "c"})
    thief.frame("SUBSCRIBE", durable)
    again.run()
    assert thief.errors() == ["unknown-subscription"]
    owner = login(again, secrets, "read", **{"client-id": "c"})
    owner.frame("SUBSCRIBE", durable)
    again.run()
    assert owner.errors() == []


def test_a_head_that_is_like_an_allowed_one_is_not_allowed_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "_MAX_KEPT", 1)  # from here on, heads of other destinations are not read in full
    stepped, secrets = secured()
    mine = [f"mine.{number}" for number in range(4)]
    rules(
        stepped,
        {"subject": "user:none", "allow": ["write", "create"], "destination": "mine.*"},
        {"subject": "user:other", "allow": ["write", "create"], "destination": ">"},
    )
    sender = login(stepped, secrets, "none")
    for name in mine * 3:
        sender.send(name, b"x")
    stepped.run()
    assert sender.errors() == []
    other = login(stepped, secrets, "other")
    for name in ("secret", "secret", mine[0]):
        other.send(name, b"there")  # so the broker knows where messages to these go
        stepped.run()
    for name in (*mine, "secret"):
        sender.send(name, b"x")
    stepped.run()
    assert (sender.errors(), stepped.queue("secret").depth) == (["access-refused"], 2)


def test_a_user_creates_so_many_destinations() -> None:
    stepped, secrets = secured(limits={"destinations_per_user": 2})
    sender = login(stepped, secrets, "allowed")
    for name in ("a", "b", "a"):
        sender.send(name, b"")
    stepped.run()
    assert sender.errors() == []
    sender.send("c", b"")
    stepped.run()
    assert (sender.errors(), stepped.gate.refused) == (["too-many-destinations"], 1)
    stepped.broker.destinations.delete_queue(stepped.queue("a"))
    stepped.run()
    sender = login(stepped, secrets, "allowed")
    sender.send("c", b"")
    stepped.run()
    assert sender.errors() == []


def test_a_user_has_so_many_connections() -> None:
    stepped, secrets = secured()
    admission = Admission(LimitSettings(connections_per_user=1))
    outcomes = []
    for name in ("read", "read", "write"):
        client = SteppedClient(stepped, name)
        client.connection.accepted = Accepted(admission, "stomp", "127.0.0.1")
        admission.enter(client.connection.accepted)
        client.frame("CONNECT", {"accept-version": "1.2", "host": "/", "login": name, "passcode": secrets[name]})
        stepped.run()
        client.session.flush()
        outcomes.append(client.errors())
    assert outcomes == [[], ["too-many-connections"], []]
    assert admission.refused["connections_per_user"] == 1


def test_a_certificate_is_a_login() -> None:
    stepped, _ = secured()
    shown: list[Credentials] = []
    authenticate = stepped.security.authenticate

    def watched(credentials: Credentials, origin: Origin, done: Any) -> None:
        shown.append(credentials)
        authenticate(credentials, origin, done)

    stepped.gate.log_in = watched  # type: ignore[method-assign]
    client = SteppedClient(stepped, "client")
    client.connection.accepted.certificate = "CN=alice"
    client.frame("CONNECT", {"accept-version": "1.2", "host": "/"})
    assert shown == [Credentials(certificate="CN=alice")]
    assert client.errors() == ["not-authenticated"]


def test_access_is_asked_once_for_each_destination() -> None:
    stepped, secrets = secured()
    sender = login(stepped, secrets, "allowed")
    sender.send("q", b"0", {"a": "0"})
    stepped.run()
    asked: list[str] = []
    check = Access.check

    def counted(self: Access, action: Any, kind: Any, name: str, *, exists: bool = True) -> None:
        asked.append(name)
        check(self, action, kind, name, exists=exists)

    Access.check = counted  # type: ignore[method-assign]
    try:
        for number in range(50):
            sender.send("q", b"1", {"a": str(number)})
        stepped.run()
    finally:
        Access.check = check  # type: ignore[method-assign]
    assert stepped.queue("q").depth == 51
    assert len(asked) <= 3


def test_messages_have_their_user_if_that_is_asked_for() -> None:
    stepped, secrets = secured(security={"user_id": True})
    sender, reader = login(stepped, secrets, "allowed"), login(stepped, secrets, "administrator")
    reader.subscribe("mine", ack="auto")
    for number in range(10):
        sender.send("mine", b"x", {"JMSXUserID": "forged", "correlation-id": str(number)})
    stepped.run()
    users = [frame.headers["JMSXUserID"] for frame in reader.take("MESSAGE")]
    assert users == ["allowed"] * 10


def test_a_refused_connect_tells_no_address_of_another_user() -> None:
    stepped, secrets = secured()
    first = login(stepped, secrets, "allowed", **{"client-id": "c"})
    for name, is_told in (("read", False), ("allowed", True)):
        (error,) = login(stepped, secrets, name, **{"client-id": "c"}).take("ERROR")
        assert error.headers["code"] == "invalid-header"
        text = f"{error.headers} {error.body!r}"
        assert (first.connection.peer in text) is is_told
    assert first.errors() == []
