"""Rows that the broker does not take: which one it is, what is wrong with it, and what goes to a place of its own."""

from typing import Any, NamedTuple

from quire.destination import written
from quire.errors import InvalidDestination, QuireError
from quire.spark.writing.columns import Rows

_SHOWN = 40
"""How many characters of a key and of a body an error shows."""

HEADER = "header"

CAUSE, ORIGIN = "refusal-cause", "refusal-destination"
"""The headers of a row that was set aside; those of dead letters are the broker's own to write."""


class Refusal(NamedTuple):
    """The number of a row among those that were sent, and why it was refused; the header, if it is for one."""

    row: int
    text: str
    header: str | None = None


def refusal(rows: Rows, error: QuireError) -> Refusal | None:
    """The row that an answer is about; None if it is about none of them."""
    if error.entry.retriable:
        return None
    if isinstance(number := error.data.get("row"), int):
        return Refusal(number, str(error).removeprefix(f"row {number}: "), error.data.get(HEADER))
    for number in range(len(rows["value"])):
        if text := _wrong_with(_row(rows, number)):
            return Refusal(number, text)
    return None


def named(rows: Rows, found: Refusal, error: QuireError) -> QuireError:
    """The same error, with what tells its row from others."""
    row = _row(rows, found.row)
    key = f"key {_shown(row['key'])}, " if row.get("key") is not None else ""
    body = "no body" if row["value"] is None else f"a body that begins with {_shown(row['value'])}"
    where = f"the row with {key}{body}, for {row['destination']}"
    return type(error)(f"{where}, cannot be sent: {found.text}", **error.data)


def set_aside(rows: Rows, found: Refusal, to: str) -> Rows:
    """What goes to a place of its own for a refused row: the body, the headers that can be sent, and the cause."""
    row = _row(rows, found.row)
    cause = {CAUSE: found.text[:1000].replace("\0", "?")}
    try:
        origin = written(row["destination"] or "")
        cause[ORIGIN] = f"/{origin.kind}/{origin.name}"
    except InvalidDestination:
        pass
    return {
        "destination": to, "value": [row["value"] or b""], "key": [row.get("key")],
        "headers": [(row.get("headers") or {}) | cause], "persistent": [row.get("persistent")],
    }  # fmt: skip


def without(row: Rows, found: Refusal) -> Rows | None:
    """A row that was set aside, without what it is refused for now; None if nothing can be left out."""
    headers, key = row["headers"][0], row["key"][0]
    kept = {name: value for name, value in headers.items() if name in (CAUSE, ORIGIN)}
    if found.header is not None and found.header not in kept:
        kept = {name: value for name, value in headers.items() if name[:_SHOWN] != found.header[:_SHOWN]}
    if found.header is not None and key is not None and len(kept) == len(headers):
        return row | {"key": [None]}  # the header is that of the key
    return None if (len(kept), key) == (len(headers), None) else row | {"headers": [kept], "key": [key]}


def _row(rows: Rows, number: int) -> dict[str, Any]:
    return {name: column[number] if isinstance(column, list) else column for name, column in rows.items()}


def _wrong_with(row: dict[str, Any]) -> str:
    """What the broker refuses without a word of which row it is."""
    for name in ("value", "destination"):
        if row[name] is None:
            return f"the {name} of a row is null: give each row one"
    for name, most in (("priority", 9), ("partition", (1 << 63) - 1)):
        if row.get(name) is not None and not 0 <= row[name] <= most:
            return f"the {name} of a row is {row[name]}: a number from 0 to {most}"
    try:
        written(row["destination"])
    except InvalidDestination as error:
        return str(error)
    return ""


def _shown(value: str | bytes) -> str:
    text = value if isinstance(value, str) else value[: 4 * _SHOWN].decode("utf-8", "replace")
    return repr(text[:_SHOWN])
