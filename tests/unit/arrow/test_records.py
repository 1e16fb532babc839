"""Messages as columns."""

from datetime import UTC, datetime

import pytest

from quire.arrow.lanes import COLUMNS, Comparison, Condition, Records, schema_of
from quire.errors import InvalidArgument
from quire.message import Message


def message(
    sequence: int, *, headers: bytes = b"", body: bytes = b"", expiration: int = 0, priority: int = 4
) -> Message:
    head = b"message-id:ID\\c%d\ntimestamp:%d\n%b\n" % (sequence, 1_700_000_000_000 + sequence, headers)
    return Message(sequence, head + body, expiration, priority)


def records(*messages: Message) -> Records:
    found = [(one.sequence, one.content, one.expiration, one.priority, one.deliveries) for one in messages]
    return Records(found, "stream://events", 3)


def test_a_message_has_a_value_in_every_column() -> None:
    given = message(7, headers=b"key:a\n", body=b"line\n\nline", expiration=1_700_000_001_500, priority=9)
    given.deliveries = 2
    batch = records(given).batch(list(COLUMNS))
    assert batch.schema == schema_of(COLUMNS)
    assert batch.to_pylist() == [
        {
            "destination": "stream://events",
            "partition": 3,
            "offset": 7,
            "message_id": "ID:7",
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 7000, tzinfo=UTC),
            "priority": 9,
            "persistent": True,
            "expiration": datetime(2023, 11, 14, 22, 13, 21, 500_000, tzinfo=UTC),
            "deliveries": 2,
            "key": "a",
            "value": b"line\n\nline",
            "headers": [("message-id", "ID:7"), ("timestamp", "1700000000007"), ("key", "a")],
        }
    ]


def test_the_columns_are_those_asked_for_in_their_order() -> None:
    assert records(message(1, body=b"x")).batch(["value", "offset"]).to_pylist() == [{"value": b"x", "offset": 1}]


def test_what_never_expires_has_no_expiration() -> None:
    column = records(message(1), message(2, expiration=1000)).column("expiration")
    assert column.to_pylist() == [None, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]


def test_what_expires_beyond_all_calendars_expires_at_their_end() -> None:
    latest = records(message(1, expiration=2**63 - 1)).column("expiration").to_pylist()
    assert latest == [datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)]


def test_the_key_is_the_header_key_or_else_the_partition_key() -> None:
    given = [
        message(1, headers=b"partition-key:p\nkey:k\n"),
        message(2, headers=b"partition-key:p\n"),
        message(3, headers=b"colour:red\n"),
    ]
    assert records(*given).column("key").to_pylist() == ["k", "p", None]


def test_a_column_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pytest.raises(InvalidArgument, match="no column 'body': they have destination, partition"):
        records(message(1)).column("body")


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        (Condition("message_id", Comparison.AMONG, ("ID:2", "ID:9")), [2]),
        (Condition("priority", Comparison.FROM, (4,)), [2, 3]),
        (Condition("priority", Comparison.BELOW, (4,)), [1]),
        (Condition("timestamp", Comparison.ABOVE, (datetime(2023, 11, 14, 22, 13, 20, 2000, tzinfo=UTC),)), [3]),
        (Condition("offset", Comparison.UP_TO, (2,)), [1, 2]),
    ],
)
def test_a_condition_keeps_the_records_for_which_it_holds(condition: Condition, kept: list[int]) -> None:
    given = records(message(1, priority=0), message(2), message(3, priority=5))
    assert given.those_that((condition,)).column("offset").to_pylist() == kept


def test_all_of_several_conditions_hold() -> None:
    among = Condition("offset", Comparison.AMONG, (1, 2))
    above = Condition("priority", Comparison.ABOVE, (0,))
    given = records(message(1, priority=0), message(2), message(3))
    assert given.those_that((among, above)).column("offset").to_pylist() == [2]
    assert len(given.those_that((among, above, Condition("offset", Comparison.BELOW, (2,))))) == 0
