"""An audit's report as tables, printed for people."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from quire.spark.pipelines.audit_report import AuditReport, Row, Verdict
from quire.spark.pipelines.judgement import COUNTS, LATENCIES, PERCENTILES
from quire.spark.pipelines.printing import Table, print_table, time_text

_PRINTED = 20
_STYLES = {Verdict.OK: "bold green", Verdict.NO_FAULT: "bold yellow", Verdict.NOT_OK: "bold red"}
_HEADINGS = [name.replace("_", " ") for name in COUNTS]
_PERCENTILES = [f"p{round(share * 100)}" if share < 1 else "max" for share in PERCENTILES]


def print_report(report: AuditReport, console: Console) -> None:
    """Print a report: verdict, counts, latencies, slow consumers, and the windows in which something is wrong."""
    print_table(console, "Messages", _side_by_side(report))
    print_table(console, "Latency (ms)", latencies(report))
    print_table(console, "Slowest consumers (ms)", consumers(report))
    if bad := report.bad_windows:
        title = f"Windows with problems: {len(bad)} of {len(report.windows)}"
        print_table(console, title, windows(bad[:_PRINTED], COUNTS[-4:]))
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    for reason in report.reasons:
        console.print(Text(f"- {reason}", style="red"))
    console.print(Text(report.sentence, style=_STYLES[report.verdict]))


def messages(report: AuditReport) -> Table:
    """The counts of each destination, and of all."""
    rows = [*report.destinations, report.total | {"destination": "all"}]
    return Table(["destination", *_HEADINGS], [[row["destination"], *_counts(row)] for row in rows])


def latencies(report: AuditReport) -> Table:
    """The percentiles of each latency that a destination has."""
    rows = [
        [row["destination"], text, *row[name]]
        for row in report.destinations
        for name, text in LATENCIES.items()
        if row[name] is not None
    ]
    return Table(["destination", "latency", *_PERCENTILES], rows)


def consumers(report: AuditReport) -> Table:
    """The slowest consumers."""
    rows = [[row["destination"], row["consumer"], row["acknowledged"], *row["handled"]] for row in report.consumers]
    return Table(["destination", "consumer", "acknowledged", *_PERCENTILES], rows)


def windows(rows: Sequence[Row], names: Sequence[str] = COUNTS) -> Table:
    headings = ["window", "destination", *[name.replace("_", " ") for name in names]]
    return Table(headings, [[_when(row), row["destination"], *[row[name] for name in names]] for row in rows])


def _side_by_side(report: AuditReport) -> Table:
    """One column per destination: there are more counts than fit beside each other."""
    columns = messages(report).rows[:-1][:_PRINTED]
    if len(report.destinations) > 1:
        columns = [*columns, messages(report).rows[-1]]
    headings, *rows = [list(row) for row in zip(["", *_HEADINGS], *columns, strict=True)]
    return Table([str(heading) for heading in headings], rows)


def _counts(row: Row) -> list[int]:
    return [row[name] for name in COUNTS]


def _when(row: Row) -> str:
    return time_text(row["start"]) + ("" if row["final"] else " (not complete)")
