"""Reports fit a desktop and a telephone, as Chromium shows them, and names stay whole."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from quire.spark.pipelines.audit import AuditReport, audit_page
from quire.spark.pipelines.dead_letters import LettersReport, letters_page
from quire.spark.pipelines.histories import COUNTS, LATENCIES
from quire.spark.pipelines.latency import LATENCIES as MEASURES
from quire.spark.pipelines.latency import PERCENTILES, LatencyReport, latency_page
from tests.acceptance.console.chromium import MISSING, PROGRAM, chromium

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.skipif(not PROGRAM, reason=MISSING)]

NAMES = [f"queue://warehouse.north-west.pick-lists.priority.{number}" for number in range(4)]
CONSUMER = "connection-of-the-warehouse-7f3c9a/subscription-17"
TOO_WIDE = """() => [document.documentElement, ...document.querySelectorAll('.wide, .bars > *')]
    .filter(part => part.scrollWidth > part.clientWidth + 1).map(part => part.outerHTML.slice(0, 200))"""
BROKEN = """() => {
    const broken = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        for (const word of walker.currentNode.data.matchAll(/[^\\s./:_@,;=%-]+/g)) {
            const range = document.createRange();
            range.setStart(walker.currentNode, word.index);
            range.setEnd(walker.currentNode, word.index + word[0].length);
            if (new Set([...range.getClientRects()].map(box => box.top)).size > 1) broken.push(word[0]);
        }
    }
    return broken;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def audit() -> str:
    counts: dict[str, Any] = dict.fromkeys(COUNTS, 1_234_567) | {key: [12, 345, 6789, 123_456] for key in LATENCIES}
    rows = [{"destination": name} | counts for name in NAMES]
    windows = [row | {"start": 60_000 * number, "final": True} for number, row in enumerate(rows)]
    consumers = [row | {"consumer": CONSUMER} for row in rows]
    return audit_page(AuditReport(counts, rows, windows, consumers, 0, [f"{NAMES[0]}: 1 lost"], []), "a test")


def dead_letters() -> str:
    groups = [
        {key: name for key in ("cause", "origin", "destination")} | {"count": 9, "bytes": 9999, "first": 1, "last": 2}
        for name in NAMES
    ]
    sample = {
        "text": "the consumer rejected it: no such article", "origin": NAMES[0], "destination": NAMES[1],
        "message_id": "ID:shop-1234567", "sent": 1, "size": 1, "headers": {"type": "order"}, "sample": "body",
    }  # fmt: skip
    times = [{"start": 60_000 * number, "count": number} for number in range(5)]
    ages = [{"age": "less than 15 minutes", "count": 3}]
    return letters_page(LettersReport(36, groups, groups, groups, ages, times, [sample]), "a test")


def latency() -> str:
    measured = {name: {"count": 1_234_567} | dict.fromkeys(PERCENTILES, 123_456) for name in MEASURES}
    rows: list[dict[str, Any]] = [
        {"destination": name, "consumer": CONSUMER, "start": 60_000 * number} | measured
        for number, name in enumerate(NAMES * 2)
    ]
    return latency_page(LatencyReport(rows[:4], rows[:4], rows, rows), "a test")


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("page", [audit, dead_letters, latency])
def test_a_report_fits_and_breaks_no_name_inside_a_word(browser: Browser, page: Any, width: int) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 844})
    try:
        tab.set_content(page())
        assert tab.evaluate(TOO_WIDE) == []
        assert tab.evaluate(BROKEN) == []
    finally:
        tab.close()
