from dataclasses import replace

import pytest

from quire.destination import DestinationKind
from quire.errors import AccessRefused, NotAuthenticated
from quire.security import ANYONE, Permission
from quire.security.access import CACHED
from quire.settings import Settings
from tests.unit.security.security_rig import CREATE, MANAGE, READ, WRITE, Rig, allow, deny, secured, user

QUEUE = DestinationKind.QUEUE


def test_without_users_everyone_may_do_everything() -> None:
    rig = Rig(Settings())
    access = rig.login("anyone", "whatever")
    assert access.principal is ANYONE
    assert not rig.security.is_enabled
    assert access.allows(MANAGE, QUEUE, "q")
    assert access.may(Permission.ADMINISTER)
    access.check(READ, QUEUE, "q", exists=False)


def test_check_refuses_what_the_rules_do_not_allow_and_says_nothing_of_what_is_there() -> None:
    access = Rig(secured([user("alice")], [allow("user:alice", "orders")])).login("alice")
    access.check(READ, QUEUE, "orders")
    with pytest.raises(AccessRefused, match=r"^user 'alice' may not write queue://orders$") as refused:
        access.check(WRITE, QUEUE, "orders")
    assert refused.value.data == {"action": "write", "destination": "queue://orders"}
    with pytest.raises(AccessRefused, match="may not create"):
        access.check(READ, QUEUE, "orders", exists=False)


def test_a_destination_that_is_there_needs_no_right_to_create_it() -> None:
    rules = [allow("user:alice", "orders", "read", "create"), allow("user:alice", "others")]
    access = Rig(secured([user("alice")], rules)).login("alice")
    access.check(READ, QUEUE, "orders", exists=False)
    access.check(READ, QUEUE, "others")


def test_one_sees_what_one_may_use_and_a_monitor_sees_all() -> None:
    users = [user("alice"), user("bob", "monitor")]
    rig = Rig(secured(users, [allow("user:alice", "orders", "write"), allow("user:alice", "made", "create")]))
    alice, bob = rig.login("alice"), rig.login("bob")
    assert [name for name in ("orders", "made", "stock") if alice.sees(QUEUE, name)] == ["orders"]
    assert bob.sees(QUEUE, "orders")
    assert not bob.allows(READ, QUEUE, "orders")
    with pytest.raises(AccessRefused, match="no role that may monitor"):
        alice.require(Permission.MONITOR)
    bob.require(Permission.MONITOR)


def test_a_change_of_rules_holds_at_once_for_connections_that_are_there() -> None:
    settings = secured([user("alice")], [allow("user:alice", "orders")])
    rig = Rig(settings)
    access = rig.login("alice")
    told: list[bool] = []
    rig.security.watch(lambda: told.append(access.allows(READ, QUEUE, "orders")))
    assert access.allows(READ, QUEUE, "orders")
    rig.security.reload(replace(settings, rules=secured([], [deny("*", "orders")]).rules))
    assert told == [False]
    assert not access.ended


@pytest.mark.parametrize("change", ["gone", "disabled", "another password"])
def test_a_user_that_changes_ends_the_connections(change: str) -> None:
    settings = secured([user("alice"), user("bob")], [allow("*", "orders")])
    rig = Rig(settings)
    access, other = rig.login("alice"), rig.login("bob")
    after = {
        "gone": secured([user("bob")]),
        "disabled": secured([user("alice", disabled=True), user("bob")]),
        "another password": secured([user("alice") | {"password_hash": user("x")["password_hash"]}, user("bob")]),
    }[change]
    rig.security.reload(replace(settings, users=after.users))
    assert isinstance(access.ended, NotAuthenticated)
    assert not access.allows(READ, QUEUE, "orders")
    assert not access.may(Permission.MONITOR)
    with pytest.raises(NotAuthenticated):
        access.check(READ, QUEUE, "orders")
    with pytest.raises(NotAuthenticated):
        access.require(Permission.MONITOR)
    assert other.ended is None
    assert other.allows(READ, QUEUE, "orders")
    rig.security.reload(settings)
    assert access.ended is not None  # what has ended stays so


def test_roles_are_those_of_now() -> None:
    rig = Rig(secured([user("alice")]))
    access = rig.login("alice")
    assert not access.may(Permission.MONITOR)
    rig.security.reload(secured([user("alice", "monitor")]))
    assert access.may(Permission.MONITOR)
    assert access.principal.roles == {"monitor"}


def test_the_first_user_ends_the_connections_of_those_who_did_not_log_in() -> None:
    rig = Rig(Settings())
    access = rig.login("")
    rig.security.reload(secured([user("alice")]))
    assert isinstance(access.ended, NotAuthenticated)


def test_a_broker_that_loses_its_last_user_does_not_open_to_everyone() -> None:
    rig = Rig(secured([user("alice")]))
    rig.security.reload(Settings())
    assert rig.security.is_enabled
    assert isinstance(rig.attempt("alice"), NotAuthenticated)


def test_what_a_connection_remembers_is_bounded() -> None:
    access = Rig(secured([user("alice")], [allow("*", "q.>")])).login("alice")
    for number in range(2 * CACHED + 10):
        assert access.allows(READ, QUEUE, f"q.{number}")
    assert len(access._known) <= CACHED
    assert not access.allows(CREATE, QUEUE, "q.1")
