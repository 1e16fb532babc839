"""Pictures of all pages for the docs: ``python -m tests.acceptance.console.screenshots``; ``make screenshots`` does it.

They are of a broker with some traffic: light, dark, and as on a telephone.
"""

import io
import sys
import tempfile
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser

from tests.acceptance.console import own_console
from tests.acceptance.console.all_pages import ALL_PAGES
from tests.acceptance.console.chromium import MISSING, PROGRAM, Tab, chromium
from tests.acceptance.console.demo import Demo

IMAGES = Path(__file__).parents[3] / "docs" / "images" / "console"

WARM_UP = 40.0
"""For how many seconds the traffic flows before the first picture, so that plots have something to show."""

QUALITY = 40
WIDTHS = {"light": 760, "dark": 760, "phone": 300}


def main() -> int:
    """Make them."""
    if not PROGRAM:
        print(MISSING, file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        broker = own_console.start(Path(directory))
        demo = Demo(broker.http, broker.port())
        try:
            demo.prepare()
            demo.start()
            url = own_console.console_url(broker)
            with chromium() as browser:
                _warm_up(browser, url)
                for look in ("light", "dark", "phone"):
                    _pictures(browser, url, look)
        finally:
            demo.stop()
            broker.stop()
    print(f"{sum([path.stat().st_size for path in IMAGES.iterdir()]) // 1024} KiB of pictures are in {IMAGES}")
    return 0


def _warm_up(browser: Browser, url: str) -> None:
    tab = Tab(browser, url)
    tab.open("/")
    tab.page.wait_for_timeout(WARM_UP * 1000)
    tab.close()


def _pictures(browser: Browser, url: str, look: str) -> None:
    scheme: Literal["light", "dark"] = "dark" if look == "dark" else "light"
    tab = Tab(browser, url, scheme=scheme, phone=look == "phone")
    for name, path in ALL_PAGES.items():
        tab.open(path)
        tab.page.wait_for_timeout(700)
        picture = Image.open(io.BytesIO(tab.page.screenshot())).convert("RGB")
        width = WIDTHS[look]
        small = picture.resize((width, picture.height * width // picture.width), Image.Resampling.LANCZOS)
        small.save(IMAGES / f"{name}-{look}.webp", quality=QUALITY, method=6)
    tab.close()


if __name__ == "__main__":
    sys.exit(main())
