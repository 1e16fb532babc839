"""How many connections there may be, and whose turn it is."""

import pytest

from quire.errors import TooManyConnections
from quire.server import listener as listener_module
from quire.server.listener import Accepted, Admission
from quire.settings import LimitSettings


class Line:
    def __init__(self, **limits: int) -> None:
        self.admission = Admission(LimitSettings(**limits))
        self.begun: list[str] = []

    def come(self, name: str, host: str = "a") -> Accepted:
        accepted = Accepted(self.admission, "stomp", host)
        self.admission.enter(accepted)
        self.admission.agree(accepted, lambda: self.begun.append(name))
        return accepted


def test_a_connection_begins_at_once_if_few_are_before_their_login() -> None:
    line = Line(unauthenticated=2)
    line.come("1")
    line.come("2")
    line.come("3")
    admission = line.admission
    assert (line.begun, admission.open, admission.before_login, admission.waiting) == (["1", "2"], 3, 2, 1)


def test_the_next_one_begins_when_one_has_logged_in_or_gone() -> None:
    line = Line(unauthenticated=1)
    first, second = line.come("1"), line.come("2")
    line.come("3")
    first.logged_in("alice")
    assert line.begun == ["1", "2"]
    second.left()
    assert line.begun == ["1", "2", "3"]
    first.left()
    second.left()
    assert (line.admission.open, line.admission.before_login, line.admission.waiting) == (1, 1, 0)


def test_a_connection_that_logs_in_anew_counts_to_its_last_user_only() -> None:
    line = Line(connections_per_user=1)
    first, second = line.come("1"), line.come("2")
    first.logged_in("alice")
    first.logged_in("alice")
    first.logged_in("bob")
    second.logged_in("alice")
    with pytest.raises(TooManyConnections):
        first.logged_in("alice")
    assert first.user == "bob"
    first.left()
    line.come("3").logged_in("bob")


def test_an_address_with_many_leaves_the_others_their_turn() -> None:
    line = Line(unauthenticated=10, unauthenticated_per_address=2)
    all_accepted = [line.come(f"a{number}", "a") for number in range(5)]
    line.come("b", "b")
    assert line.begun == ["a0", "a1", "b"]
    all_accepted[0].left()
    assert line.begun == ["a0", "a1", "b", "a2"]


def test_addresses_take_turns() -> None:
    line = Line(unauthenticated=1)
    names = [("a0", "a"), ("a1", "a"), ("a2", "a"), ("b", "b")]
    all_accepted = {"first": line.come("first", "c")} | {name: line.come(name, host) for name, host in names}
    for _ in range(4):
        all_accepted[line.begun[-1]].left()
    assert line.begun == ["first", "a0", "b", "a1", "a2"]


def test_one_that_waits_may_go() -> None:
    line = Line(unauthenticated=1)
    first, second = line.come("1"), line.come("2")
    line.come("3")
    second.left()
    first.left()
    assert (line.begun, line.admission.waiting) == (["1", "3"], 0)


@pytest.mark.parametrize("limit", ["connections", "connections_per_address"])
def test_too_many_are_refused(limit: str) -> None:
    line = Line(**{limit: 2})
    accepted = line.come("1")
    line.come("2")
    with pytest.raises(TooManyConnections, match=f"limits.{limit}"):
        line.come("3")
    assert line.admission.refused[limit] == 1
    accepted.left()
    line.come("4")
    assert line.admission.open == 2


def test_others_may_come_where_one_address_has_its_number() -> None:
    line = Line(connections_per_address=1)
    line.come("1", "a")
    line.come("2", "b")
    assert line.begun == ["1", "2"]


def test_a_user_has_so_many() -> None:
    line = Line(connections_per_user=1)
    line.come("1").logged_in("alice")
    line.come("2").logged_in("bob")
    third = line.come("3")
    with pytest.raises(TooManyConnections, match="alice"):
        third.logged_in("alice")
    third.left()
    assert line.admission.before_login == 0


def test_without_users_there_is_no_limit_of_them() -> None:
    line = Line(connections_per_user=1)
    line.come("1").logged_in("")
    line.come("2").logged_in("")


def test_a_connection_of_http_may_become_one_of_a_user() -> None:
    line = Line(connections_per_user=1)
    first, second = line.come("1"), line.come("2")
    first.logged_in("")
    assert line.admission.before_login == 1
    first.logged_in("alice")
    assert line.admission.before_login == 1
    second.logged_in("")
    with pytest.raises(TooManyConnections):
        second.logged_in("alice")


def test_what_waits_has_a_limit_and_nothing_is_kept_of_what_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "MOST_WAITING", 2)
    line = Line(unauthenticated=1)
    all_accepted = [line.come(str(number), f"host-{number}") for number in range(3)]
    refused = Accepted(line.admission, "stomp", "a")
    line.admission.enter(refused)
    with pytest.raises(TooManyConnections, match="others to log in"):
        line.admission.agree(refused, lambda: None)
    refused.left()
    for accepted in reversed(all_accepted):
        accepted.left()
    admission = line.admission
    assert (admission._addresses, admission._before_login, admission._users, admission._waiting) == ({}, {}, {}, {})
    assert (admission.open, admission.before_login, admission.waiting) == (0, 0, 0)


def test_a_connection_without_tls_takes_no_turn() -> None:
    line = Line(unauthenticated=1, unauthenticated_per_address=1)
    for _ in range(3):
        line.admission.enter(Accepted(line.admission, "stomp", "a"))
    line.come("1")
    assert (line.begun, line.admission.open, line.admission.before_login) == (["1"], 4, 1)
