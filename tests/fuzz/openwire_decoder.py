"""Fuzz the OpenWire decoder: ``python -m tests.fuzz.openwire_decoder --seconds 60``; exits 1 on a finding.

The search is guided by coverage if atheris is installed, else driven by Hypothesis. ``check`` is what must hold for any
bytes; ``structures`` makes any structure of any version, and the property tests use it too.
"""

import contextlib
import itertools
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quire.errors import QuireError
from quire.protocols.openwire.codec import BATCH, Decoder, Encoder
from quire.protocols.openwire.commands import (
    TYPES,
    VERSIONS,
    ActiveMQBytesMessage,
    ActiveMQTextMessage,
    BaseCommand,
    Command,
    Kind,
    StackElement,
    Structure,
    Throwable,
    WireField,
    WireFormatInfo,
    inflate,
    read_text,
    type_ids,
    wire_fields,
    write_text,
)
from quire.protocols.openwire.negotiation import WireFormat, format_of
from quire.protocols.openwire.primitives import read_map, read_values, write_map, write_values
from tests.fuzz.fuzzing import Guided, main

EXAMPLES_A_SECOND = 200
LIMIT = 1400

COMMANDS = [kind for kind in TYPES.values() if issubclass(kind, BaseCommand | WireFormatInfo)]
NUMBERS = {
    Kind.BOOLEAN: (False, True),
    Kind.BYTE: (0, -1, 127, -128),
    Kind.INT: (0, 1, -1, 2**31 - 1, -(2**31)),
    Kind.LONG: (0, 1, -1, -2, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**63 - 1, -(2**63)),
}
# A lone surrogate does not come back, since it becomes U+FFFD; so there is none.
TEXTS = ("", "a", "ID:host-1:1", "\0", "\u00e9", "\u20ac", "\U0001f600", "a\0\u07ff\u0800\uffff\U0010ffff", "x" * 100)


def structure_of(kind: type[Structure], version: int, random: Random, stack_traces: bool = True, depth: int = 2) -> Any:
    """A structure of a class, with random values. What the version lacks has its default."""
    fields = [field for field in wire_fields(kind) if field.is_in(version)]
    return kind(**{field.name: value_of(field, version, random, stack_traces, depth) for field in fields})


def value_of(field: WireField, version: int, random: Random, stack_traces: bool, depth: int) -> Any:
    if field.nullable and random.random() < 0.4:
        return None
    match field.kind:
        case Kind.MAGIC:
            return field.default
        case Kind.STRING:
            return random.choice(TEXTS)
        case Kind.TEXT:
            return random.choice([*TEXTS, "\ud800", "a\udc00\ufffd"])
        case Kind.DATA:
            return random.randbytes(random.randrange(8))
        case Kind.THROWABLE:
            return throwable_of(random, stack_traces, depth)
        case Kind.NESTED:
            return nested_of(field, version, random, stack_traces, depth)
        case Kind.ARRAY:
            count = random.randrange(4)
            return [random.choice([None, nested_of(field, version, random, stack_traces, depth)]) for _ in range(count)]
    return random.choice(NUMBERS[field.kind])


def nested_of(field: WireField, version: int, random: Random, stack_traces: bool, depth: int) -> Any:
    """A structure that may be in a field; in the depth an id or a destination, or null where none of them may be."""
    kinds: list[Any] = [TYPES[type_id] for type_id in sorted(type_ids(field.expected, version))]
    if depth <= 0:
        kinds = [kind for kind in kinds if kind.__hash__ is not None]
    return structure_of(random.choice(kinds), version, random, stack_traces, depth - 1) if kinds else None


def throwable_of(random: Random, stack_traces: bool, depth: int) -> Throwable:
    """An exception; with a stack and a cause only where those are sent."""

    def text() -> str | None:
        return random.choice([None, *TEXTS])

    if not stack_traces:
        return Throwable(text(), text())
    lines = range(random.randrange(3))
    stack = tuple(StackElement(text(), text(), text(), random.choice(NUMBERS[Kind.INT])) for _ in lines)
    return Throwable(text(), text(), stack, throwable_of(random, stack_traces, depth - 1) if depth > 0 else None)


@st.composite
def formats(draw: st.DrawFn) -> WireFormat:
    return WireFormat(
        version=draw(st.sampled_from(VERSIONS)),
        stack_traces=draw(st.booleans()),
    )


@st.composite
def commands(draw: st.DrawFn, format: WireFormat) -> Any:
    kind = draw(st.sampled_from([kind for kind in COMMANDS if format.version >= kind.SINCE]))
    random = Random(draw(st.integers(0, 2**32)))
    return structure_of(kind, format.version, random, format.stack_traces)


def encoded(format: WireFormat, sent: list[Any]) -> bytes:
    encoder = Encoder()
    encoder.use(format)
    return b"".join(map(encoder.encode, sent))


def decode(decoder: Decoder, data: bytes) -> list[Command]:
    decoder.receive(data)
    found: list[Command] = []
    with contextlib.suppress(QuireError):
        while more := decoder.next_commands():
            assert len(more) <= BATCH
            assert not any(isinstance(command, WireFormatInfo) for command in more[:-1]), "decoded behind an info"
            found += more
    return found


def fault_of(decoder: Decoder) -> QuireError | None:
    """What was wrong with the input of a decoder that has nothing left to decode; None if nothing was."""
    try:
        assert decoder.next_commands() == []
    except QuireError as fault:
        return fault
    return None


def check(stream: bytes, sizes: list[int], format: WireFormat) -> None:
    whole, pieces = Decoder(LIMIT), Decoder(LIMIT)
    whole.use(format)
    pieces.use(format)
    expected = decode(whole, stream)
    found: list[Command] = []
    position = 0
    for size in itertools.cycle(sizes or [1]):
        if position >= len(stream):
            break
        found += decode(pieces, stream[position : position + max(size, 1)])
        position += max(size, 1)
        assert pieces.buffered <= LIMIT + 4, "more is kept than the limit allows"
    assert found == expected, "the commands depend on how the stream is cut"
    faults = fault_of(whole), fault_of(pieces)
    assert type(faults[0]) is type(faults[1]), "the fault depends on how the stream is cut"
    if faults[1] is None:
        assert whole.buffered == pieces.buffered, "what is kept depends on how the stream is cut"
    else:
        assert not pieces.buffered, "something is kept after a fault"
        assert not decode(pieces, encoded(format, [])), "something is decoded after a fault"
    again = Decoder(100 * LIMIT)
    again.use(format)
    assert decode(again, encoded(format, expected)) == expected, "a command changes on the way"
    for command in expected:
        if isinstance(command, WireFormatInfo):
            with contextlib.suppress(QuireError):
                format_of(command)


def check_values(data: bytes) -> None:
    """Hold the readers of bodies and properties to it that nothing but a typed error comes out."""
    for read, write in ((read_map, write_map), (read_values, write_values)):
        with contextlib.suppress(QuireError):
            once = write(read(data, typed=True))  # type: ignore[arg-type]
            assert write(read(once, typed=True)) == once, "a value changes on the way"  # type: ignore[arg-type]
            read(data)
    for kind in (ActiveMQBytesMessage, ActiveMQTextMessage):
        with contextlib.suppress(QuireError):
            assert len(inflate(kind, data, LIMIT)) <= LIMIT
    with contextlib.suppress(QuireError):
        text = read_text(data)
        assert read_text(write_text(text)) == text


def check_bytes(data: bytes) -> None:
    choice, version, *sizes = data[:5].ljust(2, b"\0")
    format = WireFormat(
        version=VERSIONS[version % len(VERSIONS)],
        stack_traces=bool(choice & 8),
    )
    check(data[5:], [size % 64 for size in sizes], format)
    check_values(data[5:])


@st.composite
def broken(draw: st.DrawFn) -> tuple[bytes, WireFormat]:
    """A stream of frames in which some octets are others, and its format."""
    format = draw(formats())
    stream = bytearray(encoded(format, draw(st.lists(commands(format), max_size=3))))
    for _ in range(draw(st.integers(0, 3))):
        if stream:
            place = draw(st.integers(0, len(stream) - 1))
            stream[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(stream), format


@given(broken(), st.lists(st.integers(1, 40), max_size=4), st.binary(max_size=60))
def search(case: tuple[bytes, WireFormat], sizes: list[int], data: bytes) -> None:
    stream, format = case
    check(stream, sizes, format)
    check_values(stream)
    check_bytes(data)


if __name__ == "__main__":
    corpus = [bytes([0, 11, 5, 1, 40]) + encoded(WireFormat(), [kind()]) for kind in COMMANDS]
    main(search, EXAMPLES_A_SECOND, Guided(check_bytes, [Decoder], corpus))
