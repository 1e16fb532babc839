"""Reports as HTML pages, out of the templates in ``templates/``.

Line charts are SVG images, each a URL that contains the image: a page with them needs no other file.
"""

import re
import warnings
from base64 import b64encode
from collections.abc import Mapping, Sequence
from io import BytesIO
from math import nan
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from quire.spark.pipelines.audit_report import AuditReport, Row, Verdict, consumers, latencies, messages, windows
from quire.spark.pipelines.files import printable
from quire.spark.pipelines.latency_measures import LATENCIES, PERCENTILES, LatencyReport
from quire.spark.pipelines.latency_measures import consumers as latency_consumers
from quire.spark.pipelines.latency_measures import destinations as latency_destinations
from quire.spark.pipelines.letters import LettersReport, groups, sample_table

_SETTINGS: Any = {"svg.fonttype": "none", "text.parse_math": False, "date.converter": "concise"}
"""Texts stay texts in the image, and a ``$`` in a name is no formula."""

_TIME = "datetime64[ms]"
_MARGIN_MS = 60_000

_EMS, _CHARACTER, _SYMBOL = 7.2, 0.6, 4.8
"""How many ems of a legend's letters an inch has; how many of them a character takes, and what is beside a name."""

_THINNEST, _THINNER = 1.5, 0.7
"""How wide the last line is, and how much wider each one before it: what is below another one stays visible."""


class Size(NamedTuple):
    """The size of a chart, in inches."""

    width: float
    height: float


WIDE, NARROW = Size(13, 3.2), Size(4.2, 3.6)
"""For a desktop, and for a telephone, on which the texts of a wide chart would be too small to read."""


class Chart(NamedTuple):
    """The same chart in both sizes."""

    wide: str
    narrow: str


def line_chart(series: Mapping[str, Mapping[int, int]], step: int) -> Chart:
    """Lines over time: by name, the values at times in milliseconds since the epoch.

    Where a line has no value for longer than a step, in milliseconds, it has a gap.
    """
    with matplotlib.rc_context(_SETTINGS):
        return Chart(_lines(series, step, WIDE), _lines(series, step, NARROW))


def _lines(series: Mapping[str, Mapping[int, int]], step: int, size: Size) -> str:
    figure, axes = _empty(size)
    for place, (name, points) in enumerate(series.items(), 1):
        times, values = _with_gaps(points, step)
        width = _THINNEST + _THINNER * (len(series) - place)
        axes.plot(np.array(times, _TIME), values, marker=".", linewidth=width, label=_shortened(printable(name), size))
    axes.set_ylim(0, max([1.0, *[value * 1.1 for points in series.values() for value in points.values()]]))
    if times := [millis for points in series.values() for millis in points]:
        ends = np.array([min(times) - _MARGIN_MS, max(times) + _MARGIN_MS], _TIME)
        axes.set_xlim(*ends)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", alpha=0.3)
    longest = max([len(_shortened(printable(name), size)) for name in series], default=0)
    columns = int(_room(size) // (_SYMBOL + _CHARACTER * longest))
    figure.legend(loc="outside upper left", ncols=max(columns, 1), frameon=False)
    return _url(figure)


def _with_gaps(points: Mapping[int, int], step: int) -> tuple[list[int], list[float]]:
    times, values = list[int](), list[float]()
    for time, value in sorted(points.items()):
        if times and time - times[-1] > step:
            times.append(times[-1] + step)
            values.append(nan)
        times.append(time)
        values.append(value)
    return times, values


def _shortened(name: str, size: Size) -> str:
    """A name that fits into the legend: the middle of a long one is left out, for names differ at their ends."""
    most = int((_room(size) - _SYMBOL) / _CHARACTER)
    return name if len(name) <= most else f"{name[: most // 2 - 1]}\u2026{name[-(most - most // 2) :]}"


def _room(size: Size) -> float:
    """How wide a legend may be, in ems: two are its edges."""
    return size.width * _EMS - 2


def _empty(size: Size) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(size.width, size.height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _url(figure: Figure) -> str:
    image = BytesIO()
    with warnings.catch_warnings():
        # The reader's own fonts show the texts.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(image, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{b64encode(image.getvalue()).decode()}"


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
