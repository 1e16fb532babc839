import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quire.destination import DestinationKind
from quire.errors import (
    BrokerBusy,
    IllegalState,
    InvalidArgument,
    InvalidSettings,
    LimitExceeded,
    NotAuthenticated,
    QuireError,
    StoreUnreachable,
    UnknownRule,
    UnknownToken,
    UnknownUser,
    UserExists,
)
from quire.security import Access, Action, Credentials, Origin, Permission, Principal
from quire.security import accounts as accounts_module
from quire.security.accounts import load_state, user_of
from quire.settings import Settings
from quire.settings.users import read_user
from tests.unit.security.security_rig import HERE, READ, Later, Rig, accepted, allow, hash_of, secured, user

QUEUE = DestinationKind.QUEUE
RULE = {"subject": "user:bob", "allow": ["read"], "destination": "orders"}


class Changes:
    """Makes changes, and says how each ended."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.outcomes: list[Any] = []

    def make(self, name: str, *arguments: Any) -> Any:
        """Make a change; its outcome, None if it is not there yet."""
        before = len(self.outcomes)
        changes = self.rig.security.changes
        changes.make(self.outcomes.append, getattr(changes, name), *arguments)
        return self.outcomes[-1] if len(self.outcomes) > before else None


def changes_of(data: Path, settings: Settings | None = None, **rig: Any) -> Changes:
    return Changes(Rig(settings or secured([user("alice", "administrator")], data=data), **rig))


BOB = user_of({"name": "bob", "roles": ["monitor"], "password_hash": hash_of("bob")})


def test_a_new_user_may_log_in_and_is_there_after_a_restart(tmp_path: Path) -> None:
    changes = changes_of(tmp_path)
    assert changes.make("add_user", BOB) == BOB
    access = changes.rig.login("bob")
    assert access.principal.roles == {"monitor"}
    again = changes_of(tmp_path)
    again.rig.security.load()
    assert again.rig.login("bob").principal.roles == {"monitor"}
    assert not again.rig.security.accounts.users["bob"].in_file


CHANGES: list[tuple[str, list[Any]]] = [
    ("add_user", [BOB]),
    ("add_user", [user_of({"name": "carol", "password_hash": hash_of("carol"), "certificates": ["CN=carol"]})]),
    ("add_rule", [RULE]),
    ("add_rule", [{"subject": "*", "deny": ["write", "read"], "destination": "topic://orders.>"}]),
    ("set_rule", ["r1", {**RULE, "subject": "role:sales", "destination": "queue://>"}]),
    ("add_token", ["bob", 3600.0, ["monitor"], "for a test"]),
    ("add_token", ["carol", 3600.0, None, ""]),
    ("change_user", ["bob", {"roles": frozenset({"sales"})}]),
    ("change_user", ["bob", {"password_hash": hash_of("new")}]),
    ("change_user", ["carol", {"certificates": ("CN=carol,O=Quire",)}]),
    ("remove_rule", ["r2"]),
    ("change_user", ["bob", {"disabled": True}]),
    ("remove_user", ["carol"]),
]
"""One change after the other; the first one makes the first user of the broker."""


def state_of(rig: Rig, data: Path) -> dict[str, Any]:
    """What a broker's security decides, and whether it writes the audit log."""
    security, accounts = rig.security, rig.security.accounts
    before = audited(data)
    security.audit.record("someone", HERE, "purge", "queue://orders", allowed=True)
    written = audited(data) - before
    shown = [Credentials("bob", "bob"), Credentials("bob", "new"), Credentials("carol", "carol")]
    shown += [Credentials(certificate=subject) for subject in ("CN=carol", "CN=carol,O=Quire")]
    first = len(rig.outcomes)
    for each in shown:
        rig.show(each, Origin("http", f"192.0.2.{len(rig.outcomes)}:1"))
        rig.advance(1)
    roles: list[list[str]] = [[], ["sales"], ["administrator"]]
    principals = [Principal(name, frozenset(each)) for name in ("bob", "carol", "x") for each in roles]
    return {
        "state": accounts.state, "enabled": security.is_enabled, "rules": list(map(str, accounts.rules)),
        "audited": written,
        "logins": [each.principal if isinstance(each, Access) else type(each) for each in rig.outcomes[first:]],
        "tokens": [accounts.standing_of_token(token) for token in accounts.state.tokens.values()],
        "decided": [str(accounts.decide(principal, action, kind, "orders.new"))
                    for principal in principals for action in Action for kind in DestinationKind],
    }  # fmt: skip


def audited(data: Path) -> int:
    file = data / "audit.log"
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize("settings", [[], [user("alice", "administrator")]], ids=["no users before", "with users"])
def test_each_change_holds_as_it_does_after_a_restart(tmp_path: Path, settings: list[dict[str, Any]]) -> None:
    running = Changes(Rig(secured(settings, data=tmp_path)))
    for change, arguments in CHANGES:
        outcome = running.make(change, *arguments)
        assert not isinstance(outcome, QuireError), (change, outcome)
        again = Rig(secured(settings, data=tmp_path))
        again.security.load()
        assert state_of(running.rig, tmp_path) == state_of(again, tmp_path), change


def test_the_audit_log_begins_with_the_first_user(tmp_path: Path) -> None:
    changes = Changes(Rig(secured([], data=tmp_path)))
    changes.rig.security.audit.record("", HERE, "purge", "queue://orders", allowed=True)
    assert audited(tmp_path) == 0
    changes.make("add_user", BOB)
    changes.rig.security.audit.record("bob", HERE, "purge", "queue://orders", allowed=True)
    changes.rig.attempt("bob", "wrong")
    assert audited(tmp_path) == 2


def test_the_file_is_for_its_owner_only_and_has_no_password(tmp_path: Path) -> None:
    changes = changes_of(tmp_path)
    changes.make("add_user", BOB)
    _, secret = changes.make("add_token", "bob", 60.0, None, "for a test")
    file = tmp_path / "security.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert secret.split("_", 2)[2] not in file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["security.json"]
    assert json.loads(file.read_text())["version"] == 1


def test_another_password_ends_what_the_console_got_and_says_how_many_tokens_stay(tmp_path: Path) -> None:
    changes = changes_of(tmp_path)
    changes.make("add_user", BOB)
    shown = [changes.make("add_token", name, 60.0, None, text)[1] for name, text in TOKENS]
    logins = [accepted(changes.rig.show(Credentials(token=secret))) for secret in shown]
    user, left = changes.make("set_password", "bob", hash_of("new"))
    assert (user.password_hash, left) == (hash_of("new"), 1)
    assert [login.ended is not None for login in logins] == [True, False, False]
    assert changes.make("set_password", "alice", hash_of("new")).code == IllegalState.code
    assert changes.make("set_password", "nobody", hash_of("new")).code == UnknownUser.code


def test_another_password_in_the_file_ends_what_the_console_got_and_it_stays_so_after_a_start(tmp_path: Path) -> None:
    changes = changes_of(tmp_path)
    shown = [changes.make("add_token", "alice", 60.0, None, text)[1] for text in ("console", "for a program")]
    logins = [accepted(changes.rig.show(Credentials(token=secret))) for secret in shown]
    changed = secured([user("alice") | {"password_hash": hash_of("new")}], data=tmp_path)
    changes.rig.security.reload(changed)
    assert [login.ended is not None for login in logins] == [True, False]
    again = Rig(changed)
    again.security.load()
    assert isinstance(again.show(Credentials(token=shown[0])), NotAuthenticated)
    assert accepted(again.show(Credentials(token=shown[1]))).principal.name == "alice"
    changes.make("add_token", "alice", 60.0, None, "")
    assert sorted(token.text for token in changes.rig.security.accounts.state.tokens.values()) == ["", "for a program"]


def test_other_roles_in_the_file_hold_for_what_the_console_got(tmp_path: Path) -> None:
    changes = changes_of(tmp_path)
    login = accepted(changes.rig.show(Credentials(token=changes.make("add_token", "alice", 60.0, None, "console")[1])))
    assert login.may(Permission.ADMINISTER)
    changes.rig.security.reload(secured([user("alice", "monitor")], data=tmp_path))
    assert login.ended is None
    assert login.principal.roles == {"monitor"}
    assert not login.may(Permission.ADMINISTER)


TOKENS = [("bob", "console"), ("bob", "for a program"), ("alice", "console")]


@pytest.mark.parametrize(
    ("role", "wanted", "given"),
    [
        ("administrator", "monitor", {"monitor"}), ("administrator", "operator", {"operator"}),
        ("operator", "monitor", {"monitor"}), ("sales", "sales", {"sales"}), ("monitor", "operator", None),
        ("administrator", "sales", None), ("operator", "administrator", None),
    ],
)  # fmt: skip
def test_a_token_has_a_role_that_its_owner_has_or_that_is_a_part_of_one(
    tmp_path: Path, role: str, wanted: str, given: set[str] | None
) -> None:
    changes = changes_of(tmp_path)
    changes.make("add_user", replace(BOB, roles=frozenset({role})))
    made = changes.make("add_token", "bob", 60.0, [wanted], "")
    if given is None:
        assert isinstance(made, InvalidArgument)
        assert not changes.rig.security.accounts.state.tokens
    else:
        assert accepted(changes.rig.show(Credentials(token=made[1]))).principal.roles == given


def test_a_user_is_changed_and_removed_with_its_tokens(tmp_path: Path) -> None:
    changes = changes_of(tmp_path)
    changes.make("add_user", BOB)
    _, secret = changes.make("add_token", "bob", 60.0, ["monitor"], "")
    access = changes.rig.login("bob")
    by_token = accepted(changes.rig.show(Credentials(token=secret)))
    changes.make("change_user", "bob", {"roles": frozenset({"x"})})
    assert access.principal.roles == {"x"}
    changes.make("change_user", "bob", {"password_hash": hash_of("new")})
    assert access.ended is not None
    assert not by_token.ended
    changes.make("remove_user", "bob")
    assert isinstance(by_token.ended, QuireError)
    assert load_state(tmp_path / "security.json").tokens == {}


def test_rules_are_added_replaced_and_removed(tmp_path: Path) -> None:
    changes = changes_of(tmp_path)
    changes.make("add_user", BOB)
    access = changes.rig.login("bob")
    assert changes.make("add_rule", RULE).id == "r1"
    assert access.allows(READ, QUEUE, "orders")
    changes.make("set_rule", "r1", {**RULE, "destination": "stock"})
    assert [access.allows(READ, QUEUE, name) for name in ("orders", "stock")] == [False, True]
    changes.make("remove_rule", "r1")
    assert not access.allows(READ, QUEUE, "stock")
    assert changes.make("add_rule", RULE).id == "r2"  # an id is not used again
    assert [str(rule) for rule in load_state(tmp_path / "security.json").rules.values()] == [
        "r2: allow user:bob read on orders"
    ]


def test_tokens_are_made_and_revoked(tmp_path: Path) -> None:
    changes = changes_of(tmp_path)
    changes.make("add_user", BOB)
    token, secret = changes.make("add_token", "bob", 60.0, None, "")
    access = accepted(changes.rig.show(Credentials(token=secret)))
    assert changes.make("revoke_token", token.id) == token
    assert access.ended is not None


def test_ended_tokens_are_forgotten(tmp_path: Path) -> None:
    changes = changes_of(tmp_path)
    for _ in range(3):
        changes.make("add_token", "alice", 60.0, None, "")
        changes.rig.advance(61)
    assert len(changes.rig.security.accounts.state.tokens) == 1


@pytest.mark.parametrize(
    ("change", "arguments", "error"),
    [
        ("add_user", [user_of({"name": "alice"})], UserExists),
        ("change_user", ["nobody", {}], UnknownUser),
        ("change_user", ["alice", {}], IllegalState),
        ("remove_user", ["nobody"], UnknownUser),
        ("remove_user", ["alice"], IllegalState),
        ("set_rule", ["r9", RULE], UnknownRule),
        ("remove_rule", ["r9"], UnknownRule),
        ("remove_rule", ["file-1"], IllegalState),
        ("add_rule", [{**RULE, "destination": "a.>.b"}], InvalidArgument),
        ("add_rule", [{**RULE, "subject": "bob"}], InvalidArgument),
        ("add_rule", [{**RULE, "allow": ["eat"]}], InvalidArgument),
        ("add_token", ["nobody", 60.0, None, ""], UnknownUser),
        ("add_token", ["alice", 0.0, None, ""], InvalidArgument),
        ("add_token", ["alice", 1e12, None, ""], InvalidArgument),
        ("add_token", ["alice", 60.0, None, "x" * 201], InvalidArgument),
        ("revoke_token", ["t"], UnknownToken),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, change: str, arguments: list[Any], error: type) -> None:
    changes = changes_of(tmp_path, secured([user("alice")], [allow("*", "q")], tmp_path))
    assert isinstance(changes.make(change, *arguments), error)
    assert list(tmp_path.iterdir()) == []
    assert isinstance(changes.make("add_user", BOB), type(BOB))  # the next one is made all the same


def test_a_change_that_cannot_be_written_does_not_hold(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    changes = changes_of(tmp_path, secured([user("alice")], data=tmp_path / "file"))
    assert isinstance(changes.make("add_user", BOB), StoreUnreachable)
    assert "bob" not in changes.rig.security.accounts.users
    changes = changes_of(tmp_path, files=Later(limit=0))
    assert isinstance(changes.make("add_user", BOB), BrokerBusy)


def test_changes_hold_when_they_are_written_one_after_the_other(tmp_path: Path) -> None:
    files = Later()
    changes = changes_of(tmp_path, files=files)
    assert changes.make("add_user", BOB) is None
    assert changes.make("add_user", BOB) is None
    assert changes.make("add_rule", RULE) is None
    assert "bob" not in changes.rig.security.accounts.users
    files.finish()
    assert [type(outcome) for outcome in changes.outcomes] == [type(BOB), UserExists]
    files.finish()
    assert len(load_state(tmp_path / "security.json").rules) == 1
    assert isinstance(changes.rig.login("bob"), Access)


def test_there_may_be_so_many_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts_module, "MOST", 1)
    monkeypatch.setattr(accounts_module, "MOST_WAITING", 1)
    changes = changes_of(tmp_path)
    for change, arguments in (
        ("add_user", [[BOB], [replace(BOB, name="c")]]),
        ("add_rule", [[RULE], [RULE]]),
        ("add_token", [["alice", 60.0, None, ""], ["alice", 60.0, None, ""]]),
    ):
        assert not isinstance(changes.make(change, *arguments[0]), QuireError)
        assert isinstance(changes.make(change, *arguments[1]), LimitExceeded)
    busy = changes_of(tmp_path, files=Later())
    assert [busy.make("add_rule", RULE) for _ in range(2)] == [None, None]
    assert isinstance(busy.make("add_rule", RULE), BrokerBusy)


def test_a_store_in_memory_has_no_file() -> None:
    settings = secured([user("alice")])
    changes = Changes(Rig(replace(settings, store=replace(settings.store, url="memory:"))))
    assert changes.make("add_user", BOB) == BOB
    changes.rig.security.load()
    assert "bob" in changes.rig.security.accounts.users


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "users": [{"secret": 1}], "rules": [], "tokens": []}']
)
def test_a_damaged_file_is_an_error_that_shows_nothing_of_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "security.json").write_text(content)
    with pytest.raises(InvalidSettings) as refused:
        changes_of(tmp_path).rig.security.load()
    assert str(tmp_path) in str(refused.value)
    assert content == "" or content not in str(refused.value)


def test_a_secured_broker_without_users_makes_an_administrator_once(tmp_path: Path) -> None:
    rig = Rig(secured([], data=tmp_path, enabled=True))
    rig.security.load()
    password = rig.security.make_first_user()
    assert password is not None
    assert rig.login("admin", password).principal.is_administrator
    assert rig.security.make_first_user() is None
    again = Rig(secured([], data=tmp_path))
    again.security.load()
    assert again.security.is_enabled
    assert again.security.make_first_user() is None
    assert again.login("admin", password).principal.is_administrator


@pytest.mark.parametrize(
    "table",
    [
        {}, {"name": ""}, {"name": "a:b"}, {"name": "$local"}, {"name": "a b"}, {"name": 1}, {"name": "x" * 201},
        {"name": "a", "password": "secret-1"}, {"name": "a", "password_hash": "secret-1"},
        {"name": "a", "roles": "secret-1"}, {"name": "a", "roles": ["a b"]}, {"name": "a", "disabled": "secret-1"},
        {"name": "a", "certificates": [1]}, {"name": "a", "roles": ["r"] * 101},
    ],
)  # fmt: skip
def test_a_user_that_cannot_be_is_refused_without_showing_a_password(table: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read_user(table, "test")
    assert "secret-1" not in str(refused.value)
    assert "secret-1" not in repr(refused.value.data)
