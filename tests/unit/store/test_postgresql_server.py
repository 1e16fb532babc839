"""What an administrator is told of the server around a PostgreSQL store."""

from typing import Any

import pytest

from quire.store.maintenance.base import Notice
from quire.store.maintenance.postgresql import (
    KEPT_LOG,
    OLD_SECONDS,
    OLD_TRANSACTIONS,
    SPARE_BYTES,
    about_holders,
    about_rights,
    about_settings,
    about_size,
)

SAFE = {
    "fsync": "on", "full_page_writes": "on", "zero_damaged_pages": "off", "autovacuum": "on", "statement_timeout": "0",
    "synchronous_standby_names": "", "transaction_timeout": "0",
}  # fmt: skip


def holder(kind: str, **fields: Any) -> dict[str, Any]:
    """Who may hold VACUUM back, harmless unless the fields say otherwise."""
    row = {
        "kind": kind,
        "name": "17",
        "details": "user bob",
        "seconds": 0.5,
        "transactions": 5,
        "log": 0,
        "active": True,
    }
    return row | fields


def settings(changed: dict[str, str], *, pooled: bool = False) -> list[Notice]:
    return list(about_settings(SAFE | changed, pooled=pooled))


def test_a_sound_server_is_told_in_one_line_each() -> None:
    (notice,) = settings({})
    assert notice == Notice("ok", "its settings keep what it confirms; commits wait for no standby")
    assert settings({"synchronous_standby_names": "ANY 1 (a, b)"})[0].text.endswith(
        "wait for the standbys ANY 1 (a, b)"
    )
    assert list(about_rights({"standby": False, "all_sessions": True})) == []
    rows = [holder("session"), holder("slot", seconds=0), holder("session", seconds=None)]
    assert list(about_holders(rows)) == [Notice("ok", "nothing stops VACUUM; the oldest transaction is 0 s old")]
    assert list(about_holders([])) == [Notice("ok", "nothing stops VACUUM; the oldest transaction is 0 s old")]
    assert about_size(0, SPARE_BYTES).state == "ok"


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("fsync", "off", "problem"),
        ("full_page_writes", "off", "problem"),
        ("zero_damaged_pages", "on", "problem"),
        ("autovacuum", "off", "warning"),
    ],
)
def test_a_setting_of_the_server_that_endangers_messages_is_named(name: str, value: str, state: str) -> None:
    (notice,) = settings({name: value})
    assert (notice.state, notice.text.startswith(f"{name} is {value}: ")) == (state, True)
    assert name in notice.advice


@pytest.mark.parametrize("name", ["statement_timeout", "transaction_timeout"])
def test_limits_of_the_session_count_where_a_pooler_shares_it(name: str) -> None:
    assert [notice.state for notice in settings({name: "5000"})] == ["ok"]
    (notice,) = settings({name: "5000"}, pooled=True)
    assert (notice.state, notice.text.startswith(f"{name} is 5000 ms")) == ("warning", True)


@pytest.mark.parametrize(
    ("row", "end"),
    [
        (holder("session", seconds=OLD_SECONDS + 1), "SELECT pg_terminate_backend(17);"),
        (holder("prepared", seconds=OLD_SECONDS + 1), "ROLLBACK PREPARED '17';"),
        (holder("slot", transactions=OLD_TRANSACTIONS + 1), "SELECT pg_drop_replication_slot('17');"),
        (holder("slot", log=KEPT_LOG + 1, active=False), "SELECT pg_drop_replication_slot('17');"),
        (holder("standby", transactions=OLD_TRANSACTIONS + 1), "hot_standby_feedback"),
    ],
)
def test_what_stops_vacuum_is_named_with_the_way_to_end_it(row: dict[str, Any], end: str) -> None:
    (notice,) = about_holders([holder("session"), row])
    assert notice.state == "warning"
    assert "17 (user bob)" in notice.text
    assert end in notice.advice


def test_a_slot_that_is_read_may_keep_a_long_log() -> None:
    assert [notice.state for notice in about_holders([holder("slot", log=KEPT_LOG + 1)])] == ["ok"]


def test_a_standby_and_hidden_sessions_are_told() -> None:
    assert [notice.state for notice in about_rights({"standby": True, "all_sessions": False})] == ["problem", "note"]


def test_tables_that_have_grown_are_told() -> None:
    assert about_size(10, 40 + SPARE_BYTES + 1).state == "warning"
