"""A report as one HTML file: text, tables, charts; no other file, no script."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5b6675; --page: #fff; --line: #d9dee5; --grid: #e8ebf0;
  --good: #1a7f4b; --bad: #c0262d; --series-1: #2f6fd0; --series-2: #d9822b; --series-3: #1a9e77; --series-4: #c0262d;
  --series-5: #7a52c7; --series-6: #6b7684; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --dim: #9aa5b3; --page: #14181f; --line: #313945;
  --grid: #262d37; --good: #5bc98c; --bad: #ff7b7f; --series-1: #6ea4f4; --series-2: #f0a860; --series-3: #4fcfa6;
  --series-4: #ff7b7f; --series-5: #ad8cf0; --series-6: #9aa5b3; } }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.5rem 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { margin: .4rem 0; } .dim { color: var(--dim); }
.verdict { display: inline-block; margin: 1rem 0 .4rem; padding: .15rem .8rem; border: 2px solid; border-radius: 6px;
  font-weight: 700; } .good { color: var(--good); } .bad { color: var(--bad); }
.mixed { color: var(--series-2); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { color: var(--dim); font-weight: 600; } .number { text-align: right; }
td.text { overflow-wrap: anywhere; max-width: 34rem; white-space: pre-wrap; }
svg { display: block; width: 100%; max-width: 56rem; height: auto; } svg text { fill: var(--dim); font-size: 12px; }
"""


class HtmlReport:
    """A page that is written from top to bottom. Whatever it is given is shown as text, never as HTML.

    Args:
        title: what it is about.
        subtitle: of what, and when.
    """

    def __init__(self, title: str, subtitle: str) -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>", f'<p class="dim">{escape(subtitle)}</p>']

    def verdict(self, good: bool | None, text: str) -> None:
        """Add a sentence in a box, in a colour that says whether it is good; None for neither."""
        kind = {True: "good", False: "bad", None: "mixed"}[good]
        self._parts.append(f'<p class="verdict {kind}">{escape(text)}</p>')

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def sentences(self, texts: Iterable[str]) -> None:
        """Add a list of sentences; nothing if there are none."""
        items = "".join([f"<li>{escape(text)}</li>" for text in texts])
        if items:
            self._parts.append(f"<ul>{items}</ul>")

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Add a table.

        Args:
            headings: what stands over its columns.
            rows: the cells of each row; numbers stand to the right.
        """
        heads = "".join([f"<th>{escape(heading)}</th>" for heading in headings])
        body = "".join([f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows])
        self._parts.append(
            f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def chart(self, svg: str) -> None:
        """Add a chart of ``svg_chart``."""
        self._parts.append(f"<figure style='margin:0'>{svg}</figure>")

    def render(self) -> str:
        """The page."""
        head = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self._title)}</title><style>{_STYLE}</style></head>"
        )
        return f"{head}<body>{''.join(self._parts)}</body></html>\n"


def time_text(millis: int) -> str:
    """A time as people read it, in UTC."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f'<td class="text">{escape("-" if value is None else str(value))}</td>'
    return f'<td class="number">{value:,}</td>'
