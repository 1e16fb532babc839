"""Pages and charts: whole, readable, and harmless whatever they are given."""

import re
from base64 import b64decode
from typing import Any
from xml.etree import ElementTree

import pytest

from quire.spark.pipelines.audit import AuditReport, audit_page
from quire.spark.pipelines.files import time_text
from quire.spark.pipelines.histories import COUNTS, LATENCIES
from quire.spark.pipelines.latency import LATENCIES as MEASURES
from quire.spark.pipelines.latency import PERCENTILES, LatencyReport, latency_page
from quire.spark.pipelines.pages import line_chart

SVG = "{http://www.w3.org/2000/svg}"


def drawn(url: str) -> ElementTree.Element:
    head, _, image = url.partition(",")
    assert head == "data:image/svg+xml;base64"
    return ElementTree.fromstring(b64decode(image))


COUNTED = ("committed", "dead lettered", "open", "redelivered")


def texts(image: ElementTree.Element) -> list[str | None]:
    return [element.text for element in image.iter(f"{SVG}text")]


def paths(image: ElementTree.Element, kind: str) -> list[list[tuple[float, float]]]:
    """The corners of lines (``line2d``) or areas (``patch``): the first areas are the image and what is in the axes."""
    groups = [group for group in image.iter(f"{SVG}g") if group.get("id", "").startswith(kind)]
    ways = [way.get("d", "") for group in groups for way in group.findall(f"{SVG}path")]
    return [[(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", way)] for way in ways]


def test_a_line_chart_is_well_formed_and_starts_at_zero() -> None:
    start = 1_700_000_000_000
    sent = {start + 600_000: 25, start: 0, start + 1_200_000: 50}
    charts = line_chart({"sent": sent, "lost & found": {start + 300_000: 20}}, 600_000)
    assert "lost & found" in texts(drawn(charts.narrow))
    image = drawn(charts.wide)
    assert {"0", "15", "45", "22:20", "22:30", "2023-Nov-14", "sent", "lost & found"} <= set(texts(image))
    bottom = max(y for _, y in paths(image, "patch")[1])
    line = next(line for line in paths(image, "line2d") if len(line) == 3)
    assert [x for x, _ in line] == sorted(x for x, _ in line)
    heights = [bottom - y for _, y in line]
    assert [round(height / heights[-1], 3) for height in heights] == [0, 0.5, 1]


def test_a_line_has_a_gap_where_there_is_no_value() -> None:
    image = drawn(line_chart({"sent": {0: 1, 60_000: 2, 600_000: 2, 660_000: 3, 3_600_000: 1}}, 60_000).wide)
    groups = [group for group in image.iter(f"{SVG}g") if group.get("id", "").startswith("line2d")]
    ways = [way.get("d", "") for group in groups for way in group.findall(f"{SVG}path")]
    assert [way.count("M") for way in ways if way.count("L") + way.count("M") >= 4] == [3]


def test_a_line_below_another_one_stays_visible() -> None:
    same = {0: 5, 60_000: 7}
    image = drawn(line_chart({"committed": same, "acknowledged": same, "open": same}, 60_000).wide)
    styles = [way.get("style", "") for way in image.iter(f"{SVG}path") if way.get("d", "").count("L") == 1]
    widths = [float(found[1]) for style in styles if (found := re.search(r"stroke-width: ([\d.]+)", style))]
    lines = [width for width in widths if width >= 1.5][:3]
    assert lines == sorted(lines, reverse=True)
    assert len(set(lines)) == 3


def test_a_legend_fits_a_telephone() -> None:
    names = [f"queue://orders.europe.north.{'x' * 40}, client-{number}/subscription-{number}" for number in (1, 2)]
    chart = line_chart({name: {0: 1, 1: 2} for name in names}, 1)
    assert set(names) <= set(texts(drawn(chart.wide)))
    narrow = [text for text in texts(drawn(chart.narrow)) if text and "\u2026" in text]
    assert [len(text) <= 40 for text in narrow] == [True, True]
    assert [text[-14:] for text in narrow] == ["subscription-1", "subscription-2"]
    counts = line_chart({name: {0: 1, 1: 2} for name in COUNTED}, 1)
    shown = [element for element in drawn(counts.narrow).iter(f"{SVG}text") if element.text in COUNTED]
    print([element.attrib for element in shown])
    assert len({round(float(element.attrib["x"])) for element in shown}) == 2


@pytest.mark.slow
def test_charts_of_nothing_are_charts() -> None:
    for chart in (line_chart({"sent": {}}, 1), line_chart({"zero": {1: 0}}, 1)):
        assert paths(drawn(chart.wide), "patch")


def test_a_chart_shows_whatever_names_there_are() -> None:
    names = ["$\\frac$ and $x$", "control \x1b[1m\n", "日本", "&amp;</svg><script>"]
    shown = texts(drawn(line_chart({name: {1: 1, 2: 2} for name in names}, 1).wide))
    assert shown[-4:] == ["$\\frac$ and $x$", "control \\x1b[1m\\n", "日本", "&amp;</svg><script>"]


def page_of(*windows: dict[str, Any]) -> str:
    row: dict[str, Any] = {"destination": "queue://<img src=x onerror=alert(1)>"} | dict.fromkeys(COUNTS, 12345)
    row |= dict.fromkeys(LATENCIES) | {"waited": [1, 2, 3, None]}
    consumer = {"destination": "d", "consumer": "<b>", "acknowledged": 1, "handled": [1, 2, 3, 4]}
    report = AuditReport(row, [row], [row | window for window in windows], [consumer], 0, ["<u>one</u>"], [])
    return audit_page(report, "<i>subtitle</i>")


@pytest.mark.slow
def test_a_page_shows_what_it_is_given_as_text() -> None:
    page = page_of({"start": 0, "final": False}, {"start": 60_000, "final": True})
    for tag in ("<i>", "<b>", "<u>", "<img src=x"):
        assert tag not in page
    assert "&lt;img src=<wbr>x onerror=<wbr>alert(1)&gt;" in page
    assert '<td class="number" data-heading="sent"><span>12,345</span></td>' in page
    assert '<td class="text" data-heading="max"><span>-</span></td>' in page
    assert "1970-<wbr>01-<wbr>01 00:<wbr>00:<wbr>00 (not complete)" in page
    assert page.count("<ul>") == 1
    assert page.count("<picture>") == 2
    assert page.count('"data:image/svg+xml;base64,') == 4


def pieces(page: str) -> set[int]:
    """Into how many pieces the lines of a page's charts are divided."""
    images = [drawn(url) for url in re.findall(r'"(data:image/svg\+xml;base64,[^"]+)"', page)]
    groups = [group for image in images for group in image.iter(f"{SVG}g") if group.get("id", "").startswith("line2d")]
    ways = [way.get("d", "") for group in groups for way in group.findall(f"{SVG}path")]
    return {way.count("M") for way in ways if way.count("L") + way.count("M") >= 4}


STARTS = [0, 20_000, 40_000, 600_000, 620_000]
"""When windows of 20 s begin: there is one gap."""


@pytest.mark.slow
def test_the_charts_of_an_audit_have_gaps_where_windows_are_missing() -> None:
    row: dict[str, Any] = {"destination": "d"} | dict.fromkeys(COUNTS, 5) | dict.fromkeys(LATENCIES)
    windows = [row | {"start": start, "final": True} for start in STARTS]
    assert pieces(audit_page(AuditReport(row, [row], windows, [], window=20.0), "")) == {2}


@pytest.mark.slow
def test_the_charts_of_latencies_have_gaps_where_windows_are_missing() -> None:
    measured = {"count": 1} | dict.fromkeys(PERCENTILES, 5)
    row: dict[str, Any] = {"destination": "d", "consumer": "c"} | dict.fromkeys(MEASURES, measured)
    windows = [row | {"start": start} for start in STARTS]
    assert pieces(latency_page(LatencyReport([row], [], windows, [], 20.0), "")) == {2}
    assert pieces(latency_page(LatencyReport([row], [row], [], windows, 20.0), "")) == {2}


def test_a_single_window_has_bars_and_no_line() -> None:
    page = page_of({"start": 0, "final": True})
    assert "<picture>" not in page
    assert page.count('<div class="bars">') == 2
    assert '<div class="bar" style="width: 85.0%"></div>12,345</div>' in page


def test_names_are_broken_behind_separators_only() -> None:
    row = {"destination": "queue://orders.europe"} | dict.fromkeys(COUNTS, 0) | dict.fromkeys(LATENCIES)
    page = audit_page(AuditReport(row, [row], [], []), "")
    assert "queue://<wbr>orders.<wbr>europe" in page


def test_times_are_in_utc() -> None:
    assert time_text(1_700_000_000_999) == "2023-11-14 22:13:20"
