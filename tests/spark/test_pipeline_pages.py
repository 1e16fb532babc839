"""Pages and charts: whole, readable, and harmless whatever they are given."""

import re
from base64 import b64decode
from typing import Any
from xml.etree import ElementTree

import pytest

from quire.spark.pipelines.audit_report import AuditReport
from quire.spark.pipelines.charts import bar_chart, line_chart
from quire.spark.pipelines.judgement import COUNTS, LATENCIES
from quire.spark.pipelines.pages import audit_page
from quire.spark.pipelines.printing import time_text

SVG = "{http://www.w3.org/2000/svg}"


def drawn(url: str) -> ElementTree.Element:
    head, _, image = url.partition(",")
    assert head == "data:image/svg+xml;base64"
    return ElementTree.fromstring(b64decode(image))


def texts(image: ElementTree.Element) -> list[str | None]:
    return [element.text for element in image.iter(f"{SVG}text")]


def paths(image: ElementTree.Element, kind: str) -> list[list[tuple[float, float]]]:
    """The corners of lines (``line2d``) or areas (``patch``): the first areas are the image and what is in the axes."""
    groups = [group for group in image.iter(f"{SVG}g") if group.get("id", "").startswith(kind)]
    ways = [way.get("d", "") for group in groups for way in group.findall(f"{SVG}path")]
    return [[(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", way)] for way in ways]


def test_a_line_chart_is_well_formed_and_starts_at_zero() -> None:
    start = 1_700_000_000_000
    sent = {start: 0, start + 600_000: 25, start + 1_200_000: 50}
    image = drawn(line_chart({"sent": sent, "lost & found": {start + 300_000: 20}}))
    assert {"0", "15", "45", "22:20", "22:30", "2023-Nov-14", "sent", "lost & found"} <= set(texts(image))
    bottom = max(y for _, y in paths(image, "patch")[1])
    line = next(line for line in paths(image, "line2d") if len(line) == 3)
    assert [x for x, _ in line] == sorted(x for x, _ in line)
    heights = [bottom - y for _, y in line]
    assert [round(height / heights[-1], 3) for height in heights] == [0, 0.5, 1]


@pytest.mark.slow
def test_charts_of_nothing_are_charts() -> None:
    for chart in (
        line_chart({"sent": {}}), line_chart({"zero": {1: 0}}), bar_chart({}), bar_chart({"a": 0}),
    ):  # fmt: skip
        assert paths(drawn(chart), "patch")


def test_bars_are_as_long_as_their_values() -> None:
    image = drawn(bar_chart({"a" * 60: 40_000, "<b>": 10_000}))
    longest, short = [max(x for x, _ in bar) - min(x for x, _ in bar) for bar in paths(image, "patch")[2:4]]
    assert round(longest / short, 3) == 4
    assert texts(image) == ["a" * 37 + "…", "<b>", "40,000", "10,000"]


def test_a_chart_shows_whatever_names_there_are() -> None:
    names = ["$\\frac$ and $x$", "control \x1b[1m\n", "日本", "&amp;</svg><script>"]
    assert texts(drawn(bar_chart(dict.fromkeys(names, 1))))[:4] == [
        "$\\frac$ and $x$", "control \\x1b[1m\\n", "日本", "&amp;</svg><script>",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_page_shows_what_it_is_given_as_text() -> None:
    row: dict[str, Any] = {"destination": "queue://<img src=x onerror=alert(1)>"} | dict.fromkeys(COUNTS, 12345)
    row |= dict.fromkeys(LATENCIES) | {"waited": [1, 2, 3, None]}
    consumer = {"destination": "d", "consumer": "<b>", "acknowledged": 1, "handled": [1, 2, 3, 4]}
    window = row | {"start": 0, "final": False}
    report = AuditReport(row, [row], [window], [consumer], 0, ["<u>one</u>"], [])
    page = audit_page(report, "<i>subtitle</i>")
    for tag in ("<i>", "<b>", "<u>", "<img src=x"):
        assert tag not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert '<td class="number">12,345</td>' in page
    assert '<td class="text">-</td>' in page
    assert "1970-01-01 00:00:00 (not complete)" in page
    assert page.count("<ul>") == 1
    assert page.count('src="data:image/svg+xml;base64,') == page.count("src=") - 3 == 2


def test_times_are_in_utc() -> None:
    assert time_text(1_700_000_000_999) == "2023-11-14 22:13:20"
