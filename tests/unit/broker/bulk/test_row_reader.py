"""Rows mean what a STOMP client's SEND with the same headers would mean."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.bulk.row_reader import MAX_ROWS, Columns, RowReader
from quire.broker.bulk.rows import Row, send, target_of
from quire.broker.routing.route import NOT_STORED, route_of
from quire.destination import queue
from quire.errors import InvalidArgument, InvalidDestination, InvalidHeader, LimitExceeded, QuireError
from quire.management.messages import Draft
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.bulk.writer_rig import rows
from tests.unit.broker.harness import bodies, consumer, settings


@pytest.fixture
def stepped() -> SteppedBroker:
    return SteppedBroker(settings())


def test_rows_of_one_destination_and_nothing_else(stepped: SteppedBroker) -> None:
    found = rows(stepped, [b"1", b"", b"3", b"4", b"5"])
    assert found == [Row("/queue/q", b"\n", body, 0, 4, True) for body in (b"1", b"", b"3", b"4", b"5")]
    assert rows(stepped, []) == []


def test_every_column_says_something_of_its_row(stepped: SteppedBroker) -> None:
    found = rows(
        stepped, [b"1", b"2", b"3"], ["q", "topic://t", "stream://s"], key=["k", None, "k"], partition=[None, None, 2],
        headers=[{"a": "x:y"}, None, {"expires": "7"}], priority=[9, 4, None], persistent=[None, True, False],
    )  # fmt: skip
    assert found == [
        Row("/queue/q", b"a:x\\cy\nkey:k\n\n", b"1", 0, 9, True),
        Row("/topic/t", b"\n", b"2", 0, 4, True),
        Row("/stream/s", b"partition-key:k\npartition:2\npersistent:false\n\n", b"3", 7, 4, False),
    ]


def test_columns_stand_over_headers(stepped: SteppedBroker) -> None:
    headers = {"priority": "7", "persistent": "false", "key": "a"}
    assert rows(stepped, [b""], headers=[headers])[0][1:] == (
        b"persistent:false\nkey:a\n\n", b"", 0, 7, False,
    )  # fmt: skip
    assert rows(stepped, [b""], headers=[headers], priority=[4], persistent=[True], key=["b"])[0][1:] == (
        b"persistent:true\nkey:b\n\n", b"", 0, 4, True,
    )  # fmt: skip


def test_headers_of_a_message_that_was_read_are_taken_but_for_the_brokers_own(stepped: SteppedBroker) -> None:
    read = dict.fromkeys([*NOT_STORED, "content-length"], "1")
    assert rows(stepped, [b"body"], headers=[{**read, "mine": "1"}])[0].lines == b"mine:1\n\n"


def test_messages_arrive_in_order_with_their_headers(stepped: SteppedBroker) -> None:
    found = rows(stepped, [b"1", b"2"], headers=[{"n": "one"}, {"n": "two"}])
    send(stepped.broker.core, found, [target_of(stepped.broker.routing, row) for row in found])
    stepped.run()
    frames = consumer(stepped).take("MESSAGE")
    assert bodies(frames) == [b"1", b"2"]
    assert [frame.headers["n"] for frame in frames] == ["one", "two"]
    assert len({frame.headers["message-id"] for frame in frames}) == 2
    assert {frame.headers["timestamp"] for frame in frames} == {str(stepped.clock.now_ms())}


def test_keys_and_partitions_of_streams(stepped: SteppedBroker) -> None:
    found = rows(stepped, [b""] * 6, "stream://s", key=["k"] * 3 + [None] * 3, partition=[None] * 3 + [3] * 3)
    send(stepped.broker.core, found, [target_of(stepped.broker.routing, row) for row in found])
    stepped.run()
    stream = stepped.broker.stream("s")
    expected = [0] * 4
    expected[stream.partitions.index(stream.partition_of("k"))] += 3
    expected[3] += 3
    assert [partition.count for partition in stream.partitions] == expected


def test_delays_and_groups_are_those_of_stomp(stepped: SteppedBroker) -> None:
    found = rows(stepped, [b"1", b"2"], headers=[{"AMQ_SCHEDULED_DELAY": "1000"}, {"JMSXGroupID": "g"}])
    send(stepped.broker.core, found, [target_of(stepped.broker.routing, row) for row in found])
    stepped.run()
    assert stepped.queue("q").grouped
    client = consumer(stepped)
    assert client.messages() == [b"2"]
    stepped.advance(1)
    stepped.run()
    assert client.messages() == [b"1"]


HEADER = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


@given(st.dictionaries(HEADER.filter(lambda name: name not in NOT_STORED), HEADER, max_size=4), st.binary(max_size=9))
def test_a_row_is_stored_as_a_send_of_stomp_is(headers: dict[str, str], body: bytes) -> None:
    stepped = SteppedBroker(settings())
    (row,) = rows(stepped, [body], headers=[headers], priority=[3])
    route = route_of(
        stepped.broker.routing, Draft(body, headers, priority=3).send_headers(queue("q"), stepped.settings.stomp)
    )
    lines = [line for line in route.lines.split(b"\n") if not line.startswith(b"content-length:")]
    assert sorted(row.lines.split(b"\n")) == sorted(lines)
    assert (row.expiration, row.priority, row.persistent) == (route.expiration, route.priority, route.persistent)


@pytest.mark.parametrize(
    ("error", "columns"),
    [
        (InvalidDestination, {"destination": "/temp-queue/x"}),
        (InvalidDestination, {"destination": ["q", ""]}),
        (InvalidArgument, {"key": ["k"]}),
        (InvalidArgument, {"destination": ["q"]}),
        (InvalidArgument, {"partition": [0, None]}),
        (InvalidHeader, {"destination": "stream://s", "partition": [0, 4]}),
        (InvalidHeader, {"headers": [{"": "x"}, None]}),
        (InvalidHeader, {"headers": [{"x": "\0"}, None]}),
        (InvalidHeader, {"headers": [{"priority": "high"}, None]}),
        (InvalidHeader, {"headers": [{"expires": "soon"}, None]}),
        (InvalidHeader, {"headers": [{"AMQ_SCHEDULED_CRON": "often"}, None]}),
        (LimitExceeded, {"headers": [{"x": "y" * 20_000}, None]}),
        (LimitExceeded, {"headers": [{str(number): "" for number in range(1001)}, None]}),
    ],
)
def test_rows_that_cannot_be_sent_are_refused(
    stepped: SteppedBroker, error: type[QuireError], columns: dict[str, Any]
) -> None:
    with pytest.raises(error):
        rows(stepped, [b"1", b"2"], **{"destination": "q", **columns})


@pytest.mark.parametrize(
    ("headers", "header"),
    [({"good": "x", "x": "y" * 20_000}, "x"), ({"good": "x", "nul": "a\0"}, "nul"), ({"expires": "soon"}, "expires")],
)
def test_the_error_of_a_row_has_its_number_and_its_header(
    stepped: SteppedBroker, headers: dict[str, str], header: str
) -> None:
    with pytest.raises(QuireError, match=rf"^row 2: .*{header}") as refused:
        rows(stepped, [b"1", b"2", b"3"], headers=[None, {"good": "x"}, headers])
    assert (refused.value.data["row"], refused.value.data["header"]) == (2, header)


def test_there_are_not_too_many_rows_at_once(stepped: SteppedBroker) -> None:
    with pytest.raises(LimitExceeded):
        RowReader(
            stepped.settings.stomp,
            stepped.broker.destinations,
            stepped.broker.routing,
            Columns(destination="q", value=[b""] * (MAX_ROWS + 1)),
        )
