"""What is asked of the tables by reads. ``{p}`` is the schema."""

_PAGE_OF = "coalesce((SELECT max(first) FROM {p}pages WHERE lane = %(lane)s AND first <= %(start)s), 0)"
_STATES = (
    "(SELECT string_agg(int8send(d.sequence) || int8send(d.deliveries) || int8send(d.failures)"
    " || int8send(d.not_before), ''::bytea) FROM {p}deliveries d"
    " WHERE d.lane = p.lane AND d.sequence BETWEEN p.first AND p.last)"
)

PAGES = (
    "SELECT p.last, p.entries, CASE WHEN p.through <= %(budget)s + 65536 OR p.number = 1 THEN p.body END,"
    f" {_STATES}, p.scanned"
    " FROM (SELECT f.*, sum(f.live) OVER w - f.live AS ahead, sum(f.size) OVER w AS through,"
    " row_number() OVER w AS number, count(*) OVER () AS scanned"
    " FROM (SELECT *, octet_length(body) AS size FROM {p}pages WHERE lane = %(lane)s AND last >= %(start)s"
    f" AND first >= {_PAGE_OF} ORDER BY first LIMIT %(most)s) f WINDOW w AS (ORDER BY f.first)) p"
    " WHERE p.ahead <= %(limit)s AND p.through - p.size <= %(budget)s ORDER BY p.first"
)
"""The pages for a read within a budget. Whether a body is sent is decided from the sizes of the pages up to it."""

LOAD = (
    f"SELECT p.last, p.entries, p.body, {_STATES} FROM {{p}}pages p WHERE p.lane = %(lane)s AND p.first = ANY (ARRAY("
    "SELECT DISTINCT (SELECT max(first) FROM {p}pages WHERE lane = %(lane)s AND first <= s)"
    " FROM unnest(%(sequences)s::int8[]) s)) ORDER BY p.first LIMIT %(most)s"
)

ENTRIES = (
    "SELECT first, entries FROM {p}pages WHERE lane = %(lane)s AND first >= coalesce((SELECT first FROM {p}pages"
    " WHERE lane = %(lane)s AND first <= %(start)s ORDER BY first DESC OFFSET 1 LIMIT 1), 0)"
    " ORDER BY first LIMIT %(most)s"
)
"""The entries of pages from the one before that of a sequence on."""

MORE_ENTRIES = (
    "SELECT first, entries FROM {p}pages WHERE lane = %(lane)s AND first > %(after)s ORDER BY first LIMIT %(most)s"
)

LANE_STATE = "SELECT head, tail, count, bytes, next_sequence, dispatch_mark FROM {p}lanes WHERE lane = %(lane)s"
DELIVERIES = (
    "SELECT sequence, deliveries, failures, not_before, cause FROM {p}deliveries"
    " WHERE lane = %(lane)s AND sequence >= %(start)s ORDER BY sequence LIMIT %(most)s"
)
EXPIRED = (
    "SELECT expiration, lane, sequence FROM {p}expirations"
    " WHERE (expiration, lane, sequence) > (%(time)s::int8, %(lane)s::int8, %(sequence)s::int8)"
    " AND expiration <= %(now)s ORDER BY expiration, lane, sequence LIMIT %(most)s"
)
DESTINATIONS = "SELECT id, kind, name, settings, lanes FROM {p}destinations ORDER BY id"
PRODUCER = "SELECT sequence FROM {p}producers WHERE producer = %(producer)s"

# A column of a database that sorts texts as a language does may have been made before this version.
PRODUCERS = (
    'SELECT producer, sequence FROM {p}producers WHERE producer COLLATE "C" >= %(start)s'
    ' ORDER BY producer COLLATE "C" LIMIT %(most)s'
)
MARK = "SELECT value FROM {p}marks WHERE key = %(key)s"
MARKS = (
    'SELECT key, value FROM {p}marks WHERE key COLLATE "C" >= %(start)s AND (%(end)s::text IS NULL'
    ' OR key COLLATE "C" < %(end)s) ORDER BY key COLLATE "C" LIMIT %(most)s'
)
SIZE = "SELECT coalesce(sum(bytes), 0)::int8 FROM {p}lanes"
