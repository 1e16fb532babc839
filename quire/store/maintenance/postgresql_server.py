"""What the server of a PostgreSQL store should be told about: settings that break promises, and who stops VACUUM.

The store replaces rows all the time. VACUUM frees the old ones, but none that an open transaction, a replication slot,
a standby or a prepared transaction might still read. One that is forgotten makes the tables grow without end.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import dict_row

from quire.store.maintenance.findings import Notice
from quire.store.postgresql.database import is_pooled
from quire.units import format_size

OLD_SECONDS = 300
"""A transaction that is open for longer than this stops VACUUM for too long."""

OLD_TRANSACTIONS = 1_000_000
"""So many transactions may have begun since the oldest one that a slot or a standby may still read."""

KEPT_LOG = 1 << 30
"""So many bytes of the write-ahead log may an unused slot keep."""

SPARE_FACTOR = 4
"""The tables may take this many times the bytes of the messages, beside ``SPARE_BYTES``."""

SPARE_BYTES = 1 << 30

_SETTINGS = """
SELECT name, reset_val FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit',
    'synchronous_standby_names', 'statement_timeout', 'zero_damaged_pages', 'autovacuum', 'transaction_timeout')
"""
# An open transaction of another database holds nothing back here; a slot and a standby do, whatever their database.
_HOLDERS = """
SELECT 'session' AS kind, pid::text AS name, concat_ws(', ', 'user ' || usename, nullif(application_name, ''), state)
    AS details, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds, 0 AS transactions,
    0::float8 AS log, true AS active
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
    AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
UNION ALL
SELECT 'prepared', gid, 'user ' || owner, extract(epoch FROM clock_timestamp() - prepared), 0, 0, true
FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT 'slot', slot_name, coalesce(plugin, slot_type), 0, coalesce(age(xmin), 0), CASE WHEN pg_is_in_recovery() THEN 0
    ELSE coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0) END, active
FROM pg_replication_slots
UNION ALL
SELECT 'standby', application_name, coalesce(host(client_addr), 'local'), 0, coalesce(age(backend_xmin), 0), 0, true
FROM pg_stat_replication
"""
_RIGHTS = (
    "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS all_sessions, pg_is_in_recovery() AS standby"
)
_SIZES = """
SELECT (SELECT coalesce(sum(bytes), 0) FROM lanes)::bigint AS messages,
    (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
     WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r')::bigint AS tables
"""

Row = Mapping[str, Any]


def examine_server(connection: psycopg.Connection[Any]) -> Iterator[Notice]:
    """Look at the server through a connection that finds the store's tables."""

    def rows(query: str) -> list[dict[str, Any]]:
        with connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query.encode()).fetchall()

    settings = {row["name"]: row["reset_val"] for row in rows(_SETTINGS)}
    yield from about_settings(settings, pooled=is_pooled(connection))
    (rights,) = rows(_RIGHTS)
    yield from about_rights(rights)
    yield from about_holders(rows(_HOLDERS))
    (sizes,) = rows(_SIZES)
    yield about_size(sizes["messages"], sizes["tables"])


class _Wrong(NamedTuple):
    """A value of a setting that endangers messages."""

    name: str
    value: str
    state: str
    danger: str
    advice: str


_WRONG = (
    _Wrong("fsync", "off", "problem", "a crash of its machine loses confirmed messages and damages the tables",
           "Set fsync = on, and restart the server."),
    _Wrong("full_page_writes", "off", "problem", "a crash of its machine may damage the tables",
           "Set full_page_writes = on, unless its file system writes pages atomically (ZFS)."),
    _Wrong("zero_damaged_pages", "on", "problem", "it empties damaged pages without an error",
           "Set zero_damaged_pages = off; it is for the rescue of a damaged database."),
    _Wrong("autovacuum", "off", "warning", "it freezes old rows late, and then all at once", "Set autovacuum = on."),
)  # fmt: skip
_LOSES = {"off": "its machine", "local": "the primary", "remote_write": "the standby's machine"}
_FOR_ROLE = "for the store's role: ALTER ROLE ... SET"


def about_settings(settings: Mapping[str, str], *, pooled: bool) -> Iterator[Notice]:
    """Settings that endanger messages. Those of the session are the store's own, but a pooler shares sessions."""
    notices = [
        Notice(each.state, f"{each.name} is {each.value}: {each.danger}", each.advice)
        for each in _WRONG
        if settings.get(each.name) == each.value
    ]
    if pooled:
        notices += _about_session(settings)
    standbys = settings.get("synchronous_standby_names")
    kept = f"commits wait for the standbys {standbys}" if standbys else "commits wait for no standby"
    yield from notices or [Notice("ok", f"its settings keep what it confirms; {kept}")]


def _about_session(settings: Mapping[str, str]) -> Iterator[Notice]:
    """Settings that the store cannot make for itself through a pooler."""
    commits, standbys = settings.get("synchronous_commit", "on"), settings.get("synchronous_standby_names")
    if commits == "off" or (commits in _LOSES and standbys):
        text = f"synchronous_commit is {commits}: a crash of {_LOSES[commits]} may lose confirmed messages"
        yield Notice("problem", text, f"Set it on {_FOR_ROLE} synchronous_commit = on.")
    for name in ("statement_timeout", "transaction_timeout"):
        if settings.get(name, "0") != "0":
            text = f"{name} is {settings[name]} ms: the server may cancel commits and reads that take longer"
            yield Notice("warning", text, f"Set it to 0 {_FOR_ROLE} {name} = 0.")


def about_rights(rights: Row) -> Iterator[Notice]:
    """Whether the server can be written, and whether its sessions can be seen."""
    if rights["standby"]:
        text = "the server is a standby and takes no writes"
        yield Notice(
            "problem", text, "Name the primary in store.url, or all hosts: the store takes the one that writes."
        )
    if not rights["all_sessions"]:
        text = "the store's role does not see the transactions of other roles, which may stop VACUUM"
        yield Notice("note", text, "GRANT pg_read_all_stats TO the store's role.")


def about_holders(holders: list[dict[str, Any]]) -> Iterator[Notice]:
    """Who stops VACUUM, or keeps the write-ahead log."""
    found = [notice for row in holders if (notice := _about_holder(row))]
    oldest = max((row["seconds"] or 0 for row in holders), default=0)
    yield from found or [Notice("ok", f"nothing stops VACUUM; the oldest transaction is {oldest:.0f} s old")]


def _about_holder(row: Row) -> Notice | None:
    kind, name, details, seconds = row["kind"], row["name"], row["details"], row["seconds"] or 0
    if seconds > OLD_SECONDS:
        end = f"SELECT pg_terminate_backend({name});" if kind == "session" else f"ROLLBACK PREPARED '{name}';"
        what = f"the transaction of process {name}" if kind == "session" else f"the prepared transaction {name}"
        text = f"{what} ({details}) has been open for {seconds / 60:.0f} minutes: VACUUM frees nothing newer"
        return Notice("warning", text, f"End it, if it was forgotten: {end}")
    if row["transactions"] > OLD_TRANSACTIONS:
        text = f"{kind} {name} ({details}) is {row['transactions']} transactions behind: VACUUM frees nothing newer"
        if kind == "slot":
            return Notice("warning", text, _drop_slot(name))
        return Notice("warning", text, "End its long query, or set hot_standby_feedback = off there.")
    if row["log"] > KEPT_LOG and not row["active"]:
        text = f"slot {name} ({details}) is not used, and keeps {format_size(int(row['log']))} of write-ahead log"
        return Notice("warning", text, _drop_slot(name))
    return None


def _drop_slot(name: str) -> str:
    return f"Start what reads it; if it is gone: SELECT pg_drop_replication_slot('{name}');"


def about_size(messages: int, tables: int) -> Notice:
    """Whether the tables have grown beyond what they hold."""
    text = f"its tables take {format_size(tables)} for {format_size(messages)} of messages"
    if tables > SPARE_FACTOR * messages + SPARE_BYTES:
        return Notice(
            "warning", text, "See what stops VACUUM. `quire store compact` frees the space of a stopped broker."
        )
    return Notice("ok", text)
