"""Headers in a message: what a name stands for, and what is looked at."""

import pytest

from quire.message import Message, header_lines
from quire.protocols.openwire.primitives import Tag, Typed
from quire.selectors import Selector
from quire.selectors.values import Value
from tests.unit.selectors.asking import ask_message, evaluate, jms_message_of, message_of


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
    message = message_of({"priority": "1", "persistent": "false", "redelivered": "true"}, priority=7, persistent=False)
    message.expiration = 1_700_000_000_500
    for text in ("JMSPriority = 7", "JMSDeliveryMode = 'NON_PERSISTENT'", "JMSExpiration = 1700000000500"):
        assert Selector(text).matches(message) is True
    for text in ("JMSPriority = 1", "JMSPriority = '7'", "JMSDeliveryMode = 'PERSISTENT'", "JMSRedelivered"):
        assert Selector(text).matches(message) is False
    message.redelivered = True
    assert Selector("JMSRedelivered").matches(message) is True
    assert Selector("JMSRedelivered = FALSE").matches(message) is False


def test_a_message_that_is_not_stored_may_have_been_sent_as_persistent() -> None:
    message = message_of({"a": "b", "persistent": "true"}, persistent=False)
    assert Selector("JMSDeliveryMode = 'PERSISTENT'").matches(message) is True


def test_a_property_and_a_body_are_no_delivery_mode() -> None:
    property = jms_message_of({"persistent": "true"})
    property.persistent = False
    body = message_of({}, b"\npersistent:true\n\n", persistent=False)
    for message in (property, body):
        assert Selector("JMSDeliveryMode = 'NON_PERSISTENT'").matches(message) is True


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


# Messages of JMS clients, whose properties have types.

PROPERTIES: dict[str, Value | Typed] = {
    "text": "2", "said": "true", "whole": 7, "double": 3.5, "yes": True, "no": False, "color": "red",
    "byte": Typed(Tag.BYTE, 8), "short": Typed(Tag.SHORT, -9), "long": Typed(Tag.LONG, 2**40),
    "float": Typed(Tag.FLOAT, 0.5), "endless": float("inf"), "none": float("nan"), "char": Typed(Tag.CHAR, "x"),
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "text > 1", "text = 2", "text <> 3", "text BETWEEN 1 AND 3", "text + 1 = 3", "text * 1 > 0", "-text < 0",
        "said = TRUE", "said", "NOT said <> TRUE AND said", "said <> FALSE",
        "whole = '7'", "whole <> '8'", "whole LIKE '7'", "whole LIKE '%'", "whole IN ('7')", "double = '3.5'",
        "yes = 'true'", "yes <> 'false'", "yes IN ('true')", "yes LIKE 't%'", "yes = 1", "no = 0",
        "text = whole", "text < whole", "whole > text", "said = yes", "yes <> said", "text < color",
        "none = 1", "none = none", "long = '1099511627776'", "float > text",
    ],
)  # fmt: skip
def test_types_of_jms_that_are_unlike_never_match(text: str) -> None:
    assert Selector(text).matches(jms_message_of(PROPERTIES)) is False


@pytest.mark.parametrize(
    "text",
    [
        "text = '2'", "text <> '3'", "text LIKE '_'", "text IN ('1', '2')", "text IS NOT NULL", "NOT text > 1",
        "whole = 7", "whole > 6.5", "whole BETWEEN 7 AND 7", "whole + 1 = 8", "double = 3.5", "double > 3", "yes",
        "NOT no", "yes = TRUE", "no <> TRUE", "whole > double", "byte = 8 AND short = -9", "long = 1099511627776",
        "float = 0.5", "endless > 1E308", "none <> none", "char = 'x'", "color = 'red' AND text = '2'",
        "NOT said", "text <> color", "missing IS NULL", "JMSTimestamp = 1700000000000",
    ],
)  # fmt: skip
def test_types_of_jms_that_are_alike_are_compared(text: str) -> None:
    assert Selector(text).matches(jms_message_of(PROPERTIES)) is True


def test_properties_that_are_all_texts_have_types_too() -> None:
    message = jms_message_of({"text": "2", "said": "true"}, {"correlation-id": "7"})
    assert message.header(b"property-types") is None
    for text in ("text > 1", "said", "JMSCorrelationID = 7", "JMSTimestamp LIKE '17%'", "JMSMessageID > 1"):
        assert Selector(text).matches(message) is False
    for text in ("text = '2'", "said = 'true'", "JMSCorrelationID = '7'", "JMSMessageID LIKE 'ID:host%'"):
        assert Selector(text).matches(message) is True


def test_the_sequence_in_a_group_and_the_time_are_numbers() -> None:
    message = jms_message_of({}, {"JMSXGroupID": "1", "JMSXGroupSeq": "3"})
    assert Selector("JMSXGroupSeq = 3 AND JMSTimestamp > 0 AND JMSXGroupID = '1'").matches(message) is True
    assert Selector("JMSXGroupSeq = '3' OR JMSXGroupID = 1").matches(message) is False


def test_the_prefix_of_activemq_converts_texts_of_jms_as_well() -> None:
    message = jms_message_of(PROPERTIES)
    assert Selector("convert_string_expressions:text > 1 AND said AND text + 1 = 3").matches(message) is True
    assert Selector("convert_string_expressions:whole = '7' OR yes LIKE 't%'").matches(message) is False


def test_unusual_names_have_types() -> None:
    message = jms_message_of({"a,b=c": 5, "gr\u00f6\u00dfe": 6, "x:y": 7, "type": 8})
    assert Selector('"a,b=c" = 5 AND gr\u00f6\u00dfe > 5.5 AND "x:y" = 7 AND type = 8').matches(message) is True
    assert Selector("\"a,b=c\" = '5' OR gr\u00f6\u00dfe LIKE '6' OR \"x:y\" IN ('7')").matches(message) is False


@pytest.mark.parametrize("line", ["property-types:a=int", "property-types:a=double", "property-types:b=int,a=long"])
@pytest.mark.parametrize("value", ["no number", "", "9" * 5000])
def test_a_property_that_does_not_read_as_its_type_is_a_text(line: str, value: str) -> None:
    message = Message(1, f"message-id:m\ntimestamp:1\n{line}\na:{value}\n\n".encode())
    assert Selector(f"a = '{value}'").matches(message) is not (value[:1] == "9" and "double" in line)


def test_the_header_with_the_types_counts_whoever_writes_it_and_wherever() -> None:
    message = message_of({"a": "5", "b": "6", "property-types": "a=int"})
    assert Selector("a = 5 AND b = '6' AND \"property-types\" = 'a=int'").matches(message) is True
    assert Selector("a = '5' OR b = 6").matches(message) is False


def test_a_body_has_no_types() -> None:
    assert Selector("a = '5' AND a = 5").matches(message_of({"a": "5"}, b"\nproperty-types:a=int\n\n")) is True
