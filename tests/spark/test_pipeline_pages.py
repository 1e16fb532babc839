"""Pages and charts: whole, readable, and harmless whatever they are given."""

from xml.etree import ElementTree

from quire.spark.pipelines.html_report import HtmlReport, time_text
from quire.spark.pipelines.svg_chart import bar_chart, line_chart, spread


def test_a_line_chart_is_well_formed_and_starts_at_zero() -> None:
    chart = line_chart("a < b", {"sent": [(0, 0), (10, 50)], "lost & found": [(5, 20)]}, {0: "00:00", 10: "00:10"})
    root = ElementTree.fromstring(chart)
    assert root.get("aria-label") == "a < b"
    assert [element.get("points") for element in root.iter("polyline")] == ["64.0,212.0 708.0,28.0"]
    assert len(list(root.iter("circle"))) == 3
    assert "lost & found: 20" in [element.text for element in root.iter("title")]
    assert {"0", "50", "00:00", "00:10", "sent"} <= {element.text for element in root.iter("text")}


def test_charts_of_nothing_are_charts() -> None:
    ElementTree.fromstring(line_chart("nothing", {}, {}))
    ElementTree.fromstring(line_chart("nothing", {"sent": []}, {}))
    ElementTree.fromstring(line_chart("zero", {"sent": [(1, 0)]}, {1: "now"}))
    ElementTree.fromstring(bar_chart("nothing", {}))
    ElementTree.fromstring(bar_chart("zero", {"a": 0}))


def test_bars_are_as_long_as_their_values() -> None:
    root = ElementTree.fromstring(bar_chart("causes", {"a" * 60: 40, "<b>": 10}))
    longest, short = [float(element.get("width", "0")) for element in root.iter("rect")]
    assert longest == 4 * short
    texts = [element.text for element in root.iter("text")]
    assert texts == ["a" * 37 + "…", "40", "<b>", "10"]


def test_values_are_spread_from_the_first_to_the_last() -> None:
    assert spread([1, 2, 3], 5) == [1, 2, 3]
    assert spread(list(range(101)), 5) == [0, 25, 50, 75, 100]


def test_a_page_shows_what_it_is_given_as_text() -> None:
    page = HtmlReport("<i>title</i>", "a & b")
    page.verdict(False, "<b>NOT OK</b>")
    page.sentences(["<u>one</u>"])
    page.sentences([])
    page.table(["<h>"], [["<img src=x onerror=alert(1)>"], [12345], [None], [True]])
    text = page.render()
    for tag in ("<i>", "<b>", "<u>", "<h>", "<img"):
        assert tag not in text
    assert '<td class="number">12,345</td>' in text
    assert text.count("<ul>") == 1


def test_times_are_in_utc() -> None:
    assert time_text(1_700_000_000_999) == "2023-11-14 22:13:20"
