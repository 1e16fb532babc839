"""Tables for people."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_table(console: Console, title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; nothing if it has no rows.

    Args:
        console: where to.
        title: what stands over it.
        headings: what stands over its columns.
        rows: the cells; numbers stand to the right.
    """
    if not rows:
        return
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(headings):
        is_number = isinstance(rows[0][number], int)
        table.add_column(Text(heading), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # Names come from clients: no markup of theirs, no control characters.
        table.add_row(*[Text("-" if cell is None else _printable(str(cell))) for cell in row])
    console.print(table)


def _printable(text: str) -> str:
    return "".join([char if char.isprintable() else ascii(char)[1:-1] for char in text])
