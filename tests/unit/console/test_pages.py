"""Every page, built against a broker whose names are hostile."""

from urllib.parse import unquote, urlencode

import pytest
from nicegui import ui

from quire.console.pages import PAGES
from tests.unit.console.rig import Rig, with_rig
from tests.unit.console.shapes import HOSTILE

QUERIES = {
    "/queue": "?name=orders.eu.00001", "/topic": "?name=prices", "/stream": "?name=clicks",
    "/durable": "?client=ledger&name=all", "/group": "?stream=clicks&name=billing",
    "/messages": "?kind=queue&name=orders", "/message": "?kind=queue&name=orders&at=17", "/send": "?kind=queue&name=a",
    "/policies": "?kind=queue&name=orders.eu",
}  # fmt: skip


@pytest.mark.parametrize(
    "path", [*[path + QUERIES.get(path, "") for path in PAGES], "/messages?kind=stream&name=clicks&of=0", "/policies"]
)
def test_each_page_is_built(path: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.user.open(path)
        await rig.user.should_not_see("This cannot be shown")

    with_rig(scenario)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_of_any_kind_comes_through_a_link_as_it_is(name: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.user.open("/queues?" + urlencode({"search": name[:50]}))
        (link,) = {row["links"]["name"] for row in rig.element(ui.table).rows if row["key"] == name}
        assert link.startswith("/queue?")
        await rig.user.open(link)
        assert unquote(rig.broker.asked("GET", "/queues/")[-1].rpartition("/")[2]) == name

    with_rig(scenario)
