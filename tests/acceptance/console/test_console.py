"""The console in a real Chromium, on a real broker: every page, every action, names of any kind, users."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from quire.console.pages import PAGES
from tests.acceptance.console import own_console
from tests.acceptance.console.all_pages import ALL_PAGES, link
from tests.acceptance.console.chromium import MISSING, PROGRAM, Tab, chromium
from tests.acceptance.console.demo import HOSTILE, Demo
from tests.acceptance.crash.broker_process import BrokerProcess, quire

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PROGRAM, reason=MISSING)]

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = own_console.start(tmp_path_factory.mktemp("console"))
    demo = Demo(started.http, started.port())
    try:
        demo.prepare()
        demo.start()
        yield started
        demo.stop()
        started.stop()
        assert "Traceback" not in started.log
    finally:
        demo.stop()
        started.kill()


@pytest.fixture(scope="module")
def url(broker: BrokerProcess) -> str:
    return own_console.console_url(broker)


@pytest.fixture
def tab(browser: Browser, url: str) -> Iterator[Tab]:
    opened = Tab(browser, url)
    try:
        yield opened
        assert opened.troubles == []
        assert opened.foreign == []
        assert "fired" not in opened.page.title()
    finally:
        opened.close()


def test_every_page_has_a_link_here() -> None:
    assert {path.partition("?")[0] for path in ALL_PAGES.values()} == set(PAGES)


@pytest.mark.parametrize("name", ALL_PAGES)
def test_each_page_is_shown_and_goes_on_without_a_complaint(tab: Tab, name: str) -> None:
    title = tab.open(ALL_PAGES[name])
    assert title != "This cannot be shown"
    assert tab.page.locator(".notice.bad:visible").count() == 0
    tab.page.wait_for_timeout(2500)  # it asks again at least once
    assert tab.page.locator(".notice.bad:visible").count() == 0


def test_the_overview_says_what_needs_attention_and_leads_there(tab: Tab) -> None:
    tab.open("/")
    tab.page.locator(".attention a").first.click()
    tab.page.wait_for_url("**name=**")
    tab.page.wait_for_selector("h1")


def test_a_click_in_the_topology_goes_there(tab: Tab) -> None:
    tab.open("/topology")
    tab.page.locator("td a", has_text="orders.eu").first.click()
    tab.page.wait_for_url("**/queue?name=orders.eu")
    tab.open(link("/topology", focus="queue://billing"))
    expect(tab.page.locator("td a", has_text="billing").first).to_be_visible()


def test_a_table_is_searched_sorted_and_shared_by_its_link(tab: Tab) -> None:
    tab.open("/queues")
    tab.page.get_by_label("Search queues").fill("orders")
    expect(tab.page.locator("tbody tr")).to_have_count(4)
    # The page answers the first click before the second, or both may ask for the same order.
    tab.page.locator("th", has_text="Messages").click()
    tab.page.wait_for_url("**sort=depth**")
    tab.page.locator("th", has_text="Messages").click()
    tab.page.wait_for_url("**sort=-depth**")
    shared = tab.page.url.removeprefix(tab.url)
    tab.open(shared)
    expect(tab.page.locator("tbody tr")).to_have_count(4)
    assert tab.page.get_by_label("Search queues").input_value() == "orders"


def test_columns_and_the_dark_theme_are_remembered(tab: Tab) -> None:
    tab.open("/queues")
    tab.page.get_by_label("Columns").click()
    tab.page.locator(".q-menu .q-checkbox", has_text="Enqueued").click()
    expect(tab.page.locator("th", has_text="Enqueued")).to_be_visible()
    tab.remembered('"columns":')
    tab.page.keyboard.press("Escape")
    tab.page.get_by_label("Light or dark").click()
    tab.choose("Dark")
    expect(tab.page.locator("body.body--dark")).to_be_attached()
    tab.remembered('"theme":"dark"')
    tab.open("/queues")
    expect(tab.page.locator("th", has_text="Enqueued")).to_be_visible()
    expect(tab.page.locator("body.body--dark")).to_be_attached()


def test_the_keyboard_reaches_the_content_the_search_and_the_dialogs(tab: Tab) -> None:
    tab.open("/queues")
    tab.page.keyboard.press("/")
    expect(tab.page.get_by_label("Search queues")).to_be_focused()
    tab.page.keyboard.press("Escape")
    tab.open("/queues")
    tab.page.keyboard.press("Tab")
    expect(tab.page.locator(".skip")).to_be_focused()


def test_a_queues_life_from_the_first_message_to_its_end(tab: Tab) -> None:
    tab.open("/queues")
    tab.press("New queue")
    tab.fill("Name", "life/of a&queue")
    tab.press("Create")
    tab.page.wait_for_url("**/queue?name=life**")
    tab.open(link("/send", kind="queue", name="life/of a&queue"))
    tab.fill("Body", '{"hello": "<b>world</b>"}')
    tab.fill("Headers", "region: EU")
    tab.fill("How often", "5")
    tab.press("Send")
    tab.wait("5 sent to queue")
    tab.open(link("/messages", kind="queue", name="life/of a&queue"))
    expect(tab.page.locator("tbody tr")).to_have_count(5)
    tab.page.locator("tbody a").first.click()
    tab.wait('"hello": "<b>world</b>"')
    with tab.page.expect_download() as download:
        tab.press("Download the body")
    assert Path(download.value.path()).read_text() == '{"hello": "<b>world</b>"}'
    tab.open(link("/messages", kind="queue", name="life/of a&queue"))
    tab.page.locator("tbody tr").first.locator("button", has_text="Delete").click()
    tab.press("Delete message")
    expect(tab.page.locator("tbody tr")).to_have_count(4)
    tab.page.locator("tbody tr").first.locator("button", has_text="Move").click()
    tab.fill("To", "life.archive")
    tab.press("Move message")
    expect(tab.page.locator("tbody tr")).to_have_count(3)
    _act(tab, "life/of a&queue", "Copy", "Copy 3 messages", To="life.archive", Selector="region = 'EU'")
    _act(tab, "life/of a&queue", "Move", "Move 2 messages", To="life.archive", **{"At most": "2"})
    _act(tab, "life/of a&queue", "Purge", "Purge 1 messages")
    _act(tab, "life/of a&queue", "Delete", "Delete 0 messages")
    tab.open(link("/queue", name="life.archive"))
    expect(tab.page.locator(".tile", has_text="Messages").first).to_contain_text("6")


def _act(tab: Tab, queue: str, verb: str, button: str, **fields: str) -> None:
    """Choose an action of a queue, see what it would touch, and do it."""
    tab.open(link("/queue", name=queue))
    tab.press("Actions")
    tab.choose(f"{verb}…")
    tab.page.locator(".q-dialog h2", has_text=verb).wait_for()
    for label, text in fields.items():
        tab.fill(label, text)
    if tab.page.locator(".q-dialog .q-btn", has_text="Preview").count():
        tab.page.locator(".q-dialog .q-btn", has_text="Preview").click()
    tab.page.locator(".q-dialog .q-btn", has_text=button).click()
    if verb == "Delete":
        tab.page.wait_for_url("**/queues")
    else:
        tab.page.locator(".q-notification", has_text=verb).wait_for()


def test_deliveries_are_paused_and_resumed(tab: Tab) -> None:
    tab.open(link("/queue", name="audit"))
    tab.press("Pause")
    expect(tab.page.locator(".chip", has_text="paused")).to_be_visible()
    tab.press("Resume")
    expect(tab.page.locator(".chip", has_text="paused")).to_have_count(0)


def test_a_group_is_moved_after_its_effect_was_shown(tab: Tab) -> None:
    tab.open(ALL_PAGES["group"])
    tab.press("Move")
    tab.fill("To", "earliest")
    tab.press("Preview")
    tab.wait("finished messages are delivered again")
    tab.press("Move the group")
    tab.wait("The group was moved")


def test_the_schedule_is_cancelled_one_by_one_and_as_a_whole(tab: Tab) -> None:
    tab.open("/schedule")
    tab.page.locator("tbody tr").first.locator("button", has_text="Cancel").click()
    tab.press("Cancel it")
    expect(tab.page.locator("tbody tr")).to_have_count(2)
    tab.press("Actions")
    tab.choose("Cancel…")
    tab.press("Cancel 2 messages")
    tab.wait("Nothing is scheduled.")


def test_the_store_is_verified_beside_the_running_broker(tab: Tab) -> None:
    tab.open("/store")
    tab.press("Verify")
    tab.page.locator(".tone-good", has_text="done").first.wait_for(timeout=60_000)


def test_hostile_names_headers_and_bodies_are_text_wherever_they_are(tab: Tab) -> None:
    for path in (
        link("/queues", search="onerror"), link("/queue", name=HOSTILE), link("/messages", kind="queue", name=HOSTILE),
        link("/message", kind="queue", name=HOSTILE, at="1"), link("/send", kind="queue", name=HOSTILE),
        link("/policies", kind="queue", name=HOSTILE), link("/topology", focus=f"queue://{HOSTILE}"),
        link("/queue", name="'\"><script>document.title='fired'</script>"), "/log",
    ):  # fmt: skip
        tab.open(path)
        tab.page.wait_for_timeout(300)
        assert "fired" not in tab.page.title().replace("'fired'", "")
        assert tab.page.locator("main img, main script").count() == 0


@pytest.mark.parametrize("name", ["overview", "queues", "queue", "messages", "message", "topology", "store"])
def test_a_telephone_shows_each_page_without_scrolling_sideways(browser: Browser, url: str, name: str) -> None:
    tab = Tab(browser, url, phone=True)
    try:
        tab.open(ALL_PAGES[name])
        assert tab.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        tab.page.get_by_label("Navigation").first.click()
        expect(tab.page.locator(".nav-link", has_text="Queues")).to_be_visible()
    finally:
        tab.close()


def test_the_console_comes_back_when_it_dies_and_ends_with_its_broker(tmp_path: Path) -> None:
    broker = own_console.start(tmp_path)
    try:
        first = broker.wait_for_event("console.started")
        _kill(int(str(first["pid"])))
        _until(lambda: len(broker.events("console.started")) == 2)
        last = int(str(broker.events("console.started")[1]["pid"]))
        assert own_console.console_url(broker)
        broker.kill()
        _until(lambda: not Path(f"/proc/{last}").exists())
    finally:
        broker.kill()


def test_users_log_in_and_see_what_they_may(browser: Browser, tmp_path: Path) -> None:
    broker = own_console.start(tmp_path, SECURITY__ENABLED="true")
    tab: Tab | None = None
    try:
        passwords = tmp_path / "password"
        passwords.write_text(PASSWORD)
        data = ["--data", str(broker.data), "--new-password-file", str(passwords)]
        for command in (["passwd", "admin"], ["add", "ops", "--role", "operator"], ["add", "shop"]):
            assert quire("user", *command, *data).returncode == 0
        tab = Tab(browser, own_console.console_url(broker))
        tab.page.goto(tab.url + link("/queues", search="a"))
        tab.page.fill("#user", "admin")
        tab.page.fill("#password", "wrong")
        tab.page.click("button")
        expect(tab.page.locator(".error")).to_be_visible()
        _log_in(tab, "admin")
        tab.page.wait_for_url("**/queues?search=a")
        tab.open("/users")
        tab.press("New user")
        tab.fill("User", "alice")
        tab.fill("Password", PASSWORD)
        tab.press("Add user")
        tab.wait("alice")
        tab.open("/rules")
        tab.press("New rule")
        tab.fill("Who", "user:shop")
        tab.fill("Destinations", "queue://shop.>")
        tab.press("Add rule")
        tab.wait("user:shop")
        tab.open("/tokens")
        tab.wait("console")
        _log_out(tab)
        tab.page.goto(tab.url + "/queues")
        _log_in(tab, "ops")
        tab.open("/queues")
        assert tab.page.locator(".nav-link", has_text="Users").count() == 0
        assert tab.open("/users") == "This cannot be shown"
        _log_out(tab)
        tab.page.goto(tab.url + "/queues")
        _log_in(tab, "shop")
        assert tab.open("/queues") == "Queues"
        assert tab.page.locator(".nav-link", has_text="Log").count() == 0
        assert [trouble for trouble in tab.troubles if "401" not in trouble] == []
        assert tab.foreign == []
    finally:
        if tab is not None:
            tab.close()
        broker.kill()


def _log_in(tab: Tab, user: str) -> None:
    tab.page.fill("#user", user)
    tab.page.fill("#password", PASSWORD)
    tab.page.click("button")
    tab.page.wait_for_selector("h1")


def _log_out(tab: Tab) -> None:
    tab.page.get_by_label("Account").first.click()
    tab.page.locator(".log-out").click()
    tab.page.wait_for_url("**/login**")


def _kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + own_console.START_LIMIT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
