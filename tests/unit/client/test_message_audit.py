"""The consumer's duplicate check: what it knows, what it forgets, and that it never claims more than it knows."""

import pytest

from quire.client.message_audit import MessageAudit, Verdict
from quire.errors import InvalidArgument

NEW, DUPLICATE, UNKNOWN = Verdict.NEW, Verdict.DUPLICATE, Verdict.UNKNOWN


def record(audit: MessageAudit, *sequences: int, destination: str = "q", producer: str = "p") -> list[Verdict]:
    return [audit.record(destination, producer, sequence) for sequence in sequences]


def test_a_message_is_new_once_and_a_duplicate_afterwards() -> None:
    assert record(MessageAudit(), 1, 2, 1, 3, 3, 2) == [NEW, NEW, DUPLICATE, NEW, DUPLICATE, DUPLICATE]


def test_asking_for_a_message_changes_nothing() -> None:
    audit = MessageAudit(window=8)
    record(audit, 1, 20)
    asked = [audit.has("q", "p", sequence) for sequence in (1, 19, 20, 21, 99)]
    assert asked == [False, False, True, False, False]
    assert [audit.has("q", "other", 20), audit.has("other", "p", 20)] == [False, False]
    assert record(audit, 19, 21) == [NEW, NEW]


def test_the_first_sequence_is_zero() -> None:
    assert record(MessageAudit(), 0, 0) == [NEW, DUPLICATE]


def test_messages_out_of_order_are_new_inside_the_window() -> None:
    assert record(MessageAudit(window=8), 10, 3, 9, 3) == [NEW, NEW, NEW, DUPLICATE]


def test_below_the_window_nothing_is_known() -> None:
    audit = MessageAudit(window=8)
    record(audit, *range(1, 21))
    assert record(audit, 12, 13) == [UNKNOWN, DUPLICATE]
    assert record(audit, 12) == [UNKNOWN]


def test_a_late_message_that_was_never_received_is_no_duplicate() -> None:
    audit = MessageAudit(window=8)
    record(audit, 5, 100)
    assert record(audit, 6) == [UNKNOWN]


@pytest.mark.parametrize("jump", [7, 8, 9, 64, 1 << 60])
def test_a_jump_ahead_keeps_what_is_still_inside_the_window(jump: int) -> None:
    audit = MessageAudit(window=8)
    record(audit, 0, 1)
    assert record(audit, 1 + jump) == [NEW]
    assert record(audit, 1) == [DUPLICATE if jump < 8 else UNKNOWN]


def test_destinations_and_producers_have_windows_of_their_own() -> None:
    audit = MessageAudit()
    for destination in ("a", "b"):
        for producer in ("p1", "p2"):
            assert audit.record(destination, producer, 1) is NEW


def test_the_producer_that_was_silent_longest_is_forgotten() -> None:
    audit = MessageAudit(producers=2)
    for producer in ("a", "b", "a", "c"):
        audit.record("q", producer, 1)
    assert audit.record("q", "a", 1) is DUPLICATE
    assert audit.record("q", "b", 1) is UNKNOWN


def test_a_forgotten_producer_is_known_again_above_all_that_was_forgotten() -> None:
    audit = MessageAudit(producers=1)
    record(audit, 1, 2, 3, producer="a")
    record(audit, 1, producer="b")
    assert record(audit, 3, 4, 3, 4, producer="a") == [UNKNOWN, NEW, DUPLICATE, DUPLICATE]


def test_the_destination_that_was_silent_longest_is_forgotten() -> None:
    audit = MessageAudit(destinations=2)
    for destination in ("a", "b", "a", "c"):
        audit.record(destination, "p", 5)
    assert record(audit, 5, destination="a") == [DUPLICATE]
    assert record(audit, 4, 5, 6, destination="b") == [UNKNOWN, UNKNOWN, NEW]


def test_a_negative_sequence_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="sequence is -1: 0 or more"):
        MessageAudit().record("q", "p", -1)


@pytest.mark.parametrize("name", ["window", "producers", "destinations"])
def test_a_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} is 0: at least 1"):
        MessageAudit(**{name: 0})


def test_its_memory_is_bounded() -> None:
    audit = MessageAudit(window=2048, producers=4, destinations=3)
    for number in range(5000):
        record(audit, number, 3 * number, destination=f"q{number // 500}", producer=f"p{number % 31}")
    windows = [window for found in audit._destinations.values() for window in found.windows.values()]
    assert len(windows) == 12
    assert max([window._bits.bit_length() for window in windows]) <= 2048
