"""Headers in a message: what a name stands for, and what is looked at."""

import pytest

from quire.message import Message, header_lines
from quire.selectors import Selector
from tests.unit.selectors.asking import ask_message, evaluate, message_of


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("color = 'red' AND price > 5", True),
        ("color = 'blue' OR price * 2 = 34", True),
        ("urgent", True),
        ("NOT urgent", False),
        ("price BETWEEN 17 AND 17.0", True),
        ("price = '17'", True),
        ("price = '17.0'", False),
        ("price IN ('17')", True),
        ("price LIKE '1_'", True),
        ("color > 5", False),
        ("NOT color > 5", False),
        ("colo = 'red'", False),
        ("olor IS NULL AND color IS NOT NULL", True),
        ("size IS NULL", True),
    ],
)
def test_a_header_is_a_text_that_counts_as_what_it_is_compared_with(text: str, matches: bool) -> None:
    assert ask_message(text, color="red", price="17", urgent="true") is matches


@pytest.mark.parametrize(
    ("text", "header", "value"),
    [
        ("JMSCorrelationID = 'c:1'", "correlation-id", "c:1"),
        ("JMSType = 'order'", "type", "order"),
        ("JMSReplyTo = '/queue/answers'", "reply-to", "/queue/answers"),
        ("JMSTimestamp > 5", "timestamp", "6"),
        ("JMSXGroupID = 'g1' ", "JMSXGroupID", "g1"),
        ("JMSXGroupSeq = 3", "JMSXGroupSeq", "3"),
        ("\"content-type\" = 'text/plain'", "content-type", "text/plain"),
        ("\"correlation-id\" = 'c:1'", "correlation-id", "c:1"),
        ("größe = 'groß'", "größe", "groß"),
    ],
)
def test_headers_of_the_content(text: str, header: str, value: str) -> None:
    assert Selector(text).matches(message_of({header: value})) is True
    assert Selector(text).matches(message_of({header: "-1"})) is False


@pytest.mark.parametrize("name", ["JMSMessageID", '"message-id"'])
def test_the_message_id_is_the_first_header(name: str) -> None:
    assert Selector(f"{name} = 'ID:a-1:7'").matches(message_of({})) is True
    assert Selector(f"{name} = 'ID:a-1:8'").matches(message_of({})) is False


def test_header_fields_of_the_record() -> None:
    message = message_of({"priority": "1", "persistent": "true", "redelivered": "true"}, priority=7, persistent=False)
    message.expiration = 1_700_000_000_500
    for text in ("JMSPriority = 7", "JMSDeliveryMode = 'NON_PERSISTENT'", "JMSExpiration = 1700000000500"):
        assert Selector(text).matches(message) is True
    for text in ("JMSPriority = 1", "JMSPriority = '7'", "JMSDeliveryMode = 'PERSISTENT'", "JMSRedelivered"):
        assert Selector(text).matches(message) is False
    message.redelivered = True
    assert Selector("JMSRedelivered").matches(message) is True
    assert Selector("JMSRedelivered = FALSE").matches(message) is False


def test_a_persistent_message_that_never_expires() -> None:
    assert Selector("JMSDeliveryMode = 'PERSISTENT' AND JMSExpiration = 0").matches(message_of({})) is True


@pytest.mark.parametrize("value", ["a:b", "two\nlines", "carriage\rreturn", "back\\slash", "\\n", "\\\\c", ":", ""])
def test_values_are_unescaped(value: str) -> None:
    assert Selector(f"h = '{value}'").matches(message_of({"h": value, "later": "x"})) is True
    assert Selector(f"h LIKE '{value}%'").matches(message_of({"h": value, "later": "x"})) is True


@pytest.mark.parametrize("name", ["a:b", "a\\b", "a.b", "a+b", "(a", "[a]", "a\nb", "a b", "ü-ü"])
def test_names_are_escaped(name: str) -> None:
    assert Selector(f"\"{name}\" = 'x'").matches(message_of({name: "x"})) is True
    assert Selector(f"\"{name}\" = 'x'").matches(message_of({"a": "x", "b": "x"})) is False


def test_a_name_is_not_found_within_another_one() -> None:
    assert Selector("a IS NULL").matches(message_of({"aa": "1", "a-a": "2", "x": "a:3", "y": "\na:4"})) is True


def test_the_first_of_a_repeated_header_counts() -> None:
    message = Message(1, b"message-id:m\ntimestamp:1\ncolor:red\ncolor:blue\nmessage-id:n\n\n")
    assert Selector("color = 'red' AND JMSMessageID = 'm'").matches(message) is True


@pytest.mark.parametrize("body", [b"color:red\n\n", b"\ncolor:red\n", b"\n\ncolor:red\n\n", b"", b"\n"])
def test_the_body_is_never_looked_at(body: bytes) -> None:
    assert Selector("color IS NULL").matches(message_of({"x": "1"}, body)) is True
    assert Selector("x = 1").matches(message_of({"x": "1"}, body)) is True


def test_what_is_no_utf_8_is_read_as_in_the_other_headers() -> None:
    message = Message(1, b"message-id:m\ntimestamp:1\nh:a\xffb\n\n")
    assert Selector("h = 'a\ufffdb'").matches(message) is True


def test_a_name_that_no_message_can_have_is_null() -> None:
    assert Selector('"\ud800" IS NULL').matches(message_of({})) is True


def test_typed_headers_and_those_of_a_message_are_asked_of_one_selector() -> None:
    text = "price > 5"
    assert evaluate(text, {"price": 17}.get) is True
    assert Selector(text).matches(message_of({"price": "17"})) is True
    assert evaluate(text, {"price": 3.5}.get) is False
    assert evaluate(text, lambda name: None) is None


def test_a_thousand_headers_do_no_harm() -> None:
    headers = {f"h{number}": str(number) for number in range(1000)}
    message = Message(1, header_lines({"message-id": "m", "timestamp": "1"} | headers) + b"\n")
    assert Selector("h999 = 999 AND missing IS NULL").matches(message) is True
