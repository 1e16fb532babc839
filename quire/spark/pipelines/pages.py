"""Reports as HTML pages, out of the templates in ``templates/``."""

import re
from collections.abc import Mapping, Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from quire.spark.pipelines.audit_printing import consumers, latencies, messages, windows
from quire.spark.pipelines.audit_report import AuditReport, Row, Verdict
from quire.spark.pipelines.charts import Chart, line_chart
from quire.spark.pipelines.latency_measures import LATENCIES, PERCENTILES
from quire.spark.pipelines.latency_report import LatencyReport
from quire.spark.pipelines.latency_report import consumers as latency_consumers
from quire.spark.pipelines.latency_report import destinations as latency_destinations
from quire.spark.pipelines.letters_report import LettersReport, groups, sample_table

_COLOURS = {Verdict.OK: "good", Verdict.NO_FAULT: "mixed", Verdict.NOT_OK: "bad"}
_DONE = ("committed", "acknowledged", "redelivered", "dead_lettered", "expired", "removed", "open")
_WINDOWS = 100
_DESTINATIONS, _CONSUMERS = 10, 6
_ANY_STEP = 1e9
"""For values that have no gaps."""

_SEPARATORS = re.compile(r"([./:_@,;=%-]+)")

Drawn = Chart | dict[str, int]
"""A chart over time; of a single time, the values by name, which are shown as bars."""


def audit_page(report: AuditReport, subtitle: str) -> str:
    """The page of an audit; the subtitle says of what it is, and when it was made."""
    return _rendered(
        "audit.html",
        subtitle=subtitle,
        report=report,
        colour=_COLOURS[report.verdict],
        done=_sums_over_time(report, _DONE),
        wrong=_sums_over_time(report, report.faults),
        messages=messages(report),
        latencies=latencies(report),
        consumers=consumers(report),
        windows=windows(report.bad_windows[:_WINDOWS]),
    )


def letters_page(report: LettersReport, subtitle: str) -> str:
    """The page of dead letters; the subtitle says where they are, and when it was made."""
    return _rendered(
        "dead_letters.html",
        subtitle=subtitle,
        report=report,
        groups=[
            (name, {row[name]: row["count"] for row in rows[:10]}, groups(rows, name))
            for name, rows in report.groups.items()
        ],
        times=_over_time({"dead letters": {row["start"]: row["count"] for row in report.times}}, _ANY_STEP),
        ages={row["age"]: row["count"] for row in report.ages},
        samples=sample_table(report),
    )


def latency_page(report: LatencyReport, subtitle: str) -> str:
    """The page of latencies; the subtitle says of which ledger, and when it was made."""
    most = sorted(report.destinations, key=lambda row: -row["delivery"]["count"])[:_DESTINATIONS]
    slowest = [(row["destination"], row["consumer"]) for row in report.consumers[:_CONSUMERS]]
    return _rendered(
        "latency.html",
        subtitle=subtitle,
        destinations=latency_destinations(report),
        consumers=latency_consumers(report),
        destination_charts=[
            (
                f"{row['destination']}: {LATENCIES[latency]}, in milliseconds",
                _over_time(_of_destination(report, row, latency), report.window),
            )
            for row in most
            for latency in ("delivery", "handling")
            if row[latency]["count"]
        ],
        consumer_charts=[
            (f"p99 of the slowest consumers: {LATENCIES[latency]}, in milliseconds", _over_time(series, report.window))
            for latency in ("delivery", "handling")
            if (series := _of_consumers(report, slowest, latency))
        ],
    )


def _of_destination(report: LatencyReport, row: Row, latency: str) -> dict[str, dict[int, int]]:
    windows = [one for one in report.windows if one["destination"] == row["destination"] and one[latency]["count"]]
    return {key: {one["start"]: one[latency][key] for one in windows} for key in PERCENTILES}


def _of_consumers(report: LatencyReport, names: Sequence[tuple[str, str]], latency: str) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for row in report.consumer_windows:
        if (row["destination"], row["consumer"]) in names and row[latency]["count"]:
            found.setdefault(f"{row['destination']}, {row['consumer']}", {})[row["start"]] = row[latency]["p99"]
    return found


def _sums_over_time(report: AuditReport, names: Sequence[str]) -> Drawn:
    """A chart of counts of windows, each summed over the destinations."""
    starts = sorted({row["start"] for row in report.windows})
    sums = {name: dict.fromkeys(starts, 0) for name in names}
    for row in report.windows:
        for name in names:
            sums[name][row["start"]] += row[name]
    return _over_time({name.replace("_", " "): points for name, points in sums.items()}, report.window)


def _over_time(series: Mapping[str, Mapping[int, int]], window: float) -> Drawn:
    """A chart of values of windows of so many seconds."""
    if len({time for points in series.values() for time in points}) == 1:
        return {name: next(iter(points.values()), 0) for name, points in series.items()}
    return line_chart(series, round(window * 1000))


def _breakable(text: object) -> Markup:
    """A text that is broken into lines behind separators, so that names stay readable."""
    return Markup("<wbr>").join([escape(part) for part in _parts(str(text))])


def _parts(text: str) -> list[str]:
    pieces = _SEPARATORS.split(text)
    return ["".join(pieces[n : n + 2]) for n in range(0, len(pieces), 2)]


def _rendered(template: str, **values: object) -> str:
    """A template with its values, all of which are shown as text, never as HTML."""
    loader = PackageLoader("quire.spark.pipelines")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["breakable"] = _breakable
    return environment.get_template(template).render(values)
