"""Whoever moves messages is asked for each place that they come to, and each destination that is made counts."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from quire.errors import AccessRefused
from quire.management.messages import Choice
from quire.security import Origin
from quire.security.accounts import SavedState, make_token
from quire.sessions.rights import Guard
from quire.settings.users import read_rules, read_users
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import letter, settings
from tests.unit.http.conftest import Api


class Asked:
    """A broker with one user ``u``, who has some rules and roles and calls its API."""

    def __init__(self, *rules: dict[str, Any], roles: tuple[str, ...] = (), api: Api | None = None) -> None:
        self.api = api or Api(SteppedBroker(settings()))
        self.stepped = self.api.stepped
        now = self.stepped.clock.now_ms()
        token, self.secret = make_token("u", now, now + 3_600_000)
        accounts = self.api.service.security.accounts
        users = read_users([{"name": "u", "roles": list(roles)}], "test")
        own = read_rules([{"subject": "user:u", **rule} for rule in rules], "test")
        accounts.take(replace(accounts.settings, users=users, rules=own), SavedState(tokens={token.id: token}))

    def call(self, method: str, path: str, **request: Any) -> tuple[int, Any]:
        """The status and the body of an answer; of an error its code."""
        answer = self.api.call(method, path, headers={"authorization": f"Bearer {self.secret}"}, **request)
        body = answer.json()
        return answer.status_code, body["error"]["code"] if "error" in body else body

    def redrive(self, **body: Any) -> tuple[int, Any]:
        return self.call("POST", "/queues/mine/redrive", json=body)

    def depth(self, name: str) -> int | None:
        queue = self.stepped.broker.queues.get(name)
        return None if queue is None else queue.depth


MINE = {"allow": ["read", "write", "create", "manage"], "destination": "queue://mine"}


@pytest.mark.parametrize(
    "origin", ["/queue/other", "/queue/ActiveMQ.DLQ", "/topic/t", "/stream/s", "/queue/mine2,/queue/other", "other"]
)
def test_a_redrive_asks_for_each_place_that_dead_letters_came_from(origin: str) -> None:
    asked = Asked(MINE, {"allow": ["write", "create"], "destination": "mine2"})
    letter(asked.stepped, origin, "mine")
    letter(asked.stepped, "/queue/mine2", "mine")
    assert asked.redrive() == (403, "access-refused")
    assert [asked.depth(name) for name in ("mine", "mine2", "other", "ActiveMQ.DLQ")] == [1, 1, None, None]
    assert not asked.stepped.broker.destinations.topics
    assert not asked.stepped.broker.destinations.streams


def test_a_dry_run_of_a_redrive_does_not_count_what_would_stay() -> None:
    asked = Asked(MINE, {"allow": ["manage"], "destination": "queue://from"})
    letter(asked.stepped, "/queue/from", "mine")
    status, found = asked.call("POST", "/queues/mine/redrive", json={}, params={"dry_run": True})
    assert (status, found["count"]) == (200, 1)
    letter(asked.stepped, "/queue/other", "mine")
    assert asked.call("POST", "/queues/mine/redrive", json={}, params={"dry_run": True}) == (403, "access-refused")


def test_a_redrive_needs_no_right_to_read_where_the_letters_lie() -> None:
    """They come from there: whoever reads there now could have read them."""
    asked = Asked(
        {"allow": ["manage"], "destination": "queue://mine"}, {"allow": ["read", "manage"], "destination": "orders"}
    )
    letter(asked.stepped, "/queue/orders", "mine")
    assert asked.redrive()[0] == 200
    assert asked.depth("orders") == 1


VIRTUAL = "Consumer.u.VirtualTopic.x"
FORWARDING = {"queue": "in", "forward_to": ["queue://between"]}
AGAIN = {"queue": "between", "forward_to": ["queue://own"]}


@pytest.mark.parametrize("verb", ["move", "copy", "redrive"])
@pytest.mark.parametrize(("to", "own"), [("topic://VirtualTopic.x", VIRTUAL), ("in", "own")])
def test_an_operator_brings_nothing_to_what_passes_it_on_to_where_it_reads(verb: str, to: str, own: str) -> None:
    api = Api(SteppedBroker(settings(composites=[FORWARDING, AGAIN])))
    letter(api.stepped, "/queue/a", "secret")
    api.stepped.queue(own)
    asked = Asked({"allow": ["read"], "destination": f"queue://{own}"}, roles=("operator",), api=api)
    assert asked.call("POST", f"/queues/secret/{verb}", json={"to": to}) == (403, "access-refused")
    assert (asked.depth("secret"), asked.depth(own)) == (1, 0)


def test_nor_is_it_brought_back_to_what_passes_it_on_to_where_the_operator_reads() -> None:
    api = Api(SteppedBroker(settings(composites=[FORWARDING, AGAIN])))
    letter(api.stepped, "/queue/in", "mine")
    asked = Asked({"allow": ["read"], "destination": "queue://own"}, roles=("operator",), api=api)
    assert asked.redrive() == (403, "access-refused")
    assert asked.depth("mine") == 1


def test_a_queue_that_comes_while_messages_are_copied_is_asked_for_too() -> None:
    asked = Asked({"allow": ["read"], "destination": f"queue://{VIRTUAL}"}, roles=("operator",))
    for _ in range(3):
        letter(asked.stepped, "/queue/a", "secret")
    services = asked.api.application.services
    access = asked.api.service.security.vouched("u", ["operator"], Origin("http", "test"))
    copy = services.admin.queues.copy(
        "secret", "topic://VirtualTopic.x", Choice(step=1), Guard(asked.stepped.gate, access)
    )
    steps = iter(copy)
    assert next(steps) == 1
    asked.stepped.queue(VIRTUAL)
    with pytest.raises(AccessRefused):
        next(steps)
    assert asked.depth(VIRTUAL) == 0


# What a user creates.

EVERYTHING = {"allow": ["read", "write", "create", "manage"], "destination": "x.>"}


@pytest.mark.parametrize(
    ("method", "path", "sent"),
    [
        ("PUT", "/queues/x.{}", {}), ("PUT", "/topics/x.{}", {}), ("PUT", "/streams/x.{}", {"json": {}}),
        ("POST", "/queues/x.{}/messages", {"json": {"body": ""}}),
        ("POST", "/topics/x.{}/messages", {"json": {"body": ""}}),
        ("POST", "/streams/x.{}/messages", {"json": {"body": ""}}),
        ("POST", "/streams/x.{}/groups/g/receive", {"json": {}}),
        ("PUT", "/durables/c/x.{}", {"json": {"topic": "x.{}"}}),
        ("POST", "/queues/x.0/move", {"json": {"to": "x.{}", "limit": 1}}),
        ("POST", "/queues/x.0/copy", {"json": {"to": "x.{}"}}),
        ("POST", "/write", {"json": {"destination": "x.{}"}}),
        ("POST", "/write/stages", {"json": {"destination": "x.{}"}, "params": {"producer": "p"}}),
    ],
)  # fmt: skip
def test_what_a_user_creates_by_the_api_counts(method: str, path: str, sent: dict[str, Any]) -> None:
    asked = Asked(EVERYTHING, api=Api(SteppedBroker(settings(limits={"destinations_per_user": 3}))))
    assert asked.call("POST", "/queues/x.0/messages", json={"body": "", "count": 3})[0] == 201

    def made(number: int) -> tuple[int, Any]:
        request = msgspec.json.decode(msgspec.json.encode(sent).replace(b"x.{}", b"x.%d" % number))
        if path.startswith("/write"):
            request["content"] = msgspec.msgpack.encode({**request.pop("json"), "value": [b""]})
        return asked.call(method, path.format(number), **request)

    assert {made(1)[0], made(2)[0]} <= {200, 201}
    assert made(3)[1] == "too-many-destinations"
    found = asked.stepped.broker.destinations
    assert "x.3" not in {*found.queues, *found.topics, *found.streams}


def test_a_redrive_creates_no_more_than_its_user_may() -> None:
    asked = Asked(EVERYTHING, MINE, api=Api(SteppedBroker(settings(limits={"destinations_per_user": 1}))))
    for number in range(2):
        letter(asked.stepped, f"/queue/x.{number}", "mine")
    assert asked.redrive()[1] == "too-many-destinations"
    assert asked.depth("x.1") is None


def test_a_reader_without_the_right_to_create_makes_no_stream() -> None:
    asked = Asked({"allow": ["read"], "destination": ">"})
    assert asked.call("POST", "/streams/new/groups/g/receive", json={}) == (403, "access-refused")
    assert not asked.stepped.broker.destinations.streams


# Selectors.

CHOICES = [
    ("POST", "/queues/q/purge", {}), ("POST", "/queues/q/move", {"to": "other"}),
    ("POST", "/queues/q/copy", {"to": "other"}), ("POST", "/queues/q/redrive", {}),
    ("POST", "/queues/q/redrive", {"to": "other"}), ("POST", "/durables/c/q/purge", {}),
]  # fmt: skip
TOLD = ["secret = 'x'", "JMSPriority > 3 AND JMSCorrelationID LIKE 'a%'", "NOT (JMSType IS NULL)", "a + 1 < 2"]


@pytest.mark.parametrize("params", [{}, {"dry_run": True}, {"background": True}])
@pytest.mark.parametrize(("method", "path", "body"), CHOICES)
def test_who_may_not_read_learns_nothing_of_headers_by_a_selector(
    method: str, path: str, body: dict[str, Any], params: dict[str, Any]
) -> None:
    api = Api(SteppedBroker(settings()))
    letter(api.stepped, "/queue/a", "q", secret="x")
    api.call("PUT", "/durables/c/q", json={"topic": "q"})
    asked = Asked(roles=("operator",), api=api)
    for selector in TOLD:
        asked_for = {"json": {**body, "selector": selector}, "params": params}
        assert asked.call(method, path, **asked_for) == (403, "access-refused")
    assert asked.depth("q") == 1
    if params.get("background"):
        return
    own = "dlqDeliveryFailureCause LIKE '%x%' AND JMSPriority BETWEEN 1 AND 9"
    assert asked.call(method, path, json={**body, "selector": own}, params=params)[0] == 200


def test_nor_by_the_selector_of_a_durable_subscription() -> None:
    asked = Asked(roles=("operator",))
    assert asked.call("PUT", "/durables/c/q", json={"topic": "t", "selector": "a = 'b'"}) == (403, "access-refused")
    assert asked.call("PUT", "/durables/c/q", json={"topic": "t", "selector": "JMSPriority = 1"})[0] == 201


def test_a_reader_chooses_by_any_header() -> None:
    asked = Asked(MINE)
    letter(asked.stepped, "/queue/a", "mine", secret="x")
    purged = asked.call("POST", "/queues/mine/purge", json={"selector": "secret = 'x'"})
    assert (purged[0], purged[1]["removed"]) == (200, 1)
