"""The commit of a PostgreSQL store: from a batch to one statement, and to its outcome.

A commit is one statement, so it is one trip to the server, it is atomic, and it is never left open: a process that is
stopped in the middle of it holds no lock. It is put together from parts, of which each changes one table. Its first
part is the fence: it lets the commit pass only if the epoch is the owner's and the commit is the next one. Without it
the statement divides by zero, and nothing is stored.

A large commit is a transaction: its large parts are sent first, a statement for each, and the fence with the rest last.
So the owner's row is not locked for long, and the lease can be renewed meanwhile.

The parts of a statement do not see each other's rows. So what a batch both appends and removes is in none of them.
"""

import json
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple, TypeVar

import psycopg
from psycopg import errors
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from quire.errors import StoreError, StoreUnreachable
from quire.store.base import StoredDestination, WriteBatch, mark_key, tells_of_damage
from quire.store.postgresql.database import Database, is_lost, is_pooled
from quire.store.postgresql.lane import KnownLane, LaneCache, LaneEdit, WriterReads
from quire.store.postgresql.ownership import Ownership

FENCED = "22012"  # the SQLSTATE of a commit that the fence refused: a division by zero
_FENCE = "UPDATE {p}owner SET commit = $1::int8 WHERE id = 1 AND epoch = $2::int8 AND commit = $1::int8 - 1 RETURNING 1"
_FENCE_VALUES = 2


class Part(NamedTuple):
    """A part of a commit: in ``sql`` a ``$`` is one of its values, in their order, and ``{p}`` the schema."""

    name: str
    sql: str


PUT_ONE = Part(
    "put_one",
    "INSERT INTO {p}pages (lane, first, last, live, entries, body)"
    " VALUES ($::int8, $::int8, $::int8, $::int8, $::bytea, $::bytea)",
)
PUT = Part(
    "put",
    "INSERT INTO {p}pages (lane, first, last, live, entries, body)"
    " SELECT * FROM unnest($::int8[], $::int8[], $::int8[], $::int8[], $::bytea[], $::bytea[])",
)
GONE_ONE = Part("gone_one", "DELETE FROM {p}pages WHERE lane = $::int8 AND first BETWEEN $::int8 AND $::int8")
GONE = Part(
    "gone",
    "DELETE FROM {p}pages p USING unnest($::int8[], $::int8[], $::int8[]) r (lane, low, high)"
    " WHERE p.lane = r.lane AND p.first BETWEEN r.low AND r.high",
)
CUT_ONE = Part(
    "cut_one", "UPDATE {p}pages SET live = $::int8, entries = $::bytea WHERE lane = $::int8 AND first = $::int8"
)
CUT = Part(
    "cut",
    "UPDATE {p}pages p SET live = c.live, entries = c.entries"
    " FROM unnest($::int8[], $::bytea[], $::int8[], $::int8[]) c (live, entries, lane, first)"
    " WHERE p.lane = c.lane AND p.first = c.first",
)
_STATE = "head, tail, count, bytes, next_sequence, dispatch_mark"
_NEW_STATE = ", ".join([f"{name} = excluded.{name}" for name in _STATE.split(", ")])
STATE_ONE = Part(
    "state_one",
    f"UPDATE {{p}}lanes SET ({_STATE}) = ROW ($::int8, $::int8, $::int8, $::int8, $::int8, $::int8)"
    " WHERE lane = $::int8",
)
STATE = Part(
    "state",
    f"INSERT INTO {{p}}lanes ({_STATE}, lane)"
    " SELECT * FROM unnest($::int8[], $::int8[], $::int8[], $::int8[], $::int8[], $::int8[], $::int8[])"
    f" ON CONFLICT (lane) DO UPDATE SET {_NEW_STATE}",
)
EXPIRE = Part(
    "expire",
    "INSERT INTO {p}expirations (expiration, lane, sequence) SELECT * FROM unnest($::int8[], $::int8[], $::int8[])",
)
UNEXPIRE = Part(
    "unexpire",
    "DELETE FROM {p}expirations e USING unnest($::int8[], $::int8[], $::int8[]) r (expiration, lane, sequence)"
    " WHERE e.expiration = r.expiration AND e.lane = r.lane AND e.sequence = r.sequence",
)
DELIVER = Part(
    "deliver",
    "INSERT INTO {p}deliveries (lane, sequence, deliveries, failures, not_before, cause)"
    " SELECT * FROM unnest($::int8[], $::int8[], $::int8[], $::int8[], $::int8[], $::text[])"
    " ON CONFLICT (lane, sequence) DO UPDATE SET deliveries = excluded.deliveries, failures = excluded.failures,"
    " not_before = excluded.not_before, cause = excluded.cause",
)
FORGET = Part(
    "forget",
    "DELETE FROM {p}deliveries d USING unnest($::int8[], $::int8[], $::int8[]) r (lane, low, high)"
    " WHERE d.lane = r.lane AND d.sequence BETWEEN r.low AND r.high",
)
PRODUCERS = Part(
    "producers",
    "INSERT INTO {p}producers (producer, sequence) SELECT * FROM unnest($::text[], $::int8[])"
    " ON CONFLICT (producer) DO UPDATE SET sequence = excluded.sequence",
)
PRODUCERS_GONE = Part("producers_gone", "DELETE FROM {p}producers WHERE producer = ANY ($::text[])")
MARKS = Part(
    "marks",
    "INSERT INTO {p}marks (key, value) SELECT * FROM unnest($::text[], $::bytea[])"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
)
MARKS_GONE = Part("marks_gone", "DELETE FROM {p}marks WHERE key = ANY ($::text[])")
DESTINATIONS = Part(
    "destinations",
    "INSERT INTO {p}destinations (id, kind, name, settings, lanes)"
    " SELECT id, kind, name, settings::json, lanes::json"
    " FROM unnest($::int8[], $::text[], $::text[], $::text[], $::text[]) d (id, kind, name, settings, lanes)"
    " ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, name = excluded.name, settings = excluded.settings,"
    " lanes = excluded.lanes",
)
DESTINATIONS_GONE = Part("destinations_gone", "DELETE FROM {p}destinations WHERE id = ANY ($::int8[])")
DROPPED = tuple(
    Part(f"dropped_{table}", f"DELETE FROM {{p}}{table} WHERE lane = ANY ($::int8[])")
    for table in ("pages", "deliveries", "expirations", "lanes")
)

AHEAD = frozenset({PUT_ONE.name, PUT.name, CUT_ONE.name, CUT.name, MARKS.name})
"""The parts that may be large, and may be sent before the fence if they are."""

Change = list[tuple[Part, list[bytes]]]
"""A commit: its parts with their values. Each part is there once, or is one of those that may be sent ahead."""


class Statement(NamedTuple):
    """A statement for commits with the same parts."""

    name: bytes  # of the prepared statement
    text: bytes
    formats: list[int]  # that every value is binary


class Statements:
    """The statements of one store. They differ in few ways: most commits have two to four parts.

    ``ending`` is what else the statement selects.
    """

    def __init__(self, prefix: str, ending: str = "") -> None:
        self._prefix = prefix
        self._ending = ending
        self._known: dict[tuple[str, ...], Statement] = {}

    def of(self, change: Change) -> Statement:
        """The statement of a commit. Its values are the number of the commit, the epoch, then those of the parts."""
        names = tuple([part.name for part, _ in change])
        statement = self._known.get(names)
        if statement is None:
            statement = self._known[names] = self._make(len(self._known), [part for part, _ in change])
        return statement

    def alone(self, part: Part) -> bytes:
        """The statement of a part that is sent ahead."""
        return _numbered(part, 0)[0].format(p=self._prefix).encode()

    def _make(self, number: int, parts: list[Part]) -> Statement:
        count = _FENCE_VALUES
        steps = [f"fence AS ({_FENCE})"]
        for part in parts:
            sql, values = _numbered(part, count)
            steps.append(f"{part.name} AS ({sql})")
            count += values
        text = f"WITH {', '.join(steps)} SELECT 1 / count(*){self._ending} FROM fence"
        return Statement(b"quire_%d" % number, text.format(p=self._prefix).encode(), [1] * count)


def _numbered(part: Part, before: int) -> tuple[str, int]:
    """The text of a part with its values numbered, and how many they are; ``before`` come before them."""
    first, *others = part.sql.split("$")
    return first + "".join([f"${before + place}{text}" for place, text in enumerate(others, 1)]), len(others)


INT8 = 20
BYTEA = 17
TEXT = 25
"""The object ids of types (``pg_type``)."""

_HEAD = Struct(">iiiii")
_LENGTH = Struct(">i")
_EMPTY = Struct(">iii")
_ELEMENT = Struct(">iq")


def int8(value: int) -> bytes:
    """A number of 8 bytes."""
    return value.to_bytes(8, "big", signed=True)


def int8_array(values: Sequence[int]) -> bytes:
    """An array of ``bigint``."""
    count = len(values)
    if not count:
        return _EMPTY.pack(0, 0, INT8)
    element = _ELEMENT.pack
    return _HEAD.pack(1, 0, INT8, count, 1) + b"".join([element(8, value) for value in values])


def bytea_array(values: Sequence[bytes]) -> bytes:
    """An array of ``bytea``."""
    return _of_bytes(BYTEA, values)


def text_array(values: Sequence[str]) -> bytes:
    """An array of ``text``."""
    return _of_bytes(TEXT, [value.encode() for value in values])


def _of_bytes(kind: int, values: Sequence[bytes]) -> bytes:
    if not values:
        return _EMPTY.pack(0, 0, kind)
    parts: list[bytes] = [_HEAD.pack(1, 0, kind, len(values), 1)]
    for value in values:
        parts.append(_LENGTH.pack(len(value)))
        parts.append(value)
    return b"".join(parts)


STEP_BYTES = 16 * 2**20
"""How many bytes of a commit are one statement. PostgreSQL takes less than 1 GiB; a short one holds locks shortly."""

Row = TypeVar("Row")
_Numbers = Sequence[tuple[int, ...]]


def change_of(edits: list[LaneEdit], batch: WriteBatch, dropped: list[int]) -> Change:
    """All of a batch: the edits of its lanes, and the rest. Empty if it changes nothing."""
    change: Change = []
    changed = [edit for edit in edits if edit.is_change]
    if changed:
        _add_pages(change, changed)
        _add_states(change, changed)
        _add_records(change, changed)
    if batch.producers:
        _add_producers(change, batch.producers)
    if batch.marks:
        _add_marks(change, batch.marks)
    if batch.destinations:
        _add_destinations(change, batch.destinations, dropped)
    return change


def _add_pages(change: Change, edits: list[LaneEdit]) -> None:
    pages = [(edit.lane, page.known, page.body) for edit in edits for page in edit.new]
    for new in in_steps(pages, [len(body) + len(page.entries) for _, page, body in pages]):
        if len(new) == 1:
            lane, page, body = new[0]
            place = [int8(number) for number in (lane, page.first, page.last, page.count)]
            change.append((PUT_ONE, [*place, page.entries, body]))
        else:
            places = _columns([(lane, page.first, page.last, page.count) for lane, page, _ in new])
            entries, bodies = [page.entries for _, page, _ in new], [body for _, _, body in new]
            change.append((PUT, [*places, bytea_array(entries), bytea_array(bodies)]))
    gone = [(edit.lane, low, high) for edit in edits if edit.gone for low, high in edit.ranges()]
    if len(gone) == 1:
        change.append((GONE_ONE, [int8(number) for number in gone[0]]))
    elif gone:
        change.append((GONE, _columns(gone)))
    links = [(links.count, bytes(links.data), edit.lane, first) for edit in edits for first, links in edit.cut.items()]
    for cut in in_steps(links, [len(data) for _, data, _, _ in links]):
        if len(cut) == 1:
            live, data, lane, first = cut[0]
            change.append((CUT_ONE, [int8(live), data, int8(lane), int8(first)]))
        else:
            counts, *places = _columns([(live, lane, first) for live, _, lane, first in cut])
            change.append((CUT, [counts, bytea_array([data for _, data, _, _ in cut]), *places]))


def _add_states(change: Change, edits: list[LaneEdit]) -> None:
    states = [(*edit.state, edit.lane) for edit in edits]
    if len(states) == 1 and edits[0].known.is_stored:
        change.append((STATE_ONE, [int8(number) for number in states[0]]))
    else:
        change.append((STATE, _columns(states)))


def _add_records(change: Change, edits: list[LaneEdit]) -> None:
    """Expirations and delivery states of records, which are rare."""
    expiring = [(time, edit.lane, sequence) for edit in edits for time, sequence in edit.expiring]
    _add_numbers(change, EXPIRE, expiring)
    expired = [(time, edit.lane, sequence) for edit in edits for time, sequence in edit.expired]
    _add_numbers(change, UNEXPIRE, expired)
    forgotten = [(edit.lane, low, high) for edit in edits for low, high in edit.forgotten]
    _add_numbers(change, FORGET, forgotten)
    if states := [(edit.lane, sequence, state) for edit in edits for sequence, state in edit.states.items()]:
        numbers = _columns([(lane, sequence, *state[:3]) for lane, sequence, state in states])
        # A text of PostgreSQL has no NUL character; a cause is for people.
        causes = text_array([state.cause.replace("\0", "\ufffd") for _, _, state in states])
        change.append((DELIVER, [*numbers, causes]))


def _add_numbers(change: Change, part: Part, rows: _Numbers) -> None:
    if rows:
        change.append((part, _columns(rows)))


def _add_producers(change: Change, producers: Mapping[str, int | None]) -> None:
    if kept := {producer: sequence for producer, sequence in producers.items() if sequence is not None}:
        change.append((PRODUCERS, [text_array(list(kept)), int8_array(list(kept.values()))]))
    if gone := [producer for producer, sequence in producers.items() if sequence is None]:
        change.append((PRODUCERS_GONE, [text_array(gone)]))


def _add_marks(change: Change, marks: Mapping[str, bytes | None]) -> None:
    for key in marks:
        mark_key(key)
    kept = [(key, value) for key, value in marks.items() if value is not None]
    for some in in_steps(kept, [len(value) for _, value in kept]):
        keys, values = zip(*some, strict=True)
        change.append((MARKS, [text_array(keys), bytea_array(values)]))
    if gone := [key for key, value in marks.items() if value is None]:
        change.append((MARKS_GONE, [text_array(gone)]))


def _add_destinations(change: Change, destinations: Mapping[int, StoredDestination | None], dropped: list[int]) -> None:
    if kept := [found for found in destinations.values() if found is not None]:
        texts = zip(*[(d.kind, d.name, json.dumps(d.settings), json.dumps(d.lanes)) for d in kept], strict=True)
        ids = int8_array([destination.id for destination in kept])
        change.append((DESTINATIONS, [ids, *[text_array(column) for column in texts]]))
    if gone := [number for number, found in destinations.items() if found is None]:
        change.append((DESTINATIONS_GONE, [int8_array(gone)]))
    if dropped:
        change.extend([(part, [int8_array(dropped)]) for part in DROPPED])


def in_steps(rows: list[Row], sizes: list[int]) -> list[list[Row]]:
    """Rows in portions of at most ``STEP_BYTES``, a larger one alone."""
    if sum(sizes) <= STEP_BYTES:
        return [rows] if rows else []
    steps: list[list[Row]] = []
    left = 0
    for row, size in zip(rows, sizes, strict=True):
        if not steps or size > left:
            steps.append([])
            left = STEP_BYTES
        steps[-1].append(row)
        left -= size
    return steps


def _columns(rows: _Numbers) -> list[bytes]:
    """Rows of numbers as arrays, one for each column."""
    return [int8_array(column) for column in zip(*rows, strict=True)]


COMMIT_TRIES = 5
"""How many connections a commit is tried with, one after the other, as long as they are lost before the commit."""

MOST_PREPARED = 100  # how many statements a connection keeps prepared; commits that differ from all of them are rare
MOST_BYTES = 2**30 - 2**20  # how large a value may be: the server takes no longer message

# A process that is stopped in the middle holds its locks for so long only.
_BEGIN = b"BEGIN; SET LOCAL idle_in_transaction_session_timeout TO '5s'"

_BINARY = 1


class Committer:
    """Commits over the connection of the owner."""

    def __init__(self, database: Database, ownership: Ownership, *, durable: bool) -> None:
        self._database = database
        self._ownership = ownership
        self._durable = durable
        self._connection: psycopg.Connection | None = None  # which the rest is about
        self._prepared: set[bytes] = set()
        self._most_prepared = MOST_PREPARED
        self._statements = Statements(database.prefix)

    def commit(self, change: Change) -> None:
        """Commit, with further connections until the outcome is known.

        Raises:
            StoreError: nothing was stored; the kind says why.
        """
        ownership, lost = self._ownership, None
        for _ in range(COMMIT_TRIES):
            connection = ownership.writer
            number = ownership.commits + 1
            try:
                self._execute(connection, number, change)
                if ownership.is_replicated:
                    ownership.commits = number
                    return
            except psycopg.Error as error:
                if error.sqlstate == FENCED:
                    raise ownership.fenced() from error
                if not is_lost(error):
                    raise
                lost = error
            if ownership.decide(number):
                return
        raise StoreUnreachable(f"{COMMIT_TRIES} connections were lost: {lost}", url=self._database.place) from lost

    def _execute(self, connection: psycopg.Connection, number: int, change: Change) -> None:
        """Send a commit and wait until it is on disk, in one trip; the interpreter is free meanwhile."""
        if connection is not self._connection:
            self._use(connection)
        self._ownership.is_replicated = True
        values: list[bytes] = [int8(number), int8(self._ownership.epoch)]
        for _, more in change:
            values += more
        if sum(map(len, values)) > STEP_BYTES:
            self._execute_in_steps(connection, number, change)
        else:
            self._send(connection, change, values)

    def _send(self, connection: psycopg.Connection, change: Change, values: list[bytes]) -> None:
        """Send the statement with the fence."""
        statement, pgconn = self._statements.of(change), connection.pgconn
        if statement.name in self._prepared or self._prepare(connection, statement):
            result = pgconn.exec_prepared(statement.name, values, statement.formats, _BINARY)
        else:
            result = pgconn.exec_params(statement.text, values, None, statement.formats, _BINARY)
        if result.status != ExecStatus.TUPLES_OK:
            raise _error_of(connection, result)

    def _execute_in_steps(self, connection: psycopg.Connection, number: int, change: Change) -> None:
        """Send a large commit: in a transaction what may be large, a part at a time, then the rest with the fence."""
        for part, values in change:
            if sum(map(len, values)) > MOST_BYTES:
                text = f"PostgreSQL takes no value of more than {MOST_BYTES} bytes, and {part.name} has one"
                raise StoreError(text, url=self._database.place)
        rest: Change = [(part, values) for part, values in change if part.name not in AHEAD]
        pgconn = connection.pgconn
        _check(connection, pgconn.exec_(_BEGIN))
        try:
            for part, values in change:
                if part.name in AHEAD:
                    step, formats = self._statements.alone(part), [_BINARY] * len(values)
                    _check(connection, pgconn.exec_params(step, values, None, formats, _BINARY))
            fence = [int8(number), int8(self._ownership.epoch)]
            self._send(connection, rest, [*fence, *[value for _, values in rest for value in values]])
        except psycopg.Error:
            pgconn.exec_(b"ROLLBACK")  # an error of its own is that of a lost connection
            raise
        _check(connection, pgconn.exec_(b"COMMIT"))

    def _use(self, connection: psycopg.Connection) -> None:
        """A new connection has nothing prepared. Behind a pooler, settings hold for one transaction only."""
        is_shared = is_pooled(connection)
        ending = f", set_config('synchronous_commit', '{'on' if self._durable else 'off'}', true)" if is_shared else ""
        self._statements = Statements(self._database.prefix, ending)
        self._prepared = set()
        self._most_prepared = 0 if is_shared else MOST_PREPARED
        self._connection = connection

    def _prepare(self, connection: psycopg.Connection, statement: Statement) -> bool:
        """Prepare a statement, if there are not too many yet. Not every pooler keeps what is prepared."""
        if len(self._prepared) >= self._most_prepared:
            return False
        _check(connection, connection.pgconn.prepare(statement.name, statement.text))
        self._prepared.add(statement.name)
        return True


def _check(connection: psycopg.Connection, result: PGresult) -> None:
    if result.status != ExecStatus.COMMAND_OK:
        raise _error_of(connection, result)


def _error_of(connection: psycopg.Connection, result: PGresult) -> psycopg.Error:
    """What a statement failed with."""
    error = errors.error_from_result(result)
    return psycopg.OperationalError(str(error)) if connection.closed and not error.sqlstate else error


class BatchWriter:
    """Writes the batches of one store."""

    def __init__(self, database: Database, ownership: Ownership, committer: Committer) -> None:
        self._database = database
        self._ownership = ownership
        self._committer = committer
        self.cache = LaneCache()

    @tells_of_damage
    def write(self, batch: WriteBatch) -> None:
        """Commit a batch. After an error nothing of it is stored, and what is known stays true."""
        edits, dropped = self._edits(batch)
        try:
            if change := change_of(edits, batch, dropped):
                self._committer.commit(change)
            for edit in edits:
                edit.commit()
                batch.lanes[edit.lane].state = edit.state
            for lane in dropped:
                self.cache.drop(lane)
        finally:
            for edit in edits:
                self.cache.put(edit.lane, edit.known)

    def _edits(self, batch: WriteBatch) -> tuple[list[LaneEdit], list[int]]:
        """What a batch changes, and the lanes that it drops. Nothing was sent yet: a lost connection is replaced."""
        for tries_left in reversed(range(COMMIT_TRIES)):
            try:
                return self._read_edits(batch)
            except psycopg.Error as error:
                if not tries_left or not is_lost(error):
                    raise
                self._ownership.drop()
        raise AssertionError("the last try raises what it met")

    def _read_edits(self, batch: WriteBatch) -> tuple[list[LaneEdit], list[int]]:
        # Having the right to write comes first: from then on no other broker changes what is known or read.
        reader = WriterReads(self._database.prefix, self._ownership.writer)
        dropped = reader.lanes_of([number for number, found in batch.destinations.items() if found is None])
        lanes = [lane for lane, part in batch.lanes.items() if part and lane not in dropped]
        known = self._known(reader, lanes)
        edits = [LaneEdit(lane, known[lane], reader) for lane in lanes]
        for edit in edits:
            edit.apply(batch.lanes[edit.lane])
        return edits, dropped

    def _known(self, reader: WriterReads, wanted: list[int]) -> dict[int, KnownLane]:
        found = {lane: known for lane in wanted if (known := self.cache.get(lane)) is not None}
        missing = [lane for lane in wanted if lane not in found]
        return {**found, **reader.lanes(missing)} if missing else found
