"""Tables, texts and times for people."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text


class Table(NamedTuple):
    """The headings of the columns, and the rows: in the terminal and on pages."""

    headings: Sequence[str]
    rows: Sequence[Sequence[object]]


def print_table(console: Console, title: str, table: Table) -> None:
    """Print a table, with numbers to the right; nothing if it has no rows."""
    if not table.rows:
        return
    printed = RichTable(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading, cell in zip(table.headings, table.rows[0], strict=True):
        printed.add_column(Text(heading), justify="right" if isinstance(cell, int) else "left", overflow="fold")
    for row in table.rows:
        # Names come from clients: no markup of theirs, no control characters.
        printed.add_row(*[Text("-" if cell is None else printable(str(cell))) for cell in row])
    console.print(printed)


def printable(text: str) -> str:
    """A text with escapes for its control characters."""
    return "".join([char if char.isprintable() else ascii(char)[1:-1] for char in text])


def time_text(millis: int) -> str:
    """A time in milliseconds since the epoch as people read it, in UTC."""
    return datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
