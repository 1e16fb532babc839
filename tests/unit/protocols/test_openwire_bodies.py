"""Texts, maps of primitives, and compressed bodies."""

import tracemalloc
import zlib

import pytest

from quire.errors import InvalidArgument, LimitExceeded, ProtocolViolation
from quire.protocols.openwire import primitives as primitives_module
from quire.protocols.openwire.commands import (
    ActiveMQBytesMessage,
    ActiveMQMapMessage,
    ActiveMQObjectMessage,
    ActiveMQStreamMessage,
    ActiveMQTextMessage,
    Message,
    deflate,
    inflate,
    read_text,
    write_text,
)
from quire.protocols.openwire.primitives import Tag, Typed, read_map, read_values, write_map, write_values

TEXTS = [
    ("", ""),
    ("a", "61"),
    ("\0", "c080"),
    ("\u00e9", "c3a9"),
    ("\u20ac", "e282ac"),
    ("\U0001f600", "eda0bdedb880"),
    ("\U00010000", "eda080edb080"),
    ("a\0\u00e9\U0001f600b", "61c080c3a9eda0bdedb88062"),
]


@pytest.mark.parametrize(("text", "octets"), TEXTS)
def test_text_is_as_java_writes_it(text: str, octets: str) -> None:
    assert primitives_module.encode(text).hex() == octets
    assert primitives_module.decode(bytes.fromhex(octets)) == text


@pytest.mark.parametrize(
    ("octets", "text"), [("eda0bd", "\ufffd"), ("61edb88062", "a\ufffdb"), ("f09f9880", "\U0001f600"), ("00", "\0")]
)
def test_text_that_java_does_not_write_is_taken(octets: str, text: str) -> None:
    assert primitives_module.decode(bytes.fromhex(octets)) == text


@pytest.mark.parametrize(
    ("octets", "text", "halves"),
    [
        ("eda0bd", "\ud83d", "d83d"), ("61edb88062", "a\ude00b", "de00"), ("edb880eda0bd", "\ude00\ud83d", "de00d83d"),
        ("efbfbdeda080", "\ufffd\ud800", "fffdd800"), ("eda0bdedb880", "\U0001f600", ""), ("efbfbd", "\ufffd", ""),
    ],
)  # fmt: skip
def test_half_of_a_pair_is_kept_beside_a_readable_text(octets: str, text: str, halves: str) -> None:
    assert primitives_module.decode(bytes.fromhex(octets), keeps_halves=True) == text
    assert primitives_module.encode(text).hex() == octets
    assert primitives_module.halves(text) == halves
    if halves:
        assert primitives_module.with_halves(primitives_module.readable(text), halves) == text


@pytest.mark.parametrize("units", ["", "d83d", "d83dd83dd83d", "xxxxd83d", "d83d-001", "d83dd8"])
def test_halves_of_another_text_are_ignored(units: str) -> None:
    changed = "\ufffd and \ufffd" if units != "d83dd8" else "\ufffd"
    assert primitives_module.with_halves(changed, units) == changed


@pytest.mark.parametrize("octets", ["ff", "c3", "c1bf", "e282", "80"])
def test_what_is_no_text_is_refused(octets: str) -> None:
    with pytest.raises(ProtocolViolation, match="not in modified UTF-8"):
        primitives_module.decode(bytes.fromhex(octets))


@pytest.mark.parametrize(("text", "octets"), TEXTS)
def test_the_body_of_a_text_message_is_a_size_and_text(text: str, octets: str) -> None:
    content = write_text(text)
    assert content == len(bytes.fromhex(octets)).to_bytes(4) + bytes.fromhex(octets)
    assert read_text(content) == text


def test_a_text_may_be_null() -> None:
    assert write_text(None) is None
    assert read_text(None) is None
    assert read_text(b"\xff\xff\xff\xff") is None


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"\0\0\0\2a", b"\xff\xff\xff\xfe", b"\x7f\xff\xff\xffa"])
def test_a_text_that_ends_too_soon_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        read_text(content)


def test_plain_values_have_the_types_that_fit() -> None:
    plain: dict[str, object] = {
        "null": None,
        "boolean": True,
        "int": -(2**31),
        "long": 2**31,
        "double": 1.5,
        "string": "\u20ac",
        "bytes": b"\0\1",
        "map": {"a": {"b": []}},
        "list": [1, "a", [None]],
    }
    octets = write_map(plain)
    assert read_map(octets) == plain
    tags = [value.tag for value in read_map(octets, typed=True).values()]
    assert tags == [Tag.NULL, Tag.BOOLEAN, Tag.INT, Tag.LONG, Tag.DOUBLE, Tag.STRING, Tag.BYTES, Tag.MAP, Tag.LIST]


def test_typed_values_keep_their_types() -> None:
    typed = {
        "byte": Typed(Tag.BYTE, -128),
        "char": Typed(Tag.CHAR, "\u20ac"),
        "short": Typed(Tag.SHORT, 32767),
        "long": Typed(Tag.LONG, 1),
        "float": Typed(Tag.FLOAT, 0.5),
        "big": Typed(Tag.BIG_STRING, "a"),
        "null": Typed(Tag.BIG_STRING, None),
        "map": Typed(Tag.MAP, {"a": Typed(Tag.LIST, [Typed(Tag.BYTE, 1)])}),
    }
    octets = write_map(typed)
    assert read_map(octets, typed=True) == typed
    assert read_map(octets)["map"] == {"a": [1]}


def test_a_map_has_the_octets_of_java() -> None:
    octets = write_map({"a": 1, "b": True, "c": "x"})
    assert octets == bytes.fromhex("00000003 0001 61 05 00000001 0001 62 01 01 0001 63 09 0001 78")


@pytest.mark.parametrize(("text", "tag"), [("x" * 8190, 9), ("x" * 8191, 13), ("\U0001f600" * 4096, 13)])
def test_a_long_string_is_a_big_one(text: str, tag: int) -> None:
    assert write_values([text])[0] == tag
    assert read_values(write_values([text])) == [text]


def test_a_null_map_is_empty() -> None:
    assert read_map(b"\xff\xff\xff\xff") == {}


def test_the_values_of_a_stream_message_follow_each_other() -> None:
    values = [True, None, "a", b"b", 2**40, Typed(Tag.SHORT, 3)]
    assert read_values(write_values(values)) == [True, None, "a", b"b", 2**40, 3]
    assert read_values(b"") == []


@pytest.mark.parametrize(
    "value",
    [object(), Typed(Tag.BYTE, 128), Typed(Tag.CHAR, "\U0001f600"), Typed(77, 1), 2**63, Typed(Tag.MAP, 3), {1: 2}],
)
def test_what_is_no_primitive_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument):
        write_values([value])


def test_a_map_that_holds_itself_is_refused() -> None:
    endless: dict[str, object] = {}
    endless["a"] = endless
    with pytest.raises(InvalidArgument, match="nested deeper than 64"):
        write_map(endless)


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        ("", "ends too soon"),
        ("00000001 0001 61", "ends too soon"),
        ("00000001 0001 61 05 0000", "ends too soon"),
        ("00000001 0001 61 0e", "14 is the tag of no primitive"),
        ("00000001 0001 61 0a ffffffff", "a value of -1 octets"),
        ("00000001 0001 61 09 0005 61", "a value of 5 octets"),
        ("7fffffff", "entries do not fit"),
        ("00000001 0001 61 0c 7fffffff", "entries do not fit"),
    ],
)
def test_a_map_that_is_wrong_is_refused(octets: str, text: str) -> None:
    with pytest.raises(ProtocolViolation, match=text):
        read_map(bytes.fromhex(octets))


def test_maps_are_limited() -> None:
    nested = b"".join([b"\0\0\0\1\0\1a\x0b" for _ in range(70)]) + b"\0\0\0\0"
    with pytest.raises(LimitExceeded, match="nested too deeply"):
        read_map(nested)
    with pytest.raises(LimitExceeded, match="nested too deeply"):
        read_values(b"\x0c\0\0\0\1" * 70 + b"\0")
    with pytest.raises(LimitExceeded, match="3 entries, the limit is 2"):
        read_map(write_map({"a": 1, "b": 2, "c": 3}), max_entries=2)
    with pytest.raises(LimitExceeded, match="4 octets, the limit is 3"):
        read_map(write_map({"a": "bbbb"}), max_size=3)


KINDS = [ActiveMQBytesMessage, ActiveMQTextMessage, ActiveMQMapMessage, ActiveMQStreamMessage, ActiveMQObjectMessage]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b"", b"a", b"abc" * 10_000])
def test_a_body_is_compressed(kind: type[Message], body: bytes) -> None:
    assert inflate(kind, deflate(kind, body), len(body)) == body


def test_a_compressed_bytes_message_has_its_size_in_front() -> None:
    compressed = deflate(ActiveMQBytesMessage, b"abc")
    assert compressed[:4] == b"\0\0\0\3"
    assert zlib.decompress(compressed[4:]) == b"abc" == zlib.decompress(deflate(ActiveMQTextMessage, b"abc"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_not_inflated(kind: type[Message]) -> None:
    bomb = deflate(kind, bytes(10_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded, match="more than 1000 octets"):
            inflate(kind, bomb, 1000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_compressed_is_refused(kind: type[Message]) -> None:
    whole = deflate(kind, b"abc" * 100)
    for content in (b"", b"\0\0\0\3abc", whole[:-3], b"\0\0\0\1" + zlib.compress(b"ab")):
        with pytest.raises(ProtocolViolation):
            inflate(kind, content, 1000)
