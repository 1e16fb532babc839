"""An audit's report, printed for people and as a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from quire.spark.pipelines.audit_findings import problems
from quire.spark.pipelines.audit_report import AuditReport, Row, Verdict
from quire.spark.pipelines.html_report import HtmlReport, time_text
from quire.spark.pipelines.judgement import COUNTS, LATENCIES, PERCENTILES
from quire.spark.pipelines.printing import print_table
from quire.spark.pipelines.svg_chart import line_chart, spread

_PRINTED_WINDOWS = 20
_STYLES = {Verdict.OK: "bold green", Verdict.NO_FAULT: "bold yellow", Verdict.NOT_OK: "bold red"}
_GOOD = {Verdict.OK: True, Verdict.NO_FAULT: None, Verdict.NOT_OK: False}
_HEADINGS = [name.replace("_", " ") for name in COUNTS]
_PERCENTILES = [f"p{round(share * 100)}" if share < 1 else "max" for share in PERCENTILES]


def print_report(report: AuditReport, console: Console) -> None:
    """Print a report: verdict, counts, latencies, slow consumers, and the windows in which something is wrong."""
    bad = [row for row in report.windows if problems(row)]
    _print_counts(console, "Messages", report.destinations, report.total)
    print_table(console, "Latency (ms)", ["destination", "latency", *_PERCENTILES], _latencies(report))
    print_table(console, "Slowest consumers (ms)", _CONSUMER_HEADINGS, _consumers(report))
    if bad:
        headings = ["window", "destination", *_HEADINGS[-4:]]
        rows = [[_when(row), row["destination"], *_counts(row)[-4:]] for row in bad[:_PRINTED_WINDOWS]]
        print_table(console, f"Windows with something wrong: {len(bad)} of {len(report.windows)}", headings, rows)
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    for reason in report.reasons:
        console.print(Text(f"- {reason}", style="red"))
    console.print(Text(report.sentence, style=_STYLES[report.verdict]))


def html_page(report: AuditReport, subtitle: str) -> str:
    """A report as a page.

    Args:
        report: what was found.
        subtitle: of what, and when.
    """
    page = HtmlReport("Delivery audit", subtitle)
    page.verdict(_GOOD[report.verdict], report.sentence)
    page.sentences(report.reasons)
    page.heading("Messages")
    headings = ["destination", *_HEADINGS]
    total = ["all", *_counts(report.total)]
    page.table(headings, [[row["destination"], *_counts(row)] for row in report.destinations] + [total])
    page.sentences(report.notes)
    _add_charts(page, report.windows)
    page.heading("Latency in milliseconds")
    page.table(["destination", "latency", *_PERCENTILES], _latencies(report))
    if report.consumers:
        page.heading("Slowest consumers, in milliseconds from dispatch to acknowledgement")
        page.table(_CONSUMER_HEADINGS, _consumers(report))
    if bad := [row for row in report.windows if problems(row)]:
        page.heading(f"Windows with something wrong: {len(bad)} of {len(report.windows)}")
        page.table(["window", *headings], [[_when(row), row["destination"], *_counts(row)] for row in bad])
    return page.render()


_CONSUMER_HEADINGS = ["destination", "consumer", "acknowledged", *_PERCENTILES]


def _add_charts(page: HtmlReport, windows: Sequence[Row]) -> None:
    """Two charts over time: what was done, and what went wrong."""
    done = ("committed", "acknowledged", "redelivered", "dead_lettered", "expired")
    wrong = ("lost", "duplicated_flagged", "duplicated_unflagged", "out_of_order")
    starts = sorted({row["start"] for row in windows})
    ticks = {start: time_text(start)[5:16] for start in spread(starts, 5)}
    for heading, names in (("Messages by the time of their commit", done), ("What went wrong", wrong)):
        sums = {name: dict.fromkeys(starts, 0) for name in names}
        for row in windows:
            for name in names:
                sums[name][row["start"]] += row[name]
        if heading == "What went wrong" and not any(any(points.values()) for points in sums.values()):
            continue
        page.heading(heading)
        series = {name.replace("_", " "): list(points.items()) for name, points in sums.items()}
        page.chart(line_chart(heading, series, ticks))


def _print_counts(console: Console, title: str, rows: Sequence[Row], total: Row) -> None:
    """One column per destination: there are more counts than fit beside each other."""
    several = len(rows) > 1
    headings = ["", *[row["destination"] for row in rows[:_PRINTED_WINDOWS]], *(["all"] if several else [])]
    columns = [*rows[:_PRINTED_WINDOWS], *([total] if several else [])]
    table = [[heading, *[row[name] for row in columns]] for name, heading in zip(COUNTS, _HEADINGS, strict=True)]
    print_table(console, title, headings, table)


def _counts(row: Mapping[str, Any]) -> list[int]:
    return [row[name] for name in COUNTS]


def _latencies(report: AuditReport) -> list[list[object]]:
    rows = [(row["destination"], row) for row in report.destinations]
    return [
        [destination, text, *row[name]]
        for destination, row in rows
        for name, text in LATENCIES.items()
        if row[name] is not None
    ]


def _consumers(report: AuditReport) -> list[list[object]]:
    return [[row["destination"], row["consumer"], row["acknowledged"], *row["handled"]] for row in report.consumers]


def _when(row: Row) -> str:
    return time_text(row["start"]) + ("" if row["final"] else " (not over)")
