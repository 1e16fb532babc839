"""What a batch changes, as the parts of a statement with their values in binary."""

import json
from collections.abc import Mapping, Sequence
from typing import TypeVar

from quire.store.base import StoredDestination, WriteBatch
from quire.store.marks import mark_key
from quire.store.postgresql import statements
from quire.store.postgresql.arrays import bytea_array, int8, int8_array, text_array
from quire.store.postgresql.lane_edit import LaneEdit
from quire.store.postgresql.statements import Change, Part

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
            change.append((statements.PUT_ONE, [*place, page.entries, body]))
        else:
            places = _columns([(lane, page.first, page.last, page.count) for lane, page, _ in new])
            entries, bodies = [page.entries for _, page, _ in new], [body for _, _, body in new]
            change.append((statements.PUT, [*places, bytea_array(entries), bytea_array(bodies)]))
    gone = [(edit.lane, low, high) for edit in edits if edit.gone for low, high in edit.ranges()]
    if len(gone) == 1:
        change.append((statements.GONE_ONE, [int8(number) for number in gone[0]]))
    elif gone:
        change.append((statements.GONE, _columns(gone)))
    links = [(links.count, bytes(links.data), edit.lane, first) for edit in edits for first, links in edit.cut.items()]
    for cut in in_steps(links, [len(data) for _, data, _, _ in links]):
        if len(cut) == 1:
            live, data, lane, first = cut[0]
            change.append((statements.CUT_ONE, [int8(live), data, int8(lane), int8(first)]))
        else:
            counts, *places = _columns([(live, lane, first) for live, _, lane, first in cut])
            change.append((statements.CUT, [counts, bytea_array([data for _, data, _, _ in cut]), *places]))


def _add_states(change: Change, edits: list[LaneEdit]) -> None:
    states = [(*edit.state, edit.lane) for edit in edits]
    if len(states) == 1 and edits[0].known.is_stored:
        change.append((statements.STATE_ONE, [int8(number) for number in states[0]]))
    else:
        change.append((statements.STATE, _columns(states)))


def _add_records(change: Change, edits: list[LaneEdit]) -> None:
    """Expirations and delivery states of records, which are rare."""
    expiring = [(time, edit.lane, sequence) for edit in edits for time, sequence in edit.expiring]
    _add_numbers(change, statements.EXPIRE, expiring)
    expired = [(time, edit.lane, sequence) for edit in edits for time, sequence in edit.expired]
    _add_numbers(change, statements.UNEXPIRE, expired)
    forgotten = [(edit.lane, low, high) for edit in edits for low, high in edit.forgotten]
    _add_numbers(change, statements.FORGET, forgotten)
    if states := [(edit.lane, sequence, state) for edit in edits for sequence, state in edit.states.items()]:
        numbers = _columns([(lane, sequence, *state[:3]) for lane, sequence, state in states])
        # A text of PostgreSQL has no NUL character; a cause is for people.
        causes = text_array([state.cause.replace("\0", "\ufffd") for _, _, state in states])
        change.append((statements.DELIVER, [*numbers, causes]))


def _add_numbers(change: Change, part: Part, rows: _Numbers) -> None:
    if rows:
        change.append((part, _columns(rows)))


def _add_producers(change: Change, producers: Mapping[str, int | None]) -> None:
    if kept := {producer: sequence for producer, sequence in producers.items() if sequence is not None}:
        change.append((statements.PRODUCERS, [text_array(list(kept)), int8_array(list(kept.values()))]))
    if gone := [producer for producer, sequence in producers.items() if sequence is None]:
        change.append((statements.PRODUCERS_GONE, [text_array(gone)]))


def _add_marks(change: Change, marks: Mapping[str, bytes | None]) -> None:
    for key in marks:
        mark_key(key)
    kept = [(key, value) for key, value in marks.items() if value is not None]
    for some in in_steps(kept, [len(value) for _, value in kept]):
        keys, values = zip(*some, strict=True)
        change.append((statements.MARKS, [text_array(keys), bytea_array(values)]))
    if gone := [key for key, value in marks.items() if value is None]:
        change.append((statements.MARKS_GONE, [text_array(gone)]))


def _add_destinations(change: Change, destinations: Mapping[int, StoredDestination | None], dropped: list[int]) -> None:
    if kept := [found for found in destinations.values() if found is not None]:
        texts = zip(*[(d.kind, d.name, json.dumps(d.settings), json.dumps(d.lanes)) for d in kept], strict=True)
        ids = int8_array([destination.id for destination in kept])
        change.append((statements.DESTINATIONS, [ids, *[text_array(column) for column in texts]]))
    if gone := [number for number, found in destinations.items() if found is None]:
        change.append((statements.DESTINATIONS_GONE, [int8_array(gone)]))
    if dropped:
        change.extend([(part, [int8_array(dropped)]) for part in statements.DROPPED])


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
