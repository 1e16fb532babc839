import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.destination import DestinationKind
from quire.security import ANYONE, Action, Permission, Principal, Proof
from quire.security.accounts import RuleBook
from quire.settings.users import read_rules
from tests.unit.security.security_rig import CREATE, MANAGE, READ, WRITE, allow, deny, is_dead_letter

QUEUE, TOPIC, STREAM = DestinationKind.QUEUE, DestinationKind.TOPIC, DestinationKind.STREAM


def book(*rules: dict[str, object]) -> RuleBook:
    return RuleBook(read_rules(list(rules), "test"), is_dead_letter)


def someone(name: str = "alice", *roles: str) -> Principal:
    return Principal(name, frozenset(roles), Proof.PASSWORD)


def allowed(rules: RuleBook, action: Action, kind: DestinationKind, name: str, *roles: str) -> bool:
    return rules.decide(someone("alice", *roles), action, kind, name).allowed


def test_without_a_rule_it_is_refused() -> None:
    decision = book().decide(someone(), READ, QUEUE, "orders")
    assert not decision.allowed
    assert str(decision) == "read queue://orders is refused: no rule allows it"


def test_a_rule_is_for_its_user_its_actions_its_kind_and_its_names() -> None:
    rules = book(allow("user:alice", "queue://orders.>", "read", "write"))
    assert allowed(rules, READ, QUEUE, "orders.new")
    assert allowed(rules, WRITE, QUEUE, "orders")
    assert not allowed(rules, MANAGE, QUEUE, "orders.new")
    assert not allowed(rules, READ, TOPIC, "orders.new")
    assert not allowed(rules, READ, QUEUE, "ordersx")
    assert not rules.decide(someone("bob"), READ, QUEUE, "orders.new").allowed
    assert not rules.decide(someone("Alice"), READ, QUEUE, "orders.new").allowed


def test_a_rule_may_be_for_a_role_or_for_everybody() -> None:
    assert allowed(book(allow("role:sales", "a")), READ, TOPIC, "a", "sales")
    assert not allowed(book(allow("role:sales", "a")), READ, TOPIC, "a", "stock")
    assert not allowed(book(allow("role:alice", "a")), READ, TOPIC, "a")
    assert allowed(book(allow("*", "a")), READ, TOPIC, "a")


@given(st.permutations([allow("user:alice", "a"), deny("*", "a"), allow("role:x", ">"), allow("*", "*")]))
def test_a_deny_wins_in_any_order(rules: list[dict[str, object]]) -> None:
    decision = book(*rules).decide(someone("alice", "x", "administrator"), READ, QUEUE, "a")
    assert not decision.allowed
    assert decision.rule is not None
    assert not decision.rule.allow
    assert len(decision.losers) == 4  # with the one of administrators


def test_the_reason_names_the_rule_that_decides_and_those_it_overrules() -> None:
    decision = book(allow("user:alice", "orders"), deny("*", "queue://orders")).decide(someone(), READ, QUEUE, "orders")
    assert str(decision) == (
        "read queue://orders is refused: file-2: deny * read on queue://orders;"
        " overruled: file-1: allow user:alice read on orders"
    )


def test_the_reason_says_that_it_would_match_as_another_kind() -> None:
    decision = book(allow("user:alice", "topic://prices")).decide(someone(), READ, QUEUE, "prices")
    assert decision.hint == "it would match as topic: file-1: allow user:alice read on topic://prices"


def test_the_reason_says_that_a_wildcard_does_not_name_a_dead_letter_queue() -> None:
    assert "a rule must name it" in book(allow("*", ">")).decide(someone(), READ, QUEUE, "DLQ").hint


@pytest.mark.parametrize("name", ["$quire.ledger", "DLQ"])
def test_a_pattern_that_begins_with_a_wildcard_allows_nothing_that_is_protected(name: str) -> None:
    for pattern in (">", "*", "*.>", "*.ledger"):
        assert not allowed(book(allow("user:alice", pattern)), READ, QUEUE, name)
        assert allowed(book(allow("role:administrator", pattern)), READ, QUEUE, name, "administrator")
    assert allowed(book(allow("user:alice", name)), READ, QUEUE, name)
    assert allowed(book(allow("user:alice", "$quire.>")), READ, QUEUE, "$quire.ledger")


def test_a_deny_with_a_wildcard_counts_for_what_is_protected_too() -> None:
    assert not allowed(book(allow("user:alice", "DLQ"), deny("*", ">")), READ, QUEUE, "DLQ")


def test_what_the_roles_mean() -> None:
    rules = book()
    for action, name in itertools.product(Action, ("orders", "DLQ", "$quire.ledger")):
        assert allowed(rules, action, QUEUE, name, "administrator")
        assert allowed(rules, action, QUEUE, name, "operator") == (action is MANAGE)
        assert not allowed(rules, action, QUEUE, name, "monitor")
        assert rules.decide(ANYONE, action, QUEUE, name).allowed
    permissions = {role: [p for p in Permission if someone("a", role).may(p)] for role in ("operator", "monitor", "x")}
    assert permissions == {
        "operator": [Permission.MONITOR, Permission.OPERATE], "monitor": [Permission.MONITOR], "x": [],
    }  # fmt: skip
    assert all(someone("a", "administrator").may(permission) for permission in Permission)


ABOUT_ORDERS = "ActiveMQ.Advisory.Consumer.Queue.orders"


def test_one_may_read_the_advisories_of_what_one_may_read_or_manage() -> None:
    for action in (READ, CREATE):
        assert allowed(book(allow("user:alice", "orders")), action, TOPIC, ABOUT_ORDERS)
        assert allowed(book(allow("user:alice", "orders", "manage")), action, TOPIC, ABOUT_ORDERS)
        assert not allowed(book(allow("user:alice", "orders", "write")), action, TOPIC, ABOUT_ORDERS)
        assert not allowed(book(allow("user:alice", "topic://orders")), action, TOPIC, ABOUT_ORDERS)
        assert not allowed(book(allow("user:alice", ">")), action, TOPIC, "ActiveMQ.Advisory.Consumer.Queue.DLQ")
        assert allowed(book(), action, TOPIC, ABOUT_ORDERS, "operator")
    assert not allowed(book(allow("user:alice", "orders"), deny("*", "ActiveMQ.>")), READ, TOPIC, ABOUT_ORDERS)


def test_no_one_writes_advisories_without_a_rule_that_names_them() -> None:
    assert not allowed(book(allow("*", ">", "write")), WRITE, TOPIC, ABOUT_ORDERS)
    assert allowed(book(allow("*", "ActiveMQ.Advisory.>", "write")), WRITE, TOPIC, ABOUT_ORDERS)


def test_everybody_reads_the_advisories_of_temporary_destinations_and_monitors_those_of_the_broker() -> None:
    for name in ("TempQueue", "TempTopic"):
        assert allowed(book(), READ, TOPIC, f"ActiveMQ.Advisory.{name}")
    for name in ("Connection", "Queue", "Topic", "Stream"):
        assert not allowed(book(allow("*", ">")), READ, TOPIC, f"ActiveMQ.Advisory.{name}")
        assert allowed(book(), READ, TOPIC, f"ActiveMQ.Advisory.{name}", "monitor")
