"""The search in selectors is run for a moment, and is shown to find something."""

import pytest

from quire.message import Message
from tests.fuzz import selectors
from tests.fuzz.selectors import check, search

LONG = Message(1, b"message-id:1\ntimestamp:1\na:" + b"a" * 10_000 + b"\n\n", 0, 4, True)
MANY = " OR ".join(["a LIKE '%" + "_" * 480 + "b%'"] * 18)


@pytest.mark.slow
def test_some_hundred_selectors_find_nothing() -> None:
    search(500, is_random=False)


def test_patterns_that_cost_too_much_are_refused() -> None:
    assert not check(MANY, LONG)


def test_a_selector_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "SLOWEST", 0.0)
    with pytest.raises(AssertionError, match=" s for "):
        check("a LIKE '%b%'", LONG)
