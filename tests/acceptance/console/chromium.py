"""A headless Chromium, the system's own, and what it says of the pages that it shows."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
MISSING = "there is no Chromium here: apt-get install chromium"

LIMIT = 60_000.0
"""How long anything on a page may take, in milliseconds, on a busy machine."""

DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}


@contextmanager
def chromium() -> Iterator[Browser]:
    arguments = ["--disable-gpu"] + ["--no-sandbox"] * (os.geteuid() == 0)  # Chromium has no sandbox for root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A tab of a browser of its own, with its own cookies."""

    def __init__(
        self, browser: Browser, url: str, *, scheme: Literal["light", "dark"] = "light", phone: bool = False
    ) -> None:
        self.url = url.rstrip("/")
        size = PHONE if phone else DESKTOP
        self._context = browser.new_context(
            viewport={"width": size["width"], "height": size["height"]}, color_scheme=scheme, has_touch=phone
        )
        self._context.set_default_timeout(LIMIT)
        self.page: Page = self._context.new_page()  # the tab, as Playwright has it
        self.troubles: list[str] = []
        self.foreign: list[str] = []  # what it wanted from another place than the console
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: self.troubles.append(f"a dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._asked(request.url))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.troubles.append(message.text)

    def _asked(self, url: str) -> None:
        if not url.startswith((self.url, "data:", "blob:", self.url.replace("http:", "ws:"))):
            self.foreign.append(url)

    def open(self, path: str) -> str:
        """Go to a page, wait until it is shown and connected; its title on the page."""
        self.page.goto(self.url + path)
        self.page.wait_for_selector("h1")
        self.page.wait_for_function("window.socket?.connected ?? true")
        return self.page.inner_text("h1")

    def press(self, label: str) -> None:
        self.page.locator(".q-btn:visible", has_text=label).last.click()

    def choose(self, label: str) -> None:
        self.page.locator(".q-menu .q-item:visible", has_text=label).first.click()

    def fill(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).last.fill(text)

    def wait(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for()

    def remembered(self, choice: str) -> None:
        """Wait until the browser keeps a choice: it is told so after the page has shown it."""
        self.page.wait_for_function("choice => decodeURIComponent(document.cookie).includes(choice)", arg=choice)

    def close(self) -> None:
        self._context.close()
