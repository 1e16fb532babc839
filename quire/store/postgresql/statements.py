"""The statement of a commit. It is put together from parts, of which each changes one table.

A commit is one statement, so it is one trip to the server, it is atomic, and it is never left open: a process that is
stopped in the middle of it holds no lock. Its first part is the fence: it lets the commit pass only if the epoch is the
owner's and the commit is the next one. Without it the statement divides by zero, and nothing is stored.

A large commit is a transaction: its large parts are sent first, a statement for each, and the fence with the rest last.
So the owner's row is not locked for long, and the lease can be renewed meanwhile.

The parts of a statement do not see each other's rows. So what a batch both appends and removes is in none of them.
"""

from typing import NamedTuple

FENCED = "22012"
"""The SQLSTATE of a commit that the fence refused: a division by zero."""

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
