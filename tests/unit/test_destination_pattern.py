"""Patterns: what they match, and which of two is more specific."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.destination import MAX_NAME
from quire.destination_pattern import Pattern
from quire.errors import InvalidDestination

NAMES = st.lists(st.sampled_from(["", "a", "b", "ab"]), min_size=1, max_size=4).map(".".join)
PATTERNS = st.builds(
    lambda parts, rest: ".".join([*parts, *rest]),
    st.lists(st.sampled_from(["*", "a", "b", "ab"]), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
) | st.just(">")


def matches(pattern: list[str], name: list[str]) -> bool:
    """The rules again, in their plainest form."""
    if pattern == [">"]:
        return True
    if not pattern or not name:
        return pattern == name
    return pattern[0] in ("*", name[0]) and matches(pattern[1:], name[1:])


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("orders", ["orders"], ["orders.new", "Orders", "order", "ordersx"]),
        ("orders.*", ["orders.new", "orders."], ["orders", "orders.new.eu", "ordersXnew"]),
        ("orders.>", ["orders", "orders.new", "orders.new.eu"], ["ordersx", "x.orders", "orders2.new"]),
        ("*.new", ["orders.new", "invoices.new"], ["new", "orders.old", "a.orders.new"]),
        ("*.>", ["orders", "orders.new"], []),
        ("orders.*.>", ["orders.new", "orders.new.eu"], ["orders"]),
        (">", ["orders", "orders.new", "a.b.c.d"], []),
        ("a*.b>", ["a*.b>"], ["ax.b", "ax.by", "a*.b"]),
        ("a+.(b|c)", ["a+.(b|c)"], ["aa.b"]),
    ],
)
def test_a_pattern_matches_names(pattern: str, matched: list[str], others: list[str]) -> None:
    assert [name for name in matched if not Pattern(pattern).matches(name)] == []
    assert [name for name in others if Pattern(pattern).matches(name)] == []


@given(PATTERNS, NAMES)
def test_matching_is_what_the_rules_say(pattern: str, name: str) -> None:
    assert Pattern(pattern).matches(name) == matches(pattern.split("."), name.split("."))


@pytest.mark.parametrize("text", ["*", ">", "a.*", "a.>", "*.a"])
def test_a_wildcard_is_a_whole_part(text: str) -> None:
    assert Pattern(text).is_wildcard
    assert not Pattern("a*.>b.c").is_wildcard


@pytest.mark.parametrize("text", ["", "a.>.b", ">.a", ">.>.a", "a.>.>.b", "a,b", "a?b", "a\nb", "x" * (MAX_NAME + 1)])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidDestination, match="is not a pattern") as refused:
        Pattern(text)
    assert refused.value.data == {"name": text[:60]}


@pytest.mark.parametrize(("text", "same"), [(">.>", ">"), ("a.>.>", "a.>"), ("a.*.>.>", "a.*.>"), ("*.>.>.>", "*.>")])
def test_the_rest_of_the_rest_is_the_rest(text: str, same: str) -> None:
    pattern = Pattern(text)
    assert (pattern, pattern.text, pattern.specificity) == (Pattern(same), same, Pattern(same).specificity)
    assert pattern.is_wildcard
    for name in ("a", "a.b", "a.b.c", "b", "b.c"):
        assert pattern.matches(name) is Pattern(same).matches(name)


def test_the_most_specific_pattern_comes_first() -> None:
    ordered = ["a", "a.b", "a.b.c", "a.b.*", "a.b.>", "a.*", "a.*.c", "a.>", "*", "*.b", "*.>", ">"]
    assert sorted(reversed(ordered), key=lambda text: Pattern(text).specificity) == ordered


@given(PATTERNS, PATTERNS, NAMES)
def test_of_two_patterns_that_match_a_name_the_wildcards_decide(one: str, other: str, name: str) -> None:
    if one != other and Pattern(one).matches(name) and Pattern(other).matches(name):
        assert Pattern(one).specificity[0] != Pattern(other).specificity[0]


def test_equal_patterns_are_one_key_and_cannot_be_changed() -> None:
    assert len({Pattern("a.*"), Pattern("a.*"), Pattern("a.>")}) == 2
    with pytest.raises(AttributeError):
        Pattern("a").text = "b"  # type: ignore[misc]
