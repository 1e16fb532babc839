"""Any history of the duplicate check, against an exact model that forgets nothing."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.client.message_audit import MessageAudit, Verdict

WINDOW = 6
SEQUENCES = st.integers(0, 20) | st.integers(0, 1 << 62) | st.integers((1 << 62) - 10, 1 << 62)
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("pqr"), SEQUENCES), max_size=25)

Id = tuple[str, str, int]


@pytest.mark.slow
@given(STEPS, st.integers(1, 3), st.integers(1, 3))
def test_new_and_duplicate_are_never_wrong(steps: list[Id], producers: int, destinations: int) -> None:
    audit = MessageAudit(WINDOW, producers, destinations)
    received: set[Id] = set()
    for message in steps:
        had = audit.has(*message)
        verdict = audit.record(*message)
        assert had == (verdict is Verdict.DUPLICATE)
        assert verdict is not Verdict.NEW or message not in received
        assert verdict is not Verdict.DUPLICATE or message in received
        received.add(message)


@given(STEPS)
def test_inside_the_window_of_a_producer_that_is_remembered_everything_is_known(steps: list[Id]) -> None:
    audit = MessageAudit(WINDOW)
    received: set[Id] = set()
    tops: dict[tuple[str, str], int] = {}
    for message in steps:
        destination, producer, sequence = message
        top = tops[destination, producer] = max(tops.get((destination, producer), 0), sequence, WINDOW - 1)
        known = Verdict.DUPLICATE if message in received else Verdict.NEW
        assert audit.record(*message) is (known if sequence > top - WINDOW else Verdict.UNKNOWN)
        received.add(message)


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=25), st.integers(1, 3))
def test_the_producers_heard_last_are_remembered(heard: list[str], most: int) -> None:
    audit = MessageAudit(producers=most)
    recent: deque[str] = deque()
    for producer in heard:
        verdict = audit.record("q", producer, 1)
        assert (verdict is Verdict.DUPLICATE) == (producer in recent)
        if producer in recent:
            recent.remove(producer)
        recent.append(producer)
        if len(recent) > most:
            recent.popleft()
