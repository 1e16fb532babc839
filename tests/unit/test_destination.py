"""Names of destinations: what is one, what is none, and why; and what clients write around them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.destination import (
    MAX_NAME,
    Destination,
    DestinationKind,
    queue,
    split_options,
    split_prefix,
    topic,
    written,
)
from quire.errors import InvalidDestination


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "ORDERS.eu.new",
        "a/b",
        "with space",
        "Bestellungen für Köln",
        "注文",
        "x" * MAX_NAME,
        "a*.>b",
        ".a..b.",
    ],
)
def test_a_destination_has_a_kind_and_a_name(name: str) -> None:
    assert queue(name) == Destination(DestinationKind.QUEUE, name)
    assert topic(name) == Destination(DestinationKind.TOPIC, name)
    assert (str(queue(name)), str(topic(name))) == (f"queue://{name}", f"topic://{name}")


@pytest.mark.parametrize(
    "name",
    [
        "", "x" * (MAX_NAME + 1), "ü" * (MAX_NAME // 2 + 1), "a\0b", "line\nfeed", "\x7f", "half \ud800 a character",
        "a,b", "a?b=c", "*", ">", "a.*", "*.a", "a.*.b", "a.>", "a.>.b",
    ],
)  # fmt: skip
def test_a_name_that_is_none_is_refused_with_what_to_write_instead(name: str) -> None:
    with pytest.raises(InvalidDestination, match="is not a name for a topic"):
        topic(name)
    with pytest.raises(InvalidDestination, match="is not a name for a queue: 1 to 500 bytes without") as refused:
        queue(name)
    assert refused.value.data == {"name": name[:60]}
    assert len(str(refused.value)) < 400


def test_case_counts() -> None:
    assert queue("orders") != queue("Orders")


@given(st.text(max_size=600))
def test_any_text_is_a_name_that_fits_a_key_or_is_refused(name: str) -> None:
    try:
        made = queue(name)
    except InvalidDestination:
        return
    assert made.name == name
    assert 0 < len(name.encode()) <= MAX_NAME


def test_equal_destinations_are_one_key_and_cannot_be_changed() -> None:
    assert len({queue("a"), queue("a"), queue("b")}) == 2
    with pytest.raises(AttributeError):
        queue("a").name = "b"  # type: ignore[misc]


def test_a_prefix_says_the_kind() -> None:
    assert split_prefix("queue://a.b") == (DestinationKind.QUEUE, "a.b")
    assert split_prefix("topic://a") == (DestinationKind.TOPIC, "a")
    assert split_prefix("a/b:c") == (None, "a/b:c")


@pytest.mark.parametrize("text", ["http://a", "://a", "Queue://a", "streams://a", " queue://a"])
def test_any_other_prefix_is_refused(text: str) -> None:
    with pytest.raises(InvalidDestination, match="write queue://NAME, topic://NAME or stream://NAME"):
        split_prefix(text)


def test_options_follow_a_question_mark() -> None:
    assert split_options("orders") == ("orders", {})
    assert split_options("orders?consumer.prefetchSize=10&consumer.exclusive=true") == (
        "orders",
        {"consumer.prefetchSize": "10", "consumer.exclusive": "true"},
    )


def test_options_are_decoded_and_may_have_equals_and_question_marks() -> None:
    assert split_options("a?s=x=1+OR+y%3D%27%26%27&t=?&u=") == ("a", {"s": "x=1 OR y='&'", "t": "?", "u": ""})


@pytest.mark.parametrize(
    "text", ["a?", "?x=1", "a?x", "a?=1", "a?x=1&", "a?x=1&x=2", "a?x=1&&y=2", "a?x=%FF", "a?%ff=x"]
)
def test_malformed_options_are_refused(text: str) -> None:
    with pytest.raises(InvalidDestination) as refused:
        split_options(text)
    assert refused.value.data == {"name": text}


@given(st.text("ab.,?&=%>*: /", max_size=20))
def test_any_text_has_options_that_can_be_told_apart_or_is_refused(text: str) -> None:
    try:
        name, options = split_options(text)
    except InvalidDestination:
        return
    assert "?" not in name
    assert (name == text) == (not options)


# As people write them.


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("orders", "queue://orders"), ("queue://orders", "queue://orders"), ("/queue/a/b", "queue://a/b"),
        ("topic://prices", "topic://prices"), ("/topic/prices", "topic://prices"), ("queue:///x", "queue:///x"),
    ],
)  # fmt: skip
def test_destination_may_be_written_in_several_ways(text: str, destination: str) -> None:
    assert str(written(text)) == destination


def test_plain_name_is_of_the_kind_that_is_meant() -> None:
    assert str(written("prices", DestinationKind.TOPIC)) == "topic://prices"
    assert str(written("queue://prices", DestinationKind.TOPIC)) == "queue://prices"


@pytest.mark.parametrize("text", ["", "/temp-queue/x", "/x", "streams://x", "a,b", "a?b=c", "/topic/", "orders.*"])
def test_what_is_no_single_destination_is_refused(text: str) -> None:
    with pytest.raises(InvalidDestination):
        written(text)
