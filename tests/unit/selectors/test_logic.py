"""TRUE, FALSE and UNKNOWN (JMS 2.0, section 3.8.1.2)."""

import pytest

from quire.selectors import Selector
from tests.unit.selectors.asking import ask, message_of

TRUTHS = (True, False, None)


@pytest.mark.parametrize(
    ("left", "both"), [(True, (True, False, None)), (False, (False, False, False)), (None, (None, False, None))]
)
def test_and(left: bool | None, both: tuple[bool | None, ...]) -> None:
    assert tuple(ask("a AND b", a=left, b=right) for right in TRUTHS) == both


@pytest.mark.parametrize(
    ("left", "either"), [(True, (True, True, True)), (False, (True, False, None)), (None, (True, None, None))]
)
def test_or(left: bool | None, either: tuple[bool | None, ...]) -> None:
    assert tuple(ask("a OR b", a=left, b=right) for right in TRUTHS) == either


def test_not() -> None:
    assert [ask("NOT a", a=truth) for truth in TRUTHS] == [False, True, None]
    assert [ask("NOT NOT a", a=truth) for truth in TRUTHS] == [True, False, None]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a OR b AND c", "a OR (b AND c)"),
        ("a AND b OR c", "(a AND b) OR c"),
        ("NOT a AND b", "(NOT a) AND b"),
        ("NOT a OR b", "(NOT a) OR b"),
        ("NOT a = b", "NOT (a = b)"),
        ("a AND NOT b", "a AND (NOT b)"),
        ("a = b AND c", "(a = b) AND c"),
        ("a AND b AND c", "a AND (b AND c)"),
    ],
)
def test_not_binds_tighter_than_and_which_binds_tighter_than_or(text: str, same: str) -> None:
    for a in TRUTHS:
        for b in TRUTHS:
            for c in TRUTHS:
                assert ask(text, a=a, b=b, c=c) is ask(same, a=a, b=b, c=c)


def test_brackets_change_the_order() -> None:
    assert ask("(a OR b) AND c", a=True, b=True, c=False) is False
    assert ask("a OR b AND c", a=True, b=True, c=False) is True


def test_conditions_can_be_compared() -> None:
    assert ask("(a > 1) = (b > 1)", a=2, b=3) is True
    assert ask("(a > 1) <> (b > 1)", a=2, b=3) is False
    assert ask("(a > 1) = TRUE", a=2) is True
    assert ask("(a > 1) = TRUE") is None
    assert ask("(a IS NULL) = flag", flag="true") is True


@pytest.mark.parametrize(
    ("text", "outcome"), [("TRUE", True), ("FALSE", False), ("NOT FALSE", True), ("1 = 1.0", True)]
)
def test_a_selector_needs_no_header(text: str, outcome: bool) -> None:
    assert ask(text) is outcome


@pytest.mark.parametrize(
    ("text", "matches"),
    [("a = 'x'", True), ("a = 'y'", False), ("b = 'x'", False), ("NOT b = 'x'", False), ("b = 'x' OR a = 'x'", True)],
)
def test_only_true_matches_a_message(text: str, matches: bool) -> None:
    assert Selector(text).matches(message_of({"a": "x"})) is matches
