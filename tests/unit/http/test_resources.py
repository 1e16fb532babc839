"""The description of resources: what follows from a row without a second list of it."""

from types import SimpleNamespace
from typing import Any

import pytest

from quire.cli.output import columns_of as cli_columns
from quire.console.tables import columns_of
from quire.http.app import ENDPOINTS
from quire.http.cluster_router import summed
from quire.management.tables import Reader
from quire.resources import (
    FACT,
    LINE,
    LIST,
    MORE,
    TILE,
    Consumer,
    ConsumerGroupStatus,
    DurableStatus,
    Prepared,
    QueueStatus,
    Status,
    StreamStatus,
    TopicStatus,
    fields,
    join_of,
    shown_at,
    unit_of,
)
from tests.unit.broker.harness import consumer
from tests.unit.http.conftest import Api

LISTS: dict[str, type[Status]] = {
    "queues": QueueStatus, "topics": TopicStatus, "streams": StreamStatus, "durables": DurableStatus,
    "groups": ConsumerGroupStatus, "consumers": Consumer, "xa": Prepared,
}  # fmt: skip


@pytest.mark.parametrize(("list_", "kind"), LISTS.items())
def test_a_list_is_sorted_by_every_field_that_says_so(api: Api, list_: str, kind: type[Status]) -> None:
    api.call("POST", "/queues/q/messages", json={"body": "b"})
    api.call("PUT", "/durables/c/d", json={"topic": "t"})
    api.call("PUT", "/streams/s/groups/g/progress", json={"offsets": {}})
    consumer(api.stepped)
    words = [field.sort for field in fields(kind).values() if field.sort]
    assert words
    for word in words:
        assert api.call("GET", f"/{list_}?sort=-{word}").status_code == 200, word


def test_what_is_unknown_sorts_before_what_is_known() -> None:
    retries = Reader(ConsumerGroupStatus).columns["retries"]
    groups = [SimpleNamespace(retries=count) for count in (3, None, 0)]
    assert [group.retries for group in sorted(groups, key=retries)] == [None, 0, 3]


def test_the_console_lists_what_is_shown_at_first_and_then_what_users_may_add() -> None:
    columns = columns_of(QueueStatus, {"name": lambda _: None}, state=lambda _: ("ready", "good"))
    assert [column.label for column in columns[:3]] == ["Queue", "State", "Messages"]
    assert [column.name for column in columns if not column.is_shown] == [
        field.sort or field.name for field in shown_at(QueueStatus, MORE)
    ]
    assert {column.name for column in columns if column.sorts} <= {
        "name", *[field.sort for field in fields(QueueStatus).values()]
    }  # fmt: skip


def test_every_field_that_is_shown_is_in_the_answer(api: Api) -> None:
    api.call("POST", "/queues/q/messages", json={"body": "b"})
    answer = api.call("GET", "/queues/q").json()
    assert list(answer) == list(fields(QueueStatus))
    assert {field.name for field in shown_at(QueueStatus, LIST | MORE | LINE | TILE | FACT)} <= set(answer)


def test_the_command_line_has_a_column_for_each_field_that_it_shows() -> None:
    headings = {column.key: column.heading for column in cli_columns(QueueStatus)}
    assert (headings["depth"], headings["in_flight"], headings["dead_lettered"]) == (
        "Messages", "In flight", "Dead-lettered"
    )  # fmt: skip
    assert list(headings) == [field.name for field in shown_at(QueueStatus, LINE)]


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("resident_bytes", "size"), ("limit", "size"), ("store.used", "size"), ("age_seconds", "span"),
        ("next_due", "time"), ("in_rate", "rate"), ("depth", "number"),
    ],
)  # fmt: skip
def test_the_name_of_a_number_says_its_unit(name: str, unit: str) -> None:
    assert unit_of(name) == unit


def test_counts_of_shards_add_up_and_times_do_not() -> None:
    assert (join_of("depth"), join_of("offline_seconds"), join_of("at")) == ("sum", "max", "max")
    assert (join_of("next_due"), join_of("epoch")) == ("min", "max")
    shards: list[dict[str, Any]] = [
        {"depth": 2, "next_due": 500, "offline_seconds": 3.0, "in_rate": 1.5, "epoch": 4, "paused": False},
        {"depth": 3, "next_due": 400, "offline_seconds": 9.0, "in_rate": 0.5, "epoch": 2, "paused": True},
    ]
    assert summed(shards) == {
        "depth": 5, "next_due": 400, "offline_seconds": 9.0, "in_rate": 2.0, "epoch": 4, "paused": True,
    }  # fmt: skip


def test_every_resource_that_the_api_answers_with_says_what_its_fields_mean() -> None:
    described = {row.answer for row in ENDPOINTS if isinstance(row.answer, type) and issubclass(row.answer, Status)}
    assert QueueStatus in described
    silent = [
        f"{kind.__name__}.{field.name}"
        for kind in described & set(LISTS.values()) for field in fields(kind).values()
        if not field.text and field.inside is None
    ]  # fmt: skip
    assert silent == []
