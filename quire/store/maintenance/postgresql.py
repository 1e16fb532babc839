"""Maintenance of a PostgreSQL store: its pages, their repair, and what its server should be told about.

``next`` of a page's last entry is 0, and ``previous`` of its first one is the record that was before it when the page
was written, which may be gone since: it is at or after the last record of the page before.

The store replaces rows all the time. VACUUM frees the old ones, but none that an open transaction, a replication slot,
a standby or a prepared transaction might still read. One that is forgotten makes the tables grow without end.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import dict_row, tuple_row

from quire.errors import InvalidArgument, StoreLocked
from quire.store import pages
from quire.store.base import Delivery, LaneState, Store, StoreReader, in_steps
from quire.store.maintenance.base import DamagedFile, Finding, Notice, Problem, RepairReport, StoreMaintenance
from quire.store.maintenance.page_repair import PagePair, PageRepair, live_page, pack_entries
from quire.store.pages import ENTRY, Entry
from quire.store.postgresql.database import TABLES, Database, is_pooled
from quire.units import format_size

Connection = psycopg.Connection[Any]
Row = tuple[Any, ...]

GROUP_BYTES = 4 * 1024 * 1024  # how many bytes of pages are read at once, unless a single one is larger
_LAST = 2**63 - 1
_STEP = 1000
_SIZES = """SELECT first, octet_length(entries) + octet_length(body) FROM pages WHERE lane = %s AND first >= %s
    ORDER BY first LIMIT %s"""
_PAGES = "SELECT first, last, live, entries, body FROM pages WHERE lane = %s AND first BETWEEN %s AND %s ORDER BY first"
_PAGE_OF = "SELECT first, entries FROM pages WHERE lane = %s AND first <= %s ORDER BY first DESC LIMIT 1"
_END_OF = "SELECT min(first) FROM pages WHERE lane = %s AND first > %s"


class PostgresqlPage(NamedTuple):
    pair: PagePair
    last: int  # the column ``last``
    live: int  # the column ``live``

    def wrong_columns(self) -> str:
        """What the columns say wrongly of a page that can be read; empty if nothing."""
        entries = self.pair.entries()
        if self.live != len(entries):
            return f"live is {self.live}, but {len(entries)} records are there"
        if not entries[-1].sequence <= self.last < self.pair.end:
            return f"last is {self.last}, but the last record is {entries[-1].sequence}"
        return ""


def fetch(connection: Connection, query: str, parameters: Row = ()) -> list[Row]:
    """The rows of a query; psycopg takes texts that are written in the code only, or bytes."""
    with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        return cursor.execute(query.encode(), parameters).fetchall()


def all_rows(connection: Connection, query: str) -> Iterator[Row]:
    """The rows of a query of any size, in a transaction; not all are in memory."""
    with connection.cursor("all_rows", row_factory=tuple_row) as cursor:
        cursor.execute(query.encode())
        while rows := cursor.fetchmany(_STEP):
            yield from rows


def stored_pages(connection: Connection, lane: int, start: int = 0) -> Iterator[PostgresqlPage]:
    """The pages of a lane from a key on, in order. They may be rewritten or deleted meanwhile."""
    while sizes := fetch(connection, _SIZES, (lane, start, _STEP + 1)):
        # The page behind these ends the last one; its own turn comes with the next read.
        firsts = [first for first, _ in sizes]
        ends = dict(zip(firsts, [*firsts[1:], _LAST], strict=True))
        for group in in_steps(sizes[:_STEP], [size for _, size in sizes[:_STEP]], GROUP_BYTES):
            for first, last, live, entries, body in fetch(connection, _PAGES, (lane, group[0][0], group[-1][0])):
                yield PostgresqlPage(PagePair(first, ends[first], entries, body), last, live)
        if len(sizes) <= _STEP:
            return
        start = firsts[-1]


class StoredEntries:
    """Finds entries of records; the page that was read last is kept, so ask in the order of lanes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lane = self._first = self._end = 0
        self._entries = b""

    def find(self, lane: int, sequence: int) -> Entry | None:
        if lane != self._lane or not self._first <= sequence < self._end:
            self._read(lane, sequence)
        found = pages.entry_of(self._entries, sequence)
        return Entry._make(found) if found else None

    def _read(self, lane: int, sequence: int) -> None:
        found = fetch(self._connection, _PAGE_OF, (lane, sequence))
        self._lane = lane
        self._first, entries = found[0] if found else (0, b"")
        self._entries = entries[: len(entries) - len(entries) % ENTRY.size]
        ((end,),) = fetch(self._connection, _END_OF, (lane, sequence))
        self._end = _LAST if end is None else end


STEP = 1000  # how many delivery states are looked at, or removed, at once
_UPDATE = "UPDATE pages SET last = %s, live = %s, entries = %s, body = %s WHERE lane = %s AND first = %s"
_INDEX = """INSERT INTO expirations (expiration, lane, sequence)
    SELECT expiration, %s, sequence FROM unnest(%s::bigint[], %s::bigint[]) AS e (expiration, sequence)
    ON CONFLICT DO NOTHING"""
_ADD_DELIVERY = "INSERT INTO deliveries VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
_STATE = "SELECT head, tail, count, bytes, next_sequence, dispatch_mark FROM lanes WHERE lane = %s"
_PUT_STATE = """INSERT INTO lanes (lane, head, tail, count, bytes, next_sequence, dispatch_mark)
    VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (lane) DO UPDATE SET head = excluded.head, tail = excluded.tail,
    count = excluded.count, bytes = excluded.bytes, next_sequence = excluded.next_sequence,
    dispatch_mark = excluded.dispatch_mark"""
_DELIVERIES = "SELECT sequence FROM deliveries WHERE lane = %s AND sequence > %s ORDER BY sequence LIMIT %s"
_CLEAR = "DELETE FROM deliveries WHERE lane = %s AND sequence = ANY (%s)"
_EXPIRATIONS = "SELECT expiration, lane, sequence FROM expirations ORDER BY lane, sequence"
_WITHOUT_LANE = """FROM deliveries d WHERE NOT EXISTS (SELECT FROM lanes l WHERE l.lane = d.lane)
    AND NOT EXISTS (SELECT FROM pages p WHERE p.lane = d.lane)"""
_CLEAR_EXPIRATION = "DELETE FROM expirations WHERE expiration = %s AND lane = %s AND sequence = %s"


class PostgresqlLaneRepair(PageRepair):
    def __init__(self, connection: Connection, lane: int, damaged: DamagedFile, done: Counter[str]) -> None:
        super().__init__(lane, damaged, done)
        self._connection = connection
        self._columns: dict[int, PostgresqlPage] = {}  # of the pages that are read and not written yet

    def _pairs(self) -> Iterator[PagePair]:
        for page in stored_pages(self._connection, self._lane):
            self._columns[page.pair.first] = page
            yield page.pair

    def _delete(self, pair: PagePair) -> None:
        del self._columns[pair.first]
        key = (self._lane, pair.first)
        self._connection.execute("DELETE FROM pages WHERE lane = %s AND first = %s", key)

    def _put(self, pair: PagePair, entries: list[Entry], body: bytes) -> list[Entry]:
        page = self._columns.pop(pair.first)
        stored = _across_pages(pair, entries)
        last = page.last if stored[-1].sequence <= page.last < pair.end else stored[-1].sequence
        links = pack_entries(stored)
        if body is not pair.body or (links, last, len(stored)) != (pair.links, page.last, page.live):
            self._connection.execute(_UPDATE, (last, len(stored), links, body, self._lane, pair.first))
        if pair.usable and page.wrong_columns():
            self._done["pages"] += 1
        return stored

    def _add_delivery(self, sequence: int, delivery: Delivery) -> None:
        self._connection.execute(_ADD_DELIVERY, (self._lane, sequence, *delivery))

    def _index(self, expirations: list[tuple[int, int]]) -> int:
        times, sequences = (list(column) for column in zip(*expirations, strict=True))
        return self._connection.execute(_INDEX, (self._lane, times, sequences)).rowcount

    def _state(self) -> LaneState | None:
        found = fetch(self._connection, _STATE, (self._lane,))
        return LaneState(*found[0]) if found else None

    def _put_state(self, state: LaneState) -> bool:
        if state == self._state():
            return False
        self._connection.execute(_PUT_STATE, (self._lane, *state))
        return True

    def _clear_deliveries(self) -> int:
        entries = StoredEntries(self._connection)
        cleared = last = 0
        while rows := fetch(self._connection, _DELIVERIES, (self._lane, last, STEP)):
            last = rows[-1][0]
            strays = [sequence for (sequence,) in rows if not entries.find(self._lane, sequence)]
            if strays:
                cleared += self._connection.execute(_CLEAR, (self._lane, strays)).rowcount
        return cleared


def _across_pages(pair: PagePair, entries: list[Entry]) -> list[Entry]:
    """Entries as they are stored: the last one leads nowhere, the first one may lead to a record that is gone."""
    first = entries[0]
    known = pair.entries()[0].previous if pair.usable else 0
    if first.previous <= known < first.sequence:
        entries = [first._replace(previous=known), *entries[1:]]
    return [*entries[:-1], entries[-1]._replace(next=0)]


def stray_expirations(connection: Connection) -> Iterator[tuple[int, int, int]]:
    """Expirations that belong to no record: expiration, lane, sequence. They may be removed meanwhile."""
    entries = StoredEntries(connection)
    for expiration, lane, sequence in all_rows(connection, _EXPIRATIONS):
        entry = entries.find(lane, sequence)
        if entry is None or entry.expiration != expiration:
            yield expiration, lane, sequence


OLD_SECONDS = 300  # a transaction that is open for longer than this stops VACUUM for too long
OLD_TRANSACTIONS = 1_000_000
"""So many transactions may have begun since the oldest one that a slot or a standby may still read."""

KEPT_LOG = 1 << 30  # so many bytes of the write-ahead log may an unused slot keep
SPARE_FACTOR = 4  # the tables may take this many times the bytes of the messages, beside ``SPARE_BYTES``
SPARE_BYTES = 1 << 30

_SETTINGS = """
SELECT name, reset_val FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'zero_damaged_pages', 'autovacuum',
    'synchronous_standby_names', 'statement_timeout', 'transaction_timeout')
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
_SERVER_SIZES = """
SELECT (SELECT coalesce(sum(bytes), 0) FROM lanes)::bigint AS messages,
    (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
     WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r')::bigint AS tables
"""

_LIMITS = ("statement_timeout", "transaction_timeout")

ServerRow = Mapping[str, Any]


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
    (sizes,) = rows(_SERVER_SIZES)
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


def about_settings(settings: Mapping[str, str], *, pooled: bool) -> Iterator[Notice]:
    """Settings that endanger messages. The store makes those of its sessions itself, unless a pooler shares them."""
    notices = [
        Notice(each.state, f"{each.name} is {each.value}: {each.danger}", each.advice)
        for each in _WRONG
        if settings.get(each.name) == each.value
    ]
    for name in _LIMITS if pooled else ():
        if settings.get(name, "0") != "0":
            text = f"{name} is {settings[name]} ms: the server may cancel commits and reads that take longer"
            notices.append(Notice("warning", text, f"Set it to 0 for the store's role: ALTER ROLE ... SET {name} = 0."))
    standbys = settings.get("synchronous_standby_names")
    kept = f"commits wait for the standbys {standbys}" if standbys else "commits wait for no standby"
    yield from notices or [Notice("ok", f"its settings keep what it confirms; {kept}")]


def about_rights(rights: ServerRow) -> Iterator[Notice]:
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


def _about_holder(row: ServerRow) -> Notice | None:
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
    text = f"its tables take {format_size(tables)} for {format_size(messages)} of messages"
    if tables > SPARE_FACTOR * messages + SPARE_BYTES:
        return Notice(
            "warning", text, "See what stops VACUUM. `quire store compact` frees the space of a stopped broker."
        )
    return Notice("ok", text)


_PAGES_AT_ONCE = 1000
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_LOCK = "LOCK TABLE lanes, pages, expirations, deliveries IN SHARE ROW EXCLUSIVE MODE"
_LANES = """WITH RECURSIVE paged (lane) AS (SELECT min(lane) FROM pages UNION ALL
    SELECT (SELECT min(lane) FROM pages p WHERE p.lane > paged.lane) FROM paged WHERE lane IS NOT NULL)
    SELECT lane FROM lanes UNION SELECT lane FROM paged WHERE lane IS NOT NULL ORDER BY lane"""
_UNINDEXED = """SELECT sequence FROM unnest(%s::bigint[], %s::bigint[]) AS e (expiration, sequence) WHERE NOT EXISTS
    (SELECT FROM expirations x WHERE x.expiration = e.expiration AND x.lane = %s AND x.sequence = e.sequence)"""
_SHRINK = "UPDATE pages SET last = %s, entries = %s, body = %s WHERE lane = %s AND first = %s"
_WHO = "SELECT token FROM owner WHERE id = 1"
_HAS_OWNER = "SELECT to_regclass('owner') IS NOT NULL"
_WRONG_OWNERS = "SELECT id, name FROM owner WHERE id <> 1 ORDER BY id"
_SIZE = """SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"""


class PostgresqlMaintenance(StoreMaintenance):
    """Maintenance through the tables. What only reads has a snapshot of its own, beside that of verify."""

    errors = (psycopg.Error,)

    def __init__(self, store: Store) -> None:
        self._database = Database(store.url)

    @contextmanager
    def _transaction(self, *beginning: str) -> Iterator[Connection]:
        """A transaction that begins with some statements, and may take long."""
        with self._database.transaction() as connection:
            for statement in ("SET LOCAL statement_timeout = 0", *beginning):
                connection.execute(statement.encode())
            yield connection

    def lanes(self) -> list[int]:
        with self._transaction() as connection:
            return [lane for (lane,) in fetch(connection, _LANES)]

    def inspect(self, reader: StoreReader, lane: int) -> Iterator[Finding]:
        """What is wrong within pages, and between them."""
        before = 0
        with self._transaction(_SNAPSHOT) as connection:
            for page in stored_pages(connection, lane):
                if not (page.pair.readable and page.pair.in_order):
                    text = f"the entries of the page of record {page.pair.first} cannot be read"
                    yield Finding(Problem.UNREADABLE, lane, page.pair.first, text)
                else:
                    yield from _inspect_page(lane, page, before)
                    yield from _unindexed(connection, lane, page)
                    before = page.pair.entries()[-1].sequence

    def inspect_indexes(self, reader: StoreReader) -> Iterator[Finding]:
        """Expirations that belong to no record, delivery states that belong to no lane, and the row of the owner."""
        with self._transaction(_SNAPSHOT) as connection:
            for expiration, lane, sequence in stray_expirations(connection):
                text = f"the index has an expiration at {expiration} of record {sequence}, which is missing"
                yield Finding(Problem.WRONG_EXPIRATION, lane, sequence, text)
            for lane, sequence in all_rows(connection, f"SELECT d.lane, d.sequence {_WITHOUT_LANE}"):
                text = f"the store has a delivery state of record {sequence} of lane {lane}, which is missing"
                yield Finding(Problem.STRAY_DELIVERY, lane, sequence, text)
            has_owner = fetch(connection, _HAS_OWNER)[0][0]  # the table is made with the first lock
            for number, name in fetch(connection, _WRONG_OWNERS) if has_owner else ():
                text = f"the table owner has a row {number} of {name!r}; only row 1 says who may write"
                yield Finding(Problem.WRONG_OWNER, 0, 0, text)

    def repair(self, damaged_file: Path) -> RepairReport:
        """Rebuild links, states and indexes from the bodies of the pages."""
        damaged = DamagedFile(damaged_file)
        done: Counter[str] = Counter()
        numbers = self.lanes()
        with self._transaction(_LOCK) as connection:
            token = fetch(connection, _WHO)
            for lane in numbers:
                PostgresqlLaneRepair(connection, lane, damaged, done).run()
            strays = stray_expirations(connection)
            done["cleared"] += sum([connection.execute(_CLEAR_EXPIRATION, stray).rowcount for stray in strays])
            done["cleared"] += connection.execute(f"DELETE {_WITHOUT_LANE}".encode()).rowcount
            done["owners"] += connection.execute("DELETE FROM owner WHERE id <> 1").rowcount
            damaged.close()
            if fetch(connection, _WHO) != token:
                raise StoreLocked("another broker took the store during the repair, which changed nothing: stop it")
        return RepairReport(**done, damaged_file=damaged.path)

    def compact(self) -> None:
        """Rewrite pages of which less than half is in use, then every table (``VACUUM FULL``), locked meanwhile."""
        for lane in self.lanes():
            start: int | None = 0
            while start is not None:
                with self._transaction() as connection:
                    start = _shrink(connection, lane, start)
        with closing(self._database.connect()) as connection:
            for table in TABLES:
                connection.execute(f"VACUUM FULL {self._database.prefix}{table}".encode())

    def backup(self, target: Path) -> None:
        raise InvalidArgument("a PostgreSQL store is copied with PostgreSQL's own tools: pg_dump and pg_restore")

    def files(self) -> list[Path]:
        return []

    def disk_bytes(self) -> int:
        with self._transaction() as connection:
            return int(fetch(connection, _SIZE)[0][0])

    def surroundings(self) -> Iterator[Notice]:
        with self._transaction() as connection:
            yield from examine_server(connection)


def _inspect_page(lane: int, page: PostgresqlPage, before: int) -> Iterator[Finding]:
    """What is wrong with a page that can be read; ``before`` is the last record of the page before."""
    entries = page.pair.entries()
    if wrong := page.wrong_columns():
        text = f"the page of record {page.pair.first}: {wrong}"
        yield Finding(Problem.WRONG_PAGE, lane, page.pair.first, text)
    first, last = entries[0], entries[-1]
    if not before <= first.previous < first.sequence:
        text = f"record {first.sequence}: previous is {first.previous}; by the records it is {before}"
        yield Finding(Problem.BROKEN_PREVIOUS, lane, first.sequence, text)
    if last.next:
        text = f"record {last.sequence}: next is {last.next}; the last record of a page has none"
        yield Finding(Problem.BROKEN_NEXT, lane, last.sequence, text)
    yield from page.pair.wrong_links(lane)


def _unindexed(connection: Connection, lane: int, page: PostgresqlPage) -> Iterator[Finding]:
    expiring = [(entry.expiration, entry.sequence) for entry in page.pair.entries() if entry.expiration > 0]
    if not expiring:
        return
    times, sequences = (list(column) for column in zip(*expiring, strict=True))
    for (sequence,) in fetch(connection, _UNINDEXED, (times, sequences, lane)):
        text = f"record {sequence} expires, but its expiration is not in the index"
        yield Finding(Problem.WRONG_EXPIRATION, lane, sequence, text)


def _shrink(connection: Connection, lane: int, start: int) -> int | None:
    """Rewrite the sparse ones among some pages of a lane; returns where to continue, None at the lane's end."""
    last: int | None = None
    for page in islice(stored_pages(connection, lane, start), _PAGES_AT_ONCE):
        pair, last = page.pair, page.pair.first
        if pair.readable and pair.sparse():
            entries, body = live_page(pair.entries(), pair.body)
            change = (entries[-1].sequence, pack_entries(entries), body, lane, pair.first)
            connection.execute(_SHRINK, change)
    return None if last is None else last + 1
