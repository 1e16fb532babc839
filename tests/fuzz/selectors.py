"""Fuzz selectors: ``python -m tests.fuzz.selectors --seconds 60``; exits 1 on a finding.

Any text is a selector or an ``InvalidSelector``. One that is taken can be asked about any message, in a bounded time.
"""

from hypothesis import given
from hypothesis import strategies as st

from quire.clock import SystemClock
from quire.errors import InvalidSelector
from quire.message import Message, header_lines
from quire.selectors import Selector
from tests.fuzz.fuzzing import main

EXAMPLES_A_SECOND = 200

SLOWEST = 1.0
"""The longest that one evaluation may take on a busy machine, in seconds of a processor that others use too."""

WORDS = [
    "a", "b", "JMSPriority", "JMSType", "JMSXGroupSeq", '"a b"', "AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL",
    "LIKE", "ESCAPE", "TRUE", "FALSE", "=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "(", ")", ",", "'", "''",
    "'%'", "'a_%'", "'\\'", "0", "1", "0x10", "010", "1.5", "1e308", "1e309", "9223372036854775807",
    "9223372036854775808", "9" * 60, "0." + "0" * 400 + "1", "0l", "1D", "\0", "\u00fc", "\ud7ff", "\n", "$x", "_",
]  # fmt: skip


def expressions() -> st.SearchStrategy[str]:
    header = st.sampled_from(["a", "b", "JMSPriority", "JMSTimestamp", "JMSType", '"a b"'])
    number = st.integers().map(str) | st.floats(allow_nan=False, allow_infinity=False).map(str)
    pattern = st.text("a%_\\'", max_size=40) | st.sampled_from(["%" + "_" * 480 + "b%", "%" + "a" * 498 + "b"])
    text = pattern.map(lambda value: "'" + value.replace("'", "''") + "'")
    operand = st.recursive(
        header | number,
        lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda part: f"({' '.join(part)})"),
        max_leaves=6,
    )
    condition = st.one_of(
        st.tuples(operand, st.sampled_from(["=", "<>", "<", ">=", "IS"]), operand | text).map(" ".join),
        st.tuples(header, text).map(" LIKE ".join),
        st.tuples(header, text, st.sampled_from(["'\\'", "'%'", "'ab'"])).map(
            lambda part: f"{part[0]} NOT LIKE {part[1]} ESCAPE {part[2]}"
        ),
        st.tuples(header, st.lists(text, max_size=5)).map(lambda part: f"{part[0]} IN ({','.join(part[1])})"),
        st.tuples(operand, operand, operand).map(lambda part: f"{part[0]} BETWEEN {part[1]} AND {part[2]}"),
        header.map(lambda name: f"{name} IS NOT NULL"),
    )
    return st.recursive(
        condition,
        lambda inner: (
            st.tuples(inner, st.sampled_from([" AND ", " OR "]), inner).map(lambda part: f"({''.join(part)})")
            | inner.map(lambda part: f"NOT {part}")
        ),
        max_leaves=30,
    )


def texts() -> st.SearchStrategy[str]:
    """Any text, words in any order, and what mostly is a selector, whole or repeated until it is too long."""
    words = st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=40)
    repeated = st.tuples(expressions(), st.integers(1, 300)).map(lambda part: " OR ".join([part[0]] * part[1]))
    deep = st.tuples(st.integers(0, 200), st.sampled_from(["(", "NOT ", "- ", "NOT("])).map(lambda p: p[1] * p[0] + "a")
    return st.text() | words.map(" ".join) | words.map("".join) | expressions() | repeated | deep


def messages() -> st.SearchStrategy[Message]:
    value = st.text(max_size=20) | st.sampled_from(["a" * 10_000, "9" * 5000, "-1", "1e999", "NaN", "true", "0x1"])
    types = st.sampled_from(["", "a=int", "b=double,a=boolean", "a%20b=long,JMSXGroupSeq=int", "=,,%ff=float,a"])
    headers = st.dictionaries(st.sampled_from(["a", "b", "a b", "type", "priority", "JMSXGroupSeq"]), value)
    headers |= st.tuples(headers, types).map(lambda parts: {"property-types": parts[1]} | parts[0])
    return headers.map(
        lambda lines: Message(1, b"message-id:ID:1\ntimestamp:1\n" + header_lines(lines) + b"\n", 0, 4, True)
    )


def check(text: str, message: Message) -> bool:
    try:
        selector = Selector(text)
    except InvalidSelector:
        return False
    clock = SystemClock()
    began = clock.monotonic()
    found = selector.matches(message)
    took = clock.monotonic() - began
    assert isinstance(found, bool)
    assert took < SLOWEST, f"{took:.1f} s for {text[:100]!r}"
    return True


@given(texts(), messages())
def search(text: str, message: Message) -> None:
    check(text, message)


if __name__ == "__main__":
    main(search, EXAMPLES_A_SECOND)
