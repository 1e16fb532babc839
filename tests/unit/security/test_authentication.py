from dataclasses import replace

import pytest

from quire.errors import BrokerBusy, NotAuthenticated, TooManyLogins
from quire.security import Access, Credentials, Origin, Permission, Proof
from quire.security.accounts import SavedState, Token, make_token
from quire.settings import Settings
from tests.unit.security.security_rig import HERE, Later, Rig, accepted, hash_of, secured, user

ELSEWHERE = Origin("http", "192.0.2.9:1")


def with_token(rig: Rig, owner: str = "alice", roles: tuple[str, ...] | None = None, lives: float = 60) -> str:
    """A token in the broker's state."""
    now = rig.clock.now_ms()
    token, text = make_token(owner, now, now + round(lives * 1000), roles)
    accounts = rig.security.accounts
    accounts.take(accounts.settings, SavedState(tokens={**accounts.state.tokens, token.id: token}))
    return text


def test_a_name_and_its_password_prove_who_one_is() -> None:
    access = Rig(secured([user("alice", "monitor")])).login("alice")
    assert (access.principal.name, access.principal.proof) == ("alice", Proof.PASSWORD)
    assert access.principal.roles == {"monitor"}
    assert access.origin == HERE


@pytest.mark.parametrize(
    ("name", "password"), [("alice", "bob"), ("bob", "bob"), ("alice", ""), ("", ""), ("", "alice"), ("off", "off")]
)
def test_all_else_is_refused_alike(name: str, password: str) -> None:
    rig = Rig(secured([user("alice"), user("off", disabled=True), {"name": "cert", "certificates": ["CN=cert"]}]))
    outcome = rig.attempt(name, password)
    assert isinstance(outcome, NotAuthenticated)
    assert str(outcome) in (
        "the user, the password or the token is wrong",
        *(["log in with a name and a password"] if not name + password else []),
    )


def test_an_unknown_user_costs_a_hash_too() -> None:
    hashing = Later()
    rig = Rig(secured([user("alice")]), hashing)
    assert rig.attempt("nobody", "x") is None
    assert len(hashing.waiting) == 1
    hashing.finish()
    assert isinstance(rig.outcomes[-1], NotAuthenticated)


def test_a_password_is_hashed_once_until_the_user_changes() -> None:
    hashing = Later()
    settings = secured([user("alice")])
    rig = Rig(settings, hashing)
    assert rig.attempt("alice") is None
    hashing.finish()
    assert [type(outcome) for outcome in rig.outcomes] == [Access]
    assert isinstance(rig.attempt("alice"), Access)  # at once
    rig.security.reload(replace(settings, users=secured([user("alice") | {"password_hash": hash_of("new")}]).users))
    assert rig.attempt("alice") is None
    hashing.finish()
    assert [type(outcome) for outcome in rig.outcomes[1:]] == [Access, NotAuthenticated]


def test_a_user_that_changes_while_the_password_is_checked_is_refused() -> None:
    hashing = Later()
    rig = Rig(secured([user("alice"), user("bob")]), hashing)
    rig.attempt("alice")
    rig.security.reload(secured([user("alice", disabled=True), user("bob")]))
    hashing.finish()
    assert isinstance(rig.outcomes[-1], NotAuthenticated)


def test_too_many_logins_at_once_are_refused() -> None:
    rig = Rig(secured([user("alice")]), Later(limit=1))
    assert rig.attempt("alice") is None
    assert isinstance(rig.attempt("alice", origin=ELSEWHERE), BrokerBusy)


def test_a_certificate_proves_who_one_is() -> None:
    rig = Rig(secured([user("alice", certificates=["CN=alice,O=Quire"]), user("bob")]))
    access = accepted(rig.show(Credentials(certificate="CN=alice,O=Quire")))
    assert (access.principal.name, access.principal.proof) == ("alice", Proof.CERTIFICATE)
    assert isinstance(rig.show(Credentials("alice", certificate="CN=alice,O=Quire")), Access)
    assert isinstance(rig.show(Credentials("bob", certificate="CN=alice,O=Quire")), NotAuthenticated)
    assert isinstance(rig.show(Credentials(certificate="CN=bob")), NotAuthenticated)
    rig.security.reload(secured([user("alice"), user("bob")]))
    assert isinstance(access.ended, NotAuthenticated)


def test_a_token_is_for_its_owner_and_ends() -> None:
    rig = Rig(secured([user("alice", "operator")]))
    text = with_token(rig)
    told: list[int] = []
    rig.security.watch(lambda: told.append(1))
    for credentials in (Credentials(token=text), Credentials("alice", text), Credentials("", text)):
        access = accepted(rig.show(credentials))
        assert (access.principal.name, access.principal.proof) == ("alice", Proof.TOKEN)
        assert access.may(Permission.OPERATE)
    assert isinstance(rig.show(Credentials("bob", text)), NotAuthenticated)
    assert isinstance(rig.show(Credentials(token=text[:-1] + ("a" if text[-1] != "a" else "b"))), NotAuthenticated)
    rig.advance(59)
    assert told == []
    assert not access.ended
    rig.advance(1)
    assert told == [1]  # once for all connections
    assert isinstance(access.ended, NotAuthenticated)
    assert isinstance(rig.show(Credentials(token=text), ELSEWHERE), NotAuthenticated)


def test_a_token_may_have_fewer_roles_than_its_owner_and_never_more() -> None:
    rig = Rig(secured([user("alice", "operator", "monitor")]))
    outcome = rig.show(Credentials(token=with_token(rig, roles=("monitor", "administrator"))))
    assert isinstance(outcome, Access)
    assert outcome.principal.roles == {"monitor"}
    rig.security.reload(secured([user("alice")]))
    assert outcome.principal.roles == frozenset()


def test_a_token_that_is_revoked_ends_its_connections() -> None:
    rig = Rig(secured([user("alice")]))
    outcome = rig.show(Credentials(token=with_token(rig)))
    rig.security.accounts.take(rig.security.accounts.settings, SavedState())
    assert isinstance(outcome, Access)
    assert isinstance(outcome.ended, NotAuthenticated)


def test_the_command_line_on_this_machine_is_an_administrator() -> None:
    rig = Rig(secured([user("alice")]))
    outcome = rig.show(Credentials(token=rig.security.accounts.local_token))
    assert isinstance(outcome, Access)
    assert outcome.may(Permission.ADMINISTER)
    assert (outcome.principal.name, outcome.principal.proof) == ("$local", Proof.LOCAL)


def test_nothing_shows_a_secret() -> None:
    token, text = make_token("alice", 0, 1000)
    assert isinstance(token, Token)
    shown = repr((Credentials("alice", "secret-1", text), token, secured([user("alice")]).users))
    assert "secret-1" not in shown
    assert text not in shown
    assert token.digest not in shown
    assert hash_of("alice") not in shown


# Guesses.


def test_guesses_wait_longer_and_longer_and_the_right_password_gets_through() -> None:
    rig = Rig(secured([user("alice")]))
    assert isinstance(rig.attempt("alice", "wrong"), NotAuthenticated)
    began = rig.clock.monotonic()
    for number in range(4):
        assert rig.attempt("alice", f"wrong {number}") is None
        while len(rig.outcomes) < number + 2:
            rig.advance(0.05)
    assert rig.clock.monotonic() - began >= 0.25 + 0.5 + 1 + 2
    assert rig.attempt("alice") is None
    rig.advance(4.1)
    assert isinstance(rig.outcomes[-1], Access)
    assert isinstance(rig.attempt("alice"), Access)  # all is forgiven


def test_a_login_that_had_to_wait_too_long_is_refused_without_a_hash() -> None:
    hashing = Later(100)
    rig = Rig(secured([user("alice")]), hashing)
    for number in range(8):
        rig.attempt("alice", f"wrong {number}")
        rig.advance(60)
        hashing.finish()
    outcome = rig.attempt("alice")
    assert isinstance(outcome, TooManyLogins)
    assert outcome.data["retry_after"] > 5
    assert hashing.waiting == []
    assert rig.attempt("alice", origin=ELSEWHERE) is None  # another address is not locked out
    hashing.finish()
    assert isinstance(rig.outcomes[-1], Access)


def test_many_guesses_at_once_wait_one_after_the_other() -> None:
    rig = Rig(secured([user("alice")]))
    outcomes = [rig.attempt("alice", f"wrong {number}") for number in range(1001)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, TooManyLogins)]
    assert len(refused) >= 970
    rig.advance(10)
    assert rig.security.guesses.failed_total < 31


def test_guesses_of_many_names_from_one_address_wait_too() -> None:
    rig = Rig(Settings())
    for number in range(12):
        rig.security.guesses.failed(f"name {number}", "192.0.2.1")
    assert 0 < rig.security.guesses.wait("another", "192.0.2.1") <= 0.25
    assert rig.security.guesses.wait("another", "192.0.2.2") == 0


def test_guesses_of_one_name_from_many_addresses_wait_a_little() -> None:
    rig = Rig(Settings())
    for number in range(12):
        rig.security.guesses.failed("alice", f"192.0.2.{number}")
    assert 0 < rig.security.guesses.wait("alice", "198.51.100.1") <= 0.1


def flooded(rig: Rig, name: str | None = None, origin: Origin = HERE) -> None:
    """So many guesses, of many names or of one, that the next one of its kind has to wait for too long."""
    for number in range(200):
        rig.attempt(name or f"name {number}", f"wrong {number}", origin)
    assert isinstance(rig.attempt(name or "another", "wrong", origin), TooManyLogins)


@pytest.mark.parametrize("name", ["alice", None])
def test_what_cannot_be_guessed_waits_for_no_failure(name: str | None) -> None:
    rig = Rig(secured([user("alice", "administrator"), user("bob")]))
    token = with_token(rig)
    flooded(rig, name)
    assert accepted(rig.show(Credentials(token=rig.security.accounts.local_token))).principal.name == "$local"
    for credentials in (Credentials(token=token), Credentials("alice", token), Credentials("", token)):
        assert accepted(rig.show(credentials)).principal.proof is Proof.TOKEN


def test_wrong_tokens_make_nothing_wait() -> None:
    rig = Rig(secured([user("alice"), user("bob")]))
    ended = with_token(rig, lives=1)
    rig.advance(2)
    for _ in range(1000):
        assert isinstance(rig.show(Credentials(token=ended)), NotAuthenticated)
        assert isinstance(rig.show(Credentials("alice", ended)), NotAuthenticated)
        assert isinstance(rig.show(Credentials(token="no token at all")), NotAuthenticated)
    assert isinstance(rig.show(Credentials(token=with_token(rig))), Access)
    assert isinstance(rig.attempt("alice"), Access)
    assert rig.security.guesses.failed_total == 3000


@pytest.mark.parametrize("name", ["alice", None])
def test_a_password_that_was_right_here_before_waits_for_no_failure(name: str | None) -> None:
    rig = Rig(secured([user("alice", "administrator")]))
    rig.login("alice")
    flooded(rig, name)
    assert isinstance(rig.attempt("alice"), Access)


def test_a_password_that_was_right_elsewhere_cannot_be_guessed_faster() -> None:
    rig = Rig(secured([user("alice")]))
    rig.login("alice", origin=ELSEWHERE)
    flooded(rig, "alice")
    assert isinstance(rig.attempt("alice"), TooManyLogins)
    assert isinstance(rig.attempt("alice", origin=ELSEWHERE), Access)


def test_a_user_that_is_known_here_waits_for_no_failures_of_other_names() -> None:
    rig = Rig(secured([user("alice")]))
    rig.login("alice")
    rig.security.reload(secured([user("alice") | {"password_hash": hash_of("new")}]))
    flooded(rig)
    assert isinstance(rig.attempt("alice", "new"), Access)


def test_a_wrong_password_that_comes_again_and_again_makes_nothing_wait_and_is_hashed_once() -> None:
    hashing = Later()
    rig = Rig(secured([user("alice"), user("off", disabled=True)]), hashing)
    for name in ("alice", "off", "nobody"):
        assert rig.attempt(name, "old", ELSEWHERE) is None
        hashing.finish()
        rig.advance(60)
        assert all([isinstance(rig.attempt(name, "old", ELSEWHERE), NotAuthenticated) for _ in range(1000)])
    assert hashing.waiting == []
    assert rig.attempt("alice", origin=ELSEWHERE) is None
    hashing.finish()
    assert isinstance(rig.outcomes[-1], Access)
    rig.security.reload(secured([user("alice") | {"password_hash": hash_of("old")}]))
    assert rig.attempt("alice", "old", ELSEWHERE) is None  # it may be right now
    hashing.finish()
    assert isinstance(rig.outcomes[-1], Access)


def test_failed_logins_are_logged_once_for_each_doubling(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(secured([user("alice")]))
    for number in range(9):
        rig.attempt("alice", f"wrong-password {number}")
        rig.advance(61)
    lines = [record.message for record in caplog.records if "login" in record.message]
    assert [line.rpartition("(")[2] for line in lines] == ["1 times)", "2 times)", "4 times)", "8 times)"]
    assert "wrong-password" not in caplog.text


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1:5000", "192.0.2.1"), ("192.0.2.1", "192.0.2.1"), ("[2001:db8::1]:80", "2001:db8::/64"),
        ("2001:db8::1", "2001:db8::/64"), ("testclient:1", "testclient"), ("", ""),
    ],
)  # fmt: skip
def test_one_client_has_all_addresses_of_a_network_of_ipv6(address: str, network: str) -> None:
    assert Origin("http", address).network == network
