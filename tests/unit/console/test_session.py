"""Sessions end: by logging out, by idling, and when there are too many."""

import pytest

from quire.clock import ManualClock
from quire.console import session as session_module
from quire.console.session import IDLE_LIMIT, Session, Sessions


def sessions() -> tuple[Sessions, ManualClock, list[Session]]:
    clock, ended = ManualClock(), list[Session]()
    return Sessions(clock, ended.append), clock, ended


def test_a_session_is_found_by_its_secret_only() -> None:
    known, _, _ = sessions()
    session = known.new()
    assert known.find(session.id) is session
    assert known.find("x") is known.find(None) is known.find("") is None
    assert len(session.id) > 40


def test_a_session_that_is_used_stays_and_one_that_is_not_ends() -> None:
    known, clock, ended = sessions()
    used, idle = known.new(), known.new()
    clock.advance(IDLE_LIMIT - 1)
    known.find(used.id)
    clock.advance(2)
    assert known.find(idle.id) is None
    assert ended == [idle]
    assert known.find(used.id) is used


def test_the_one_that_was_not_used_for_the_longest_time_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_SESSIONS", 2)
    known, clock, ended = sessions()
    first, second = known.new(), known.new()
    clock.advance(1)
    known.find(first.id)
    third = known.new()
    assert ended == [second]
    assert known.find(first.id)
    assert known.find(third.id)


def test_a_session_ends_once() -> None:
    known, _, ended = sessions()
    session = known.new()
    known.end(session)
    known.end(session)
    assert ended == [session]
