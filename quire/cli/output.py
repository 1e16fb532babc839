"""What verbs print: for people sizes with units, dates and no control characters; for programs the plain values."""

import base64
import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TextIO, TypeVar

import click

from quire.errors import QuireError
from quire.resources import LINE, Status, shown_at, unit_of
from quire.units import format_size

FORMATS = ("table", "json", "ndjson", "csv")

Row = Mapping[str, Any]
Verb = TypeVar("Verb", bound=Callable[..., object])


class Column(NamedTuple):
    key: str  # which value of a row it shows
    heading: str  # what stands over it
    width: int = 0  # how many characters of a value are shown; 0 for all


def columns(*described: str) -> list[Column]:
    """Columns, written ``key``, ``key:Heading`` or ``key::width``; without a heading the key is it, in words."""
    found = []
    for text in described:
        key, heading, width = [*text.split(":"), "", ""][:3]
        found.append(Column(key, heading or key.replace("_", " ").capitalize(), int(width or 0)))
    return found


def columns_of(kind: type[Status]) -> list[Column]:
    return [Column(field.name, field.label, field.shown.width) for field in shown_at(kind, LINE)]


class Output:
    """Prints results in the format the user asked for, one of ``FORMATS``."""

    def __init__(self, format: str = "table") -> None:
        self.format = format  # one of ``FORMATS``

    def rows(self, rows: Iterable[Row], columns: Sequence[Column]) -> None:
        """Print a list. Programs get each row as it comes; a table waits for all, to know its widths."""
        if self.format == "table":
            _print_table([[_cell(row, column) for column in columns] for row in rows], columns)
        else:
            self._print_each(rows, [column.key for column in columns])

    def texts(self, rows: Iterable[Row], keys: Sequence[str], text: Callable[[Row], str]) -> None:
        """Print a list whose rows are too long for a table, each as it comes; ``keys`` are the columns for CSV."""
        if self.format == "table":
            for row in rows:
                click.echo(text(row))
        else:
            self._print_each(rows, keys)

    def record(self, record: Row) -> None:
        if self.format in ("json", "ndjson"):
            click.echo(_json(record))
            return
        flat = _flatten(record)
        if self.format == "csv":
            self._print_each([flat], list(flat))
        else:
            width = max((len(key) for key in flat), default=0)
            for key, value in flat.items():
                click.echo(f"{key:{width}}  {readable(key, value)}")

    def details(self, record: Row, tables: Mapping[str, tuple[str, Sequence[Column]]]) -> None:
        """Print one thing with all it has; people see its lists as tables below the rest."""
        if self.format != "table":
            self.record(record)
            return
        self.record({key: value for key, value in record.items() if key not in tables})
        for key, (heading, columns) in tables.items():
            if rows := record.get(key):
                click.echo(f"\n{heading}")
                self.rows(rows, columns)

    def done(self, sentence: str, result: Row) -> None:
        """Say what a verb did: the sentence to people, the result to programs."""
        if self.format == "table":
            click.echo(printable(sentence))
        else:
            self.record(result)

    def note(self, sentence: str) -> None:
        """Tell people something beside the result, on standard error."""
        if self.format == "table":
            click.echo(printable(sentence), err=True)

    def error(self, error: QuireError) -> None:
        """Print an error on standard error: what went wrong, what to do, the code."""
        if self.format in ("json", "ndjson"):
            entry = {"code": error.code, "text": str(error), "advice": error.entry.advice, "data": error.data}
            click.echo(_json({"error": entry}), err=True)
        else:
            click.echo(f"error: {printable(str(error))}", err=True)
            click.echo(f"what to do: {error.entry.advice} ({error.code})", err=True)

    def _print_each(self, rows: Iterable[Row], keys: Sequence[str]) -> None:
        if self.format == "csv":
            click.echo(_csv_line(keys), nl=False)
            for row in rows:
                click.echo(_csv_line([_plain(row.get(key)) for key in keys]), nl=False)
        elif self.format == "ndjson":
            for row in rows:
                click.echo(_json(row))
        else:
            before = "["
            try:
                for row in rows:
                    click.echo(f"{before}\n{_json(row)}", nl=False)
                    before = ","
            finally:  # what was printed before an error is valid
                click.echo("[]" if before == "[" else "\n]")


def output_option(verb: Verb) -> Verb:
    """The option ``--output``, for the program and for every verb; the one nearest to the verb counts."""
    return click.option(
        "--output",
        type=click.Choice(FORMATS),
        expose_value=False,
        callback=_choose_format,
        help="The format of results; table is for people.",
    )(verb)


def confirm(question: str, yes: bool) -> None:
    """Ask before something is destroyed, unless the user has said ``--yes`` or no person is there; end at a no."""
    if not yes and on_terminal(sys.stdin):
        click.confirm(printable(question), abort=True, err=True)


def on_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def readable(key: str, value: object) -> str:
    """A value as people read it; its name says whether a number is a size, a time or an age."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _readable_number(key, value)
    if isinstance(value, Mapping):
        return ", ".join(f"{inner}: {readable(inner, part)}" for inner, part in value.items()) or "-"
    if isinstance(value, list):
        return "; ".join(readable(key, part) for part in value) or "-"
    return printable(str(value))


def messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def encode_body(body: bytes) -> tuple[str, str]:
    """A body as JSON can carry it: as ``text``, or as ``base64`` when it is not UTF-8."""
    try:
        return body.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def printable_lines(text: str) -> str:
    return "".join(char if char in "\n\t" else printable(char) for char in text)


def _choose_format(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    output = context.ensure_object(Output)
    if value is not None:
        output.format = value


def _readable_number(name: str, value: float) -> str:
    match unit_of(name):
        case "size":
            return format_size(value)
        case "span":
            return f"{value:.1f} s" if value < 60 else str(timedelta(seconds=round(value)))
        case "time":
            return datetime.fromtimestamp(value / 1000, UTC).isoformat(" ", "seconds") if value else "-"
    return str(value)


def _cell(row: Row, column: Column) -> str:
    value = row.get(column.key)
    # The heading says what it is, so the values are enough.
    parts = value if isinstance(value, Mapping) and value else {column.key: value}
    text = ", ".join(readable(key, part) for key, part in parts.items())
    return text[: column.width - 1] + "…" if column.width and len(text) > column.width else text


def _print_table(rows: list[list[str]], columns: Sequence[Column]) -> None:
    if on_terminal(sys.stdout):
        _print_rich_table(rows, columns)
        return
    headings = [column.heading for column in columns]
    widths = [max(len(line[i]) for line in [headings, *rows]) for i in range(len(columns))]
    for line in [headings, *rows]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_rich_table(rows: list[list[str]], columns: Sequence[Column]) -> None:
    # Rich takes a tenth of a second to import: only those who see its tables pay.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    widths = [max(map(len, [*columns[i].heading.split(), *(row[i] for row in rows)])) for i in range(len(columns))]
    # On a narrow terminal only what may be cut gives way: names and ids are there to be copied.
    spare = console.width - sum(widths) - 2 * len(widths)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column, width in zip(columns, widths, strict=True):
        narrowest = len(column.heading) if column.width else width
        table.add_column(column.heading, width=max(width + min(spare, 0), narrowest))
    for row in rows:
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in row))
    console.width = max(console.width, sum(column.width or 0 for column in table.columns) + 2 * len(widths))
    console.print(table)


def _flatten(record: Row, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Mapping) and value:
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _plain(value: object) -> object:
    return _json(value) if isinstance(value, Mapping | list | bool) else value


def _csv_line(values: Sequence[object]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
